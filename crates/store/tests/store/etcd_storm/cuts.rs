//! A batch of several transactions, hit at every one of them: by trouble that it must outlive, and by the end of its leader, and
//! of the next one in the midst of finishing it.

use std::time::Duration;

use store::etcd::Leader;
use store::{Batch, Journal, Retention, Table};
use tokio::time::timeout;
use tonic::Status;

use super::scenes::{lead, load, stand_by};
use super::simulate;
use crate::fake_etcd::{Armed, FakeEtcd, LIFE, Trouble};
use crate::{Rows, apply};

/// The time of what is young.
const NOW_MS: i64 = 1_000_000;

/// Rows of the batch: it is staged, and spread over three transactions.
const ROWS: u32 = 300;

/// What that takes: the piece, the marker, the rows and their entry, and taking the piece away.
const TRANSACTIONS: u64 = 6;

fn before() -> Batch {
    let mut batch = Batch::new();
    batch.put(Table::META, b"revision", b"1");
    (0..ROWS).filter(|row| row % 3 == 0).for_each(|row| batch.put(Table(2), &row.to_be_bytes(), b"old"));
    batch
}

fn large() -> Batch {
    let mut batch = Batch::new();
    batch.put(Table::META, b"revision", b"2");
    for row in 0..ROWS {
        match row % 7 {
            0 => batch.delete(Table(2), &row.to_be_bytes()),
            _ => batch.put(Table((row % 5) as u8), &row.to_be_bytes(), b"new"),
        }
    }
    batch.append(Journal::AUDIT, 7, b"large");
    batch
}

/// What stands before and after the large batch.
fn expected() -> [Rows; 2] {
    let mut rows = Rows::new();
    apply(&mut rows, &before());
    let old = rows.clone();
    apply(&mut rows, &large());
    [old, rows]
}

fn troubles() -> [Trouble; 7] {
    let says = |done| Trouble::Says { status: Status::unavailable("etcdserver: leader changed"), done };
    let time = Duration::from_millis(1700);
    [
        Trouble::AnswerLost,
        Trouble::AnswerCut,
        Trouble::Cut,
        says(true),
        says(false),
        // Long after it was given up and asked for again.
        Trouble::Late(time),
        Trouble::Twice(time),
    ]
}

fn arm(etcd: &FakeEtcd, replica: usize, after: u64, trouble: Trouble) {
    etcd.arm(Armed { method: "Txn", replica: Some(replica), after, trouble });
}

fn entries(etcd: &FakeEtcd) -> usize {
    etcd.see(|etcd| etcd.history.below(crate::fake_etcd::JOURNALS).count())
}

/// Its process ends.
fn kill(etcd: &FakeEtcd, leader: Leader, replica: usize) {
    drop(leader);
    etcd.bury(LIFE + replica);
    etcd.disarm();
}

#[test]
fn a_batch_outlives_trouble_at_each_of_its_transactions() {
    let [_, expected] = expected();
    for at in 0..TRANSACTIONS {
        for trouble in troubles() {
            simulate(async || {
                let etcd = FakeEtcd::start(None);
                let mut leader = lead(&etcd, 0).await;
                leader.commit(&before()).await.unwrap();
                arm(&etcd, 0, at, trouble.clone());
                leader.commit(&large()).await.unwrap_or_else(|error| panic!("{trouble:?} at {at}: {error}"));
                assert_eq!(etcd.armed(), 0, "{trouble:?} at {at}: the batch takes fewer transactions");
                // Whatever was held back arrives in the midst of others.
                for _ in 0..5 {
                    leader.commit(&Batch::new()).await.unwrap();
                    tokio::time::sleep(Duration::from_millis(500)).await;
                }
                kill(&etcd, leader, 0);
                let rows = load(&mut stand_by(&etcd, 1).await.unwrap()).await.unwrap();
                assert!(rows == expected && entries(&etcd) == 1, "{trouble:?} at {at}");
                assert_eq!(etcd.with(|etcd| etcd.witness.take()), Vec::<String>::new());
            });
        }
    }
}

#[test]
fn a_batch_that_two_leaders_die_over_is_there_as_a_whole_or_not_at_all() {
    let [old, new] = expected();
    let (mut whole, mut none) = (0, 0);
    for first in 0..TRANSACTIONS {
        for second in 0..TRANSACTIONS {
            for trouble in [Trouble::AnswerLost, Trouble::Cut] {
                simulate(async || {
                    let etcd = FakeEtcd::start(None);
                    let mut leader = lead(&etcd, 0).await;
                    leader.commit(&before()).await.unwrap();
                    arm(&etcd, 0, first, trouble.clone());
                    // It dies while it waits for an answer.
                    let in_time = timeout(Duration::from_millis(5), leader.commit(&large())).await;
                    assert!(in_time.is_err(), "{first}: nothing was in its way");
                    kill(&etcd, leader, 0);
                    // The first transaction of the next is the one that makes it the leader.
                    arm(&etcd, 1, second + 1, trouble.clone());
                    let mut next = stand_by(&etcd, 1).await.unwrap();
                    let _died = timeout(Duration::from_millis(5), load(&mut next)).await;
                    kill(&etcd, next, 1);
                    let rows = load(&mut stand_by(&etcd, 2).await.unwrap()).await.unwrap();
                    let is_whole = rows == new && entries(&etcd) == 1;
                    assert!(is_whole || (rows == old && entries(&etcd) == 0), "{trouble:?} at {first}, {second}");
                    (whole, none) = (whole + u32::from(is_whole), none + u32::from(!is_whole));
                    assert_eq!(etcd.with(|etcd| etcd.witness.take()), Vec::<String>::new());
                });
            }
        }
    }
    assert!(whole > 20 && none > 10, "{whole} {none}");
}

/// The numbers of a batch are counted with its first transaction, and its last entries written with a later one.
#[test]
fn entries_that_are_still_being_written_are_not_retired_with_their_elders() {
    simulate(async || {
        let etcd = FakeEtcd::start(None);
        let mut leader = lead(&etcd, 0).await;
        let journals = leader.journals();
        let mut old = Batch::new();
        (0..5).for_each(|_| old.append(Journal::EVENTS, 0, b"old"));
        leader.commit(&old).await.unwrap();
        let mut batch = Batch::new();
        (0..200).for_each(|_| batch.append(Journal::AUDIT, NOW_MS, b"new"));
        (0..5).for_each(|_| batch.append(Journal::EVENTS, NOW_MS, b"new"));
        // Staged, marked, and the first of two transactions that spread it: the second takes its time.
        arm(&etcd, 0, 3, Trouble::Late(Duration::from_millis(500)));
        let commit = tokio::spawn(async move { leader.commit(&batch).await });
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(etcd.armed(), 0);
        // What retires the old ones arrives when the new ones are there.
        arm(&etcd, 0, 0, Trouble::Late(Duration::from_millis(800)));
        journals.retain(Journal::EVENTS, Retention { age_ms: Some(1000), bytes: None, stays_from: None });
        journals.retire(NOW_MS);
        commit.await.unwrap().unwrap();
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(etcd.armed(), 0);
        let left: Vec<_> = etcd.see(|etcd| {
            let events = etcd.history.below(b"/bursar/test/journals/02/");
            events.map(|(_, value)| value.ends_with(b"new")).collect()
        });
        assert_eq!(left, [true; 5]);
    });
}
