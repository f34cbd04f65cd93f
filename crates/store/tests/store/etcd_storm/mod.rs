//! Replicas of the etcd store on a fake etcd, in simulated time, while everything goes wrong that a seed can think of.
//!
//! Every batch that was acknowledged is there, once and whole, for whoever leads next; one that was not is there as a whole or
//! not at all; nobody speaks while another leads; and when all is well again, somebody leads and writes.
//!
//! `ETCD_SEEDS=20000 cargo test -p store etcd_storm` looks further, `ETCD_FROM=17 ETCD_SEEDS=1` again at one.

mod cuts;
mod judge;
mod replica;
mod scenes;
mod weather;

use std::rc::Rc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use store::etcd::{Config, Leader};
use store::{Journals, PageLimit};
use tokio::task::LocalSet;
use tokio::time::{Instant, sleep};

use crate::Numbers;
use crate::fake_etcd::mutation::Mutation;
use judge::{APPENDED, Entries, Rare};
use replica::World;

const SEEDS: u64 = 500;
const FAULTS: usize = 20;
const REPLICAS: usize = 3;

/// Small, so that what others write is a reason to compact.
const QUOTA: u64 = 4 << 20;

/// How often the judge looks at who speaks.
const LOOK: Duration = Duration::from_millis(100);

/// How long it may take, when all is well, until somebody leads and has written: a lease, an election of etcd that gives leases
/// their whole time again, the load, and the waits of whoever stands by.
const RECOVERY: Duration = Duration::from_secs(15);

/// What a run came to, for comparison and for people.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Outcome {
    calls: u64,
    digest: u64,
    acknowledged: u64,
    rare: Rare,
}

impl std::ops::AddAssign for Outcome {
    fn add_assign(&mut self, other: Outcome) {
        self.calls += other.calls;
        self.acknowledged += other.acknowledged;
        let (sum, rare) = (&mut self.rare, other.rare);
        sum.takeovers += rare.takeovers;
        sum.there += rare.there;
        sum.not_there += rare.not_there;
        sum.staged += rare.staged;
        sum.marked += rare.marked;
        sum.rewound += rare.rewound;
        sum.compacted += rare.compacted;
    }
}

/// Runs something in a world whose time passes only while everybody waits.
fn simulate<T>(work: impl AsyncFnOnce() -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    LocalSet::new().block_on(&runtime, work())
}

fn numbers(seed: u64, of: u64) -> Numbers {
    let mut numbers = Numbers((seed ^ of << 48).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    numbers.next();
    numbers
}

fn run(seed: u64, mutation: Option<Mutation>) -> Result<Outcome, String> {
    simulate(async || storm(seed, mutation).await)
}

async fn storm(seed: u64, mutation: Option<Mutation>) -> Result<Outcome, String> {
    let world = World::new(REPLICAS, mutation);
    world.etcd.with(|etcd| {
        etcd.authentication = seed.is_multiple_of(4);
        etcd.quota = QUOTA;
    });
    let mut tasks = tokio::task::JoinSet::new();
    for replica in 0..REPLICAS {
        tasks.spawn_local(replica::live(world.clone(), replica, numbers(seed, replica as u64 + 1)));
    }
    tasks.spawn_local(watch(world.clone()));
    sleep(Duration::from_secs(1)).await;
    weather::play(&world, &mut numbers(seed, 0), FAULTS).await;
    let (begun, before) = (Instant::now(), world.judge.borrow().acknowledgements);
    while world.judge.borrow().acknowledgements == before && begun.elapsed() < RECOVERY {
        sleep(LOOK).await;
    }
    if world.judge.borrow().acknowledgements == before {
        world.judge.borrow_mut().violation(format!("nobody writes {RECOVERY:?} after all is well"));
    }
    // Everybody ends as a process does that is killed, and one more reads what is left.
    tasks.abort_all();
    while tasks.join_next().await.is_some() {}
    let lives = world.judge.borrow_mut().new_life();
    (1..lives).for_each(|life| {
        world.judge.borrow_mut().ended(life);
        world.etcd.bury(life);
    });
    last_reader(&world, lives).await;
    let verdict = world.judge.borrow_mut().verdict();
    let judge = world.judge.borrow();
    verdict.map(|()| Outcome {
        calls: world.etcd.calls(),
        digest: world.etcd.digest(),
        acknowledged: judge.acknowledgements,
        rare: Rare { compacted: world.etcd.see(|etcd| etcd.compactions), ..judge.rare },
    })
}

async fn watch(world: Rc<World>) {
    loop {
        sleep(LOOK).await;
        world.judge.borrow_mut().look();
    }
}

/// Loads everything once more, and reads the journals as users do.
async fn last_reader(world: &World, life: usize) {
    let reading = async {
        let config = Config { credentials: world.credentials(), ..World::config(0, true) };
        let mut leader = Leader::lead(config, world.etcd.outside(0, life, 0)).await?;
        let mut rows = crate::Rows::new();
        leader.load(&mut |table, key, value| drop(rows.insert((table, key.to_vec()), value.to_vec()))).await?;
        world.judge.borrow_mut().loaded(life, rows, leader.rewound());
        let journals = leader.journals();
        // The calls block, so they are made on a thread of their own; time stands still meanwhile.
        let read = tokio::task::spawn_blocking(move || read_journals(&journals)).await.unwrap();
        Ok::<_, store::StoreError>(read)
    };
    let read = tokio::time::timeout(RECOVERY * 2, reading).await;
    let mut judge = world.judge.borrow_mut();
    match read {
        Ok(Ok(read)) => judge.read(&read),
        Ok(Err(error)) => judge.violation(format!("the last reader: {error}")),
        Err(_) => judge.violation("the last reader never leads"),
    }
}

fn read_journals(journals: &Journals) -> Entries {
    let read = APPENDED.map(|journal| {
        let (mut all, mut from) = (Vec::new(), 0);
        loop {
            let page = journals.forward(journal, from, PageLimit { entries: 100, bytes: 1 << 20 }).unwrap();
            let Some(last) = page.entries.last() else { return (journal.0, all) };
            from = last.sequence + 1;
            all.extend(page.entries.into_iter().map(|entry| (entry.at_ms, entry.value)));
        }
    });
    read.into()
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .ok()
        .map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name} is no number: {text}")))
}

