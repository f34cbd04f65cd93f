//! One thing that goes wrong at a time, with the time that it may take.

use std::future::Future;
use std::time::Duration;

use store::etcd::client::Credentials;
use store::etcd::{Config, Leader};
use store::{Batch, StoreError, Table};
use tokio::time::{Instant, sleep, timeout};
use tonic::Status;

use super::replica::World;
use super::simulate;
use crate::fake_etcd::cluster::{MEMBERS, USER};
use crate::fake_etcd::mutation::Mutation;
use crate::fake_etcd::{Armed, FakeEtcd, LIFE, Trouble};
use crate::{Rows, noise, one_row};

const SECOND: Duration = Duration::from_secs(1);

/// A lease, the look that ends it, and what a standby needs to find out and to lead.
const TAKEOVER: Duration = Duration::from_millis(5000);

/// Which is longer by one wait for a member that does not answer.
const TAKEOVER_SILENT: Duration = Duration::from_millis(7000);

fn seconds(seconds: u64) -> Duration {
    SECOND * u32::try_from(seconds).unwrap()
}

pub fn stand_by(etcd: &FakeEtcd, replica: usize) -> impl Future<Output = Result<Leader, StoreError>> + use<> {
    Leader::lead(World::config(replica, true), etcd.outside(replica, LIFE + replica, 0))
}

pub async fn load(leader: &mut Leader) -> Result<Rows, StoreError> {
    let mut rows = Rows::new();
    leader.load(&mut |table, key, value| drop(rows.insert((table, key.to_vec()), value.to_vec()))).await?;
    Ok(rows)
}

pub async fn lead(etcd: &FakeEtcd, replica: usize) -> Leader {
    let mut leader = stand_by(etcd, replica).await.unwrap();
    load(&mut leader).await.unwrap();
    leader
}

fn numbered(number: u64, value: &[u8]) -> Batch {
    let mut batch = one_row(&(number % 10).to_be_bytes(), value);
    batch.put(Table::META, b"revision", &number.to_be_bytes());
    batch
}

fn cut_off(etcd: &FakeEtcd, replica: usize) {
    (0..MEMBERS).for_each(|member| etcd.gate(replica, member).shut());
}

/// Waits until it is so, for so long at most; how long it took.
async fn until(what: &str, limit: Duration, mut is_so: impl FnMut() -> bool) -> Duration {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() <= limit, "not within {limit:?}: {what}");
        sleep(Duration::from_millis(10)).await;
    }
    begun.elapsed()
}

#[test]
fn a_standby_takes_over_in_time_whoever_falls_silent() {
    for silent in [None, Some(0), Some(1)] {
        assert_eq!(takes_over(silent, None), Ok(()));
    }
}

/// The member that a standby watches may fall silent together with the leader.
pub fn takes_over(silent: Option<usize>, mutation: Option<Mutation>) -> Result<(), String> {
    let limit = if silent.is_some() { TAKEOVER_SILENT } else { TAKEOVER };
    simulate(async || {
        let etcd = FakeEtcd::start(mutation);
        let mut leader = lead(&etcd, 0).await;
        let standby = tokio::spawn(stand_by(&etcd, 1));
        sleep(seconds(60)).await;
        leader.commit(&numbered(1, b"1")).await.unwrap();
        cut_off(&etcd, 0);
        if let Some(member) = silent {
            etcd.gate(1, member).shut();
        }
        let next = timeout(limit, standby).await.map_err(|_| format!("nobody takes over when {silent:?} is silent"))?;
        let mut next = next.unwrap().unwrap();
        assert_eq!(load(&mut next).await.unwrap().len(), 2);
        next.commit(&numbered(2, b"2")).await.unwrap();
        Ok(())
    })
}

/// etcd gives all leases their whole time again when it has chosen another leader.
#[test]
fn a_standby_takes_over_when_the_leader_and_the_leader_of_etcd_are_lost_at_once() {
    simulate(async || {
        let etcd = FakeEtcd::start(None);
        let mut leader = lead(&etcd, 0).await;
        let standby = tokio::spawn(stand_by(&etcd, 1));
        leader.commit(&numbered(1, b"1")).await.unwrap();
        drop(leader);
        etcd.bury(LIFE);
        etcd.with(|etcd| etcd.members[etcd.leader].down = true);
        etcd.cut(|_, member| member == 0);
        let mut next = timeout(TAKEOVER_SILENT, standby).await.unwrap().unwrap().unwrap();
        assert_eq!(load(&mut next).await.unwrap().len(), 2);
    });
}

