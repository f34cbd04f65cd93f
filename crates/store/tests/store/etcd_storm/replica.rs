//! A replica as its process lives: it stands by, leads, loads, commits, stops or dies, and begins anew.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use store::etcd::client::{Client, Credentials};
use store::etcd::messages::RangeRequest;
use store::etcd::{Config, Leader};
use store::{Batch, Retention, StoreError, Table, Term};
use tokio::sync::Notify;
use tokio::time::sleep;

use super::judge::{APPENDED, Judge, RETIRED, RETIRED_BYTES};
use crate::fake_etcd::cluster::USER;
use crate::fake_etcd::mutation::Mutation;
use crate::fake_etcd::{FakeEtcd, LEADER};
use crate::{Numbers, Rows, noise};

/// A clock may run wrong by this many millionths.
const DRIFT_PPM: u64 = 20_000;

/// What all of one run share.
pub struct World {
    pub etcd: FakeEtcd,
    pub judge: RefCell<Judge>,
    pub mutation: Option<Mutation>,
    pub signals: Vec<Signals>,
    batches: RefCell<u64>,
    /// The next batch is to be too large for one transaction.
    pub large: Cell<bool>,
}

/// What is done to a process from outside.
#[derive(Default)]
pub struct Signals {
    pub crash: Notify,
    pub stop: Notify,
}

impl World {
    pub fn new(replicas: usize, mutation: Option<Mutation>) -> Rc<World> {
        let etcd = FakeEtcd::start(mutation);
        Rc::new(World {
            judge: RefCell::new(Judge::new(&etcd)),
            etcd,
            mutation,
            signals: (0..replicas).map(|_| Signals::default()).collect(),
            batches: RefCell::default(),
            large: Cell::default(),
        })
    }

    pub fn config(replica: usize, known: bool) -> Config {
        let mut config = Config::new(FakeEtcd::endpoints(), "test", &format!("replica-{replica}"));
        config.known = known;
        config
    }

    /// Where they are asked for.
    pub fn credentials(&self) -> Option<Credentials> {
        let credentials = Credentials { user: USER.0.to_owned(), password: USER.1.to_owned() };
        self.etcd.see(|etcd| etcd.authentication).then_some(credentials)
    }

    /// A batch as an engine makes them: its number, a few rows of all tables, entries; now and then one that is too large for a
    /// transaction, or a row too long for a request.
    pub fn batch(&self, numbers: &mut Numbers) -> Batch {
        let mut number = self.batches.borrow_mut();
        *number += 1;
        let mut batch = Batch::new();
        batch.put(Table::META, b"revision", &number.to_be_bytes());
        let rows =
            if numbers.below(60) == 0 || self.large.take() { 130 + numbers.below(150) } else { 1 + numbers.below(5) };
        for _ in 0..rows {
            let table = Table(numbers.below(5) as u8);
            let key = format!("key-{}", numbers.below(60 + rows));
            match numbers.below(5) {
                0 => batch.delete(table, key.as_bytes()),
                _ => batch.put(table, key.as_bytes(), &[number.to_be_bytes(), numbers.next().to_be_bytes()].concat()),
            }
        }
        if numbers.below(400) == 0 {
            batch.put(Table::OBJECTS, b"long", &noise(600_000));
        }
        for index in 0..numbers.below(4) {
            let journal = APPENDED[numbers.below(2) as usize];
            batch.append(journal, *number as i64 + 5, &[number.to_be_bytes(), index.to_be_bytes()].concat());
        }
        batch
    }
}

/// One life after the other, until the run ends.
pub async fn live(world: Rc<World>, replica: usize, mut numbers: Numbers) {
    let signals = &world.signals[replica];
    let mut known = false;
    loop {
        let life = world.judge.borrow_mut().new_life();
        let ended = tokio::select! {
            biased;
            () = signals.crash.notified() => true,
            on = one_life(&world, replica, life, known, &mut numbers) => on,
        };
        world.judge.borrow_mut().ended(life);
        world.etcd.bury(life);
        if !ended {
            return;
        }
        known = true;
        sleep(Duration::from_millis(20 + numbers.below(2000))).await;
    }
}