/// Runs all seeds on all processors; those that failed, with what was found.
fn run_all(from: u64, seeds: u64) -> (Vec<(u64, String)>, Outcome) {
    let next = AtomicU64::new(from);
    let parts: Vec<(Vec<(u64, String)>, Outcome)> = std::thread::scope(|scope| {
        let work = || {
            let (mut failed, mut sum) = (Vec::new(), Outcome::default());
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= from + seeds {
                    return (failed, sum);
                }
                match run(seed, None) {
                    Ok(outcome) => sum += outcome,
                    Err(what) => failed.push((seed, what)),
                }
            }
        };
        let threads: Vec<_> = (0..threads()).map(|_| scope.spawn(work)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let (mut failed, mut sum) = (Vec::new(), Outcome::default());
    for (part, outcome) in parts {
        failed.extend(part);
        sum += outcome;
    }
    failed.sort();
    (failed, sum)
}

#[test]
fn what_was_acknowledged_is_there_once_and_whole_whatever_happens() {
    let (from, seeds) = (setting("ETCD_FROM", 0), setting("ETCD_SEEDS", SEEDS));
    let (failed, sum) = run_all(from, seeds);
    println!("{seeds} seeds: {sum:?}");
    let shown: Vec<_> = failed.iter().take(20).map(|(seed, what)| format!("seed {seed}: {what}")).collect();
    assert!(failed.is_empty(), "{} of {seeds} seeds failed:\n{}", failed.len(), shown.join("\n"));
    let Rare { takeovers, there, not_there, staged, marked, rewound, compacted } = sum.rare;
    let least = [takeovers, there, not_there, staged, marked, rewound, compacted].into_iter().min();
    assert!(seeds < SEEDS || least > Some(0), "something hardly ever happens: {sum:?}");
}

#[test]
fn a_seed_is_one_run() {
    for seed in [3, 1000, 77_777] {
        let first = run(seed, None).unwrap();
        assert_eq!(run(seed, None).unwrap(), first, "seed {seed}");
        assert!(first.calls > 100 && first.acknowledged > 10, "{first:?}");
    }
}

/// What finds it out: storms, within so many seeds, or a scene.
enum By {
    Storms(u64),
    Updates,
    HungMember,
    SilentMember,
}

/// Every way to be broken.
const BROKEN: [(Mutation, By); 13] = [
    (Mutation::FenceIgnored, By::Storms(40)),
    (Mutation::NumberIgnored, By::Storms(40)),
    (Mutation::EntryDropped, By::Storms(2)),
    (Mutation::Torn, By::Storms(2)),
    (Mutation::AnsweredNotDone, By::Storms(2)),
    (Mutation::LossUntold, By::Storms(60)),
    (Mutation::NeverCompacts, By::Updates),
    (Mutation::RewindUnseen, By::Storms(200)),
    (Mutation::KeyOutlivesLease, By::Storms(20)),
    (Mutation::AllMustAgree, By::HungMember),
    (Mutation::StandbyGivesUp, By::Storms(20)),
    (Mutation::TermIgnored, By::Storms(20)),
    (Mutation::WaitsForEver, By::SilentMember),
];

fn found_out(mutation: Mutation, by: &By) -> Option<String> {
    match by {
        By::Storms(seeds) => {
            (0..*seeds).find_map(|seed| run(seed, Some(mutation)).err().map(|what| format!("seed {seed}: {what}")))
        }
        By::Updates => scenes::keeps(Some(mutation)).err(),
        By::HungMember => scenes::writes_beside(1, true, Some(mutation)).err(),
        By::SilentMember => (0..2).find_map(|member| scenes::takes_over(Some(member), Some(mutation)).err()),
    }
}

#[test]
fn whatever_is_broken_is_found_out() {
    let next = AtomicUsize::new(0);
    let missed = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..threads() {
            scope.spawn(|| {
                while let Some((mutation, by)) = BROKEN.get(next.fetch_add(1, Ordering::Relaxed)) {
                    match found_out(*mutation, by) {
                        Some(what) => println!("{mutation:?}: {what}"),
                        None => missed.lock().unwrap().push(*mutation),
                    }
                }
            });
        }
    });
    let missed = missed.into_inner().unwrap();
    assert!(missed.is_empty(), "not found out: {missed:?}");
}

fn threads() -> usize {
    std::thread::available_parallelism().map_or(2, std::num::NonZero::get)
}