#[test]
fn a_leader_that_is_cut_off_is_in_doubt_before_another_leads_and_then_gives_up() {
    simulate(async || {
        let etcd = FakeEtcd::start(None);
        let mut leader = lead(&etcd, 0).await;
        let standby = tokio::spawn(stand_by(&etcd, 1));
        leader.commit(&numbered(1, b"1")).await.unwrap();
        let term = leader.term();
        cut_off(&etcd, 0);
        let late = tokio::spawn(async move {
            let outcome = leader.commit(&numbered(2, b"late")).await;
            (leader, outcome)
        });
        until("in doubt", Duration::from_millis(2800), || term.is_in_doubt()).await;
        assert!(!standby.is_finished(), "nobody else leads before that");
        until("given up", seconds(8), || term.is_lost()).await;
        let (mut leader, outcome) = timeout(SECOND, late).await.unwrap().unwrap();
        assert!(matches!(outcome, Err(StoreError::Fenced { .. })), "{outcome:?}");
        assert!(matches!(leader.commit(&numbered(3, b"3")).await, Err(StoreError::Unusable { .. })));
        assert!(matches!(leader.confirm().await, Err(StoreError::Unusable { .. })));
        // What it had sent arrives after all, and does nothing.
        (0..MEMBERS).for_each(|member| etcd.gate(0, member).open());
        let mut next = timeout(SECOND, standby).await.unwrap().unwrap().unwrap();
        assert_eq!(load(&mut next).await.unwrap()[&(Table::META, b"revision".to_vec())], 1_u64.to_be_bytes());
    });
}

#[test]
fn standbys_outlive_an_outage_however_long() {
    for outage in [Duration::from_millis(700), seconds(11), seconds(3600)] {
        simulate(async || {
            let etcd = FakeEtcd::start(None);
            let mut leader = lead(&etcd, 0).await;
            let mut standbys = [1, 2].map(|replica| tokio::spawn(stand_by(&etcd, replica)));
            sleep(seconds(2)).await;
            etcd.with(|etcd| etcd.members.iter_mut().for_each(|member| member.down = true));
            etcd.cut(|_, _| true);
            sleep(outage).await;
            assert!(standbys.iter().all(|standby| !standby.is_finished()), "a standby ended");
            etcd.with(|etcd| etcd.members.iter_mut().for_each(|member| member.down = false));
            if outage < SECOND {
                // Too short for anybody to be replaced.
                leader.commit(&numbered(1, b"1")).await.unwrap();
                return;
            }
            assert!(matches!(leader.commit(&numbered(1, b"1")).await, Err(StoreError::Fenced { .. })));
            drop(leader);
            let begun = Instant::now();
            let led = loop {
                assert!(begun.elapsed() < seconds(10), "nobody leads");
                if let Some(one) = standbys.iter_mut().find(|standby| standby.is_finished()) {
                    break one.await.unwrap();
                }
                sleep(Duration::from_millis(10)).await;
            };
            let mut next = led.unwrap();
            load(&mut next).await.unwrap();
            next.commit(&numbered(1, b"1")).await.unwrap();
        });
    }
}

/// A leader writes for a minute while one member does not answer, or has lost sight of the others. An error if that harms anybody.
pub fn writes_beside(member: usize, frozen: bool, mutation: Option<Mutation>) -> Result<(), String> {
    simulate(async || {
        let etcd = FakeEtcd::start(mutation);
        let mut leader = lead(&etcd, 0).await;
        let standbys = [1, 2].map(|replica| tokio::spawn(stand_by(&etcd, replica)));
        sleep(seconds(3)).await;
        if frozen {
            etcd.with(|etcd| etcd.members[member].frozen = true);
            (0..3).for_each(|replica| etcd.gate(replica, member).shut());
        } else {
            etcd.with(|etcd| etcd.part(member, true));
        }
        let (term, mut slow) = (leader.term(), 0);
        for number in 0..200 {
            let begun = Instant::now();
            leader.commit(&numbered(number, b"1")).await.map_err(|error| error.to_string())?;
            slow += u32::from(begun.elapsed() > Duration::from_millis(500));
            // An election of etcd takes a second, and the first call to the member that is gone another.
            if begun.elapsed() > seconds(4) || slow > 3 || term.is_lost() {
                return Err(format!("commit {number} took {:?}, {slow} were slow", begun.elapsed()));
            }
            sleep(Duration::from_millis(300)).await;
        }
        match standbys.iter().any(|standby| standby.is_finished()) {
            true => Err("a standby ended, or took over".to_owned()),
            false => Ok(()),
        }
    })
}