/// `false`: it has given up for good.
async fn one_life(world: &World, replica: usize, life: usize, known: bool, numbers: &mut Numbers) -> bool {
    let drift = i64::try_from(numbers.below(2 * DRIFT_PPM)).unwrap_or(0) - DRIFT_PPM as i64;
    let outside = world.etcd.outside(replica, life, drift);
    let gives_up = async {
        if world.mutation != Some(Mutation::StandbyGivesUp) {
            return std::future::pending().await;
        }
        let client = Client::through(&outside, &FakeEtcd::endpoints(), None, world.credentials()).unwrap();
        let look = RangeRequest { key: LEADER.to_vec(), ..RangeRequest::default() };
        while client.patient(Duration::from_secs(1)).range(look.clone()).await.is_ok() {
            sleep(Duration::from_secs(1)).await;
        }
    };
    let mut config = World::config(replica, known);
    config.credentials = world.credentials();
    let led = tokio::select! {
        biased;
        led = Leader::lead(config, outside.clone()) => led,
        () = gives_up => Err(StoreError::Unusable { why: "it gave up".to_owned() }),
    };
    let mut leader = match led {
        Ok(leader) => leader,
        Err(error) => {
            world.judge.borrow_mut().violation(format!("standby {replica} ended: {error}"));
            return false;
        }
    };
    let term = if world.mutation == Some(Mutation::TermIgnored) { Term::default() } else { leader.term() };
    world.judge.borrow_mut().leads(life, replica, term);
    let stopped = tokio::select! {
        biased;
        () = world.signals[replica].stop.notified() => true,
        () = serve(world, life, &mut leader, numbers) => false,
    };
    world.judge.borrow_mut().ended(life);
    if stopped {
        leader.close().await;
    } else {
        let mut again = Batch::new();
        again.put(Table::META, b"revision", b"from the grave");
        if leader.commit(&again).await.is_ok() {
            world.judge.borrow_mut().violation(format!("life {life} wrote after it had failed"));
        }
    }
    true
}

/// Leads until it cannot.
async fn serve(world: &World, life: usize, leader: &mut Leader, numbers: &mut Numbers) {
    let mut rows = Rows::new();
    let mut twice = false;
    let loaded = leader
        .load(&mut |table, key, value| {
            twice |= rows.insert((table, key.to_vec()), value.to_vec()).is_some();
        })
        .await;
    if let Err(error) = loaded {
        return world.judge.borrow_mut().failed(life, &error);
    }
    if twice {
        world.judge.borrow_mut().violation("a row was handed over twice");
    }
    world.judge.borrow_mut().loaded(life, rows, leader.rewound());
    loop {
        let pause = match numbers.below(60) {
            // Longer than a lease: nothing but its renewal tells who leads.
            0 => 3000 + numbers.below(4000),
            1..20 => 0,
            _ => numbers.below(500),
        };
        sleep(Duration::from_millis(pause)).await;
        if numbers.below(30) == 0 {
            let journals = leader.journals();
            journals.retain(RETIRED, Retention { age_ms: None, bytes: Some(RETIRED_BYTES), stays_from: None });
            journals.retire(0);
        }
        if numbers.below(8) == 0
            && let Err(error) = leader.confirm().await
        {
            return world.judge.borrow_mut().failed(life, &error);
        }
        let batch = world.batch(numbers);
        world.judge.borrow_mut().asks(life, &batch);
        match leader.commit(&batch).await {
            Ok(()) => world.judge.borrow_mut().acknowledged(life),
            Err(error) => return world.judge.borrow_mut().failed(life, &error),
        }
    }
}
