//! What goes wrong, when, and for how long: all of it from one seed.

use std::rc::Rc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tonic::Status;

use super::replica::World;
use crate::Numbers;
use crate::fake_etcd::cluster::MEMBERS;
use crate::fake_etcd::{Armed, Trouble};

const METHODS: [&str; 10] =
    ["Txn", "Txn", "Txn", "Txn", "Range", "LeaseGrant", "LeaseKeepAlive", "Watch", "Status", "Compact"];

/// What somebody else writes at a time.
const OTHERS_BYTES: usize = 700_000;

/// Plays so many faults, one after the other, and waits until all of them have passed.
pub async fn play(world: &Rc<World>, numbers: &mut Numbers, faults: usize) {
    let mut passing = JoinSet::new();
    for _ in 0..faults {
        sleep(Duration::from_millis(numbers.below(3000))).await;
        let longest = if numbers.below(3) == 0 { 9000 } else { 3000 };
        let time = Duration::from_millis(200 + numbers.below(longest));
        begin(world, numbers, time, &mut passing);
    }
    while passing.join_next().await.is_some() {}
    world.etcd.disarm();
    // What an administrator does about an etcd that is full.
    world.etcd.with(|etcd| {
        etcd.compact_all();
        etcd.defragment();
        etcd.alarm = false;
    });
}

fn begin(world: &Rc<World>, numbers: &mut Numbers, time: Duration, passing: &mut JoinSet<()>) {
    let (replica, member) =
        (numbers.below(world.signals.len() as u64) as usize, numbers.below(MEMBERS as u64) as usize);
    // Whoever leads is hit more often: what happens to it matters most.
    let leading = world.judge.borrow().speaker();
    let replica = leading.filter(|_| numbers.below(2) == 0).unwrap_or(replica);
    let after = |passing: &mut JoinSet<()>, end: fn(&World, usize, usize)| {
        let world = world.clone();
        passing.spawn_local(async move {
            sleep(time).await;
            end(&world, replica, member);
        });
    };
    let etcd = &world.etcd;
    match numbers.below(27) {
        0..8 => {
            let method = METHODS[numbers.below(METHODS.len() as u64) as usize];
            for _ in 0..=numbers.below(2) {
                let trouble = trouble(numbers);
                etcd.arm(Armed { method, replica: leading.filter(|_| method == "Txn"), after: 0, trouble });
            }
        }
        8 => {
            etcd.with(|etcd| etcd.members[member].frozen = true);
            (0..world.signals.len()).for_each(|replica| etcd.gate(replica, member).shut());
            after(passing, |world, _, member| {
                world.etcd.with(|etcd| etcd.members[member].frozen = false);
                (0..world.signals.len()).for_each(|replica| world.etcd.gate(replica, member).open());
            });
        }
        9 => {
            etcd.with(|etcd| etcd.part(member, true));
            after(passing, |world, _, member| world.etcd.with(|etcd| etcd.part(member, false)));
        }
        10 => {
            etcd.with(|etcd| etcd.members[member].down = true);
            etcd.cut(|_, of| of == member);
            after(passing, |world, _, member| world.etcd.with(|etcd| etcd.members[member].down = false));
        }
        11 => etcd.with(|etcd| etcd.elect(time / 2)),
        12 => {
            etcd.gate(replica, member).shut();
            after(passing, |world, replica, member| world.etcd.gate(replica, member).open());
        }
        13 | 14 => {
            (0..MEMBERS).for_each(|member| etcd.gate(replica, member).shut());
            after(passing, |world, replica, _| {
                (0..MEMBERS).for_each(|member| world.etcd.gate(replica, member).open());
            });
        }
        15 => etcd.cut(|of, _| of == replica),
        16 => lose_lease(world),
        // While a commit is under way.
        17 => {
            let late = Trouble::Late(Duration::from_millis(300 + numbers.below(1200)));
            etcd.arm(Armed { method: "Txn", replica: leading, after: 0, trouble: late });
            let (world, armed) = (world.clone(), etcd.armed());
            passing.spawn_local(async move {
                let begun = Instant::now();
                while world.etcd.armed() >= armed && begun.elapsed() < Duration::from_secs(2) {
                    sleep(Duration::from_millis(20)).await;
                }
                lose_lease(&world);
            });
        }
        18 => {
            etcd.with(|etcd| etcd.alarm = true);
            after(passing, |world, _, _| world.etcd.with(|etcd| etcd.alarm = false));
        }
        19 => etcd.with(|etcd| etcd.compact_all()),
        20 => world.signals[replica].crash.notify_one(),
        // In the midst of a batch of several transactions.
        24 => {
            world.large.set(true);
            let after = numbers.below(7);
            etcd.arm(Armed { method: "Txn", replica: leading, after, trouble: Trouble::AnswerLost });
            let (world, wait) = (world.clone(), Duration::from_millis(500 + numbers.below(1000)));
            passing.spawn_local(async move {
                sleep(wait).await;
                let leading = world.judge.borrow().speaker();
                world.signals[leading.unwrap_or(replica)].crash.notify_one();
            });
        }
        21 => world.signals[replica].stop.notify_one(),
        22 => {
            // All of it, and sometimes restored from a backup meanwhile.
            etcd.with(|etcd| etcd.members.iter_mut().for_each(|member| member.down = true));
            etcd.cut(|_, _| true);
            if numbers.below(2) == 0 {
                world.judge.borrow_mut().restore();
            }
            after(passing, |world, _, _| {
                world.etcd.with(|etcd| etcd.members.iter_mut().for_each(|member| member.down = false));
            });
        }
        25 => etcd.with(|etcd| etcd.write_of_others(OTHERS_BYTES)),
        26 => etcd.with(|etcd| etcd.withdraw_tokens()),
        _ => world.judge.borrow_mut().save(),
    }
}

fn lose_lease(world: &World) {
    if let Some(life) = world.etcd.with(|etcd| etcd.lose_lease()) {
        world.judge.borrow_mut().lease_lost(life);
    }
}

fn trouble(numbers: &mut Numbers) -> Trouble {
    let time = Duration::from_millis(numbers.below(5000));
    let done = numbers.below(2) == 0;
    let says = |status| Trouble::Says { status, done };
    match numbers.below(10) {
        0 => Trouble::Late(time / 10),
        1 => Trouble::Late(time),
        2 => Trouble::AnswerLost,
        3 => Trouble::AnswerCut,
        4 => Trouble::Cut,
        5 => Trouble::Twice(time),
        6 => Trouble::Says { status: Status::resource_exhausted("etcdserver: too many requests"), done: false },
        7 => says(Status::unavailable("etcdserver: leader changed")),
        8 => says(Status::deadline_exceeded("context deadline exceeded")),
        _ => says(Status::unavailable("etcdserver: request timed out, possibly due to previous leader failure")),
    }
}