#[test]
fn a_member_that_hangs_or_lags_costs_one_wait_and_nobody_its_place() {
    for (member, frozen) in [(0, true), (1, true), (2, true), (0, false), (1, false)] {
        writes_beside(member, frozen, None).unwrap_or_else(|what| panic!("member {member}, {frozen}: {what}"));
    }
}

#[test]
fn without_space_the_leader_stays_and_goes_on_when_there_is_some() {
    simulate(async || {
        let etcd = FakeEtcd::start(None);
        let mut leader = lead(&etcd, 0).await;
        let standby = tokio::spawn(stand_by(&etcd, 1));
        let (space, term) = (leader.space(), leader.term());
        leader.commit(&numbered(1, b"1")).await.unwrap();
        etcd.with(|etcd| etcd.alarm = true);
        // Found out without a write, too.
        until("full", seconds(6), || space.is_full() && space.is_low()).await;
        let commit = tokio::spawn(async move {
            let outcome = leader.commit(&numbered(2, b"2")).await;
            (leader, outcome)
        });
        sleep(seconds(600)).await;
        assert!(!commit.is_finished() && !term.is_in_doubt(), "it waits, and leads");
        assert!(!standby.is_finished());
        etcd.with(|etcd| etcd.alarm = false);
        let (leader, outcome) = timeout(SECOND, commit).await.unwrap().unwrap();
        outcome.unwrap();
        until("room", seconds(6), || !space.is_low()).await;
        leader.close().await;
        let mut next = timeout(seconds(2), standby).await.unwrap().unwrap().unwrap();
        assert_eq!(load(&mut next).await.unwrap()[&(Table::META, b"revision".to_vec())], 2_u64.to_be_bytes());
    });
}

#[test]
fn growth_is_known_to_be_too_much_before_etcd_is_full() {
    simulate(async || {
        let etcd = FakeEtcd::start(None);
        etcd.with(|etcd| etcd.quota = 16 << 20);
        let mut leader = lead(&etcd, 0).await;
        let (space, value) = (leader.space(), noise(20_000));
        let mut rows = 0_u32;
        while !space.is_low() {
            leader.commit(&one_row(&rows.to_be_bytes(), &value)).await.unwrap();
            rows += 1;
            assert!(rows < 1000 && !etcd.see(|etcd| etcd.alarm));
        }
        assert!(rows > 500, "{rows}: too early");
        for row in 0..rows {
            let mut batch = Batch::new();
            batch.delete(Table::OBJECTS, &row.to_be_bytes());
            leader.commit(&batch).await.unwrap();
        }
        assert!(!etcd.see(|etcd| etcd.alarm), "there was room for deletions");
        sleep(seconds(10)).await;
        assert!(space.is_low(), "the file is as large as before");
        etcd.with(|etcd| etcd.defragment());
        until("room", seconds(6), || !space.is_low()).await;
    });
}

/// Ten objects, updated thousands of times: how many versions of them are kept at the most, under pressure and without. An error
/// if etcd fills up.
pub fn keeps(mutation: Option<Mutation>) -> Result<[usize; 2], String> {
    let work = async |quota: u64, updates: u64, bytes: usize, pause: Duration| {
        let etcd = FakeEtcd::start(mutation);
        etcd.with(|etcd| etcd.quota = quota);
        let (mut leader, value, mut most) = (lead(&etcd, 0).await, noise(bytes), 0);
        for number in 0..updates {
            match timeout(seconds(60), leader.commit(&numbered(number, &value))).await {
                Ok(outcome) => outcome.map_err(|error| error.to_string())?,
                Err(_) => return Err(format!("etcd is full after {number} updates")),
            }
            most = most.max(etcd.see(|etcd| etcd.history.versions()));
            sleep(pause).await;
        }
        Ok(most)
    };
    simulate(async || {
        let pressed = work(16 << 20, 4000, 27_000, Duration::from_millis(5)).await?;
        let idle = work(1 << 40, 4000, 100, seconds(1)).await?;
        Ok([pressed, idle])
    })
}

#[test]
fn history_stays_short_over_thousands_of_updates() {
    let [pressed, idle] = keeps(None).unwrap();
    // A quarter of the quota, and what comes until the next look; each update is of three keys.
    assert!(pressed < 3000, "{pressed}");
    // Ten minutes at most: five are kept, and five go by until the next time.
    assert!(idle < 3 * 620, "{idle}");
}

#[test]
fn that_etcd_was_restored_is_seen_though_its_members_do_not_answer_at_once() {
    for failures in [0, 5, 20] {
        simulate(async || {
            let etcd = FakeEtcd::start(None);
            let mut leader = lead(&etcd, 0).await;
            assert!(!leader.rewound());
            for number in 0..20 {
                leader.commit(&numbered(number, b"1")).await.unwrap();
            }
            leader.close().await;
            etcd.with(|etcd| {
                let saved = etcd.save();
                etcd.restore(saved);
            });
            for _ in 0..failures {
                let trouble = Trouble::Says { status: Status::unavailable("etcdserver: no leader"), done: false };
                etcd.arm(Armed { method: "Status", replica: None, after: 0, trouble });
            }
            let leader = lead(&etcd, 1).await;
            assert!(leader.rewound(), "after {failures} failures");
        });
    }
}

/// Others use the same etcd, and compact it as they like.
#[test]
fn a_load_goes_on_when_its_revision_is_compacted_away() {
    simulate(async || {
        let etcd = FakeEtcd::start(None);
        let mut leader = lead(&etcd, 0).await;
        let mut batch = Batch::new();
        (0..2000_u32).for_each(|row| batch.put(Table::OBJECTS, &row.to_be_bytes(), b"1"));
        leader.commit(&batch).await.unwrap();
        leader.close().await;
        let mut next = stand_by(&etcd, 1).await.unwrap();
        // Everything after the first pages takes its time, in which others write and compact.
        let loading = tokio::task::spawn_local(async move {
            let rows = load(&mut next).await;
            (next, rows)
        });
        let mut others = tokio::spawn({
            let etcd = etcd.clone();
            async move {
                loop {
                    let trouble = Trouble::Late(SECOND / 2);
                    etcd.arm(Armed { method: "Range", replica: Some(1), after: 0, trouble });
                    etcd.with(|etcd| etcd.write_of_others(8));
                    etcd.with(|etcd| etcd.compact_all());
                    sleep(SECOND / 10).await;
                }
            }
        });
        let (mut next, rows) = tokio::select! {
            loaded = loading => loaded.unwrap(),
            _never = &mut others => unreachable!(),
        };
        others.abort();
        etcd.disarm();
        assert_eq!(rows.unwrap().len(), 2000);
        next.commit(&numbered(1, b"1")).await.unwrap();
    });
}

#[test]
fn tokens_that_are_withdrawn_are_replaced() {
    simulate(async || {
        let etcd = FakeEtcd::start(None);
        etcd.with(|etcd| etcd.authentication = true);
        let config = |password: &str| {
            let credentials = Credentials { user: USER.0.to_owned(), password: password.to_owned() };
            Config { credentials: Some(credentials), ..World::config(0, false) }
        };
        let mut leader = Leader::lead(config(USER.1), etcd.outside(0, LIFE, 0)).await.unwrap();
        load(&mut leader).await.unwrap();
        for number in 0..30 {
            etcd.with(|etcd| etcd.withdraw_tokens());
            leader.commit(&numbered(number, b"1")).await.unwrap();
            sleep(SECOND).await;
            assert!(!leader.term().is_in_doubt());
        }
        let wrong = Leader::lead(config("wrong"), etcd.outside(1, LIFE + 1, 0)).await.err().unwrap();
        assert!(wrong.to_string().contains("invalid user ID or password"), "{wrong}");
    });
}
