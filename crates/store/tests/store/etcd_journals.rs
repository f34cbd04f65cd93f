//! Journals in a real etcd.

use std::time::{Duration, Instant};

use store::etcd::messages::RangeRequest;
use store::{Batch, Journal, Journals, PageLimit, Retention, Store, StoreError, Table};

use crate::etcd::{Etcd, get, put};
use crate::journals::{JOURNALS, Model, check_ranges, random_entries, read_all};
use crate::scripted::{Line, Scripted};
use crate::{Numbers, Rows, apply, one_row};

fn appended(journal: Journal, values: &[&[u8]]) -> Batch {
    let mut batch = Batch::new();
    values.iter().for_each(|value| batch.append(journal, 0, value));
    batch
}

/// Retiring goes on beside everything else.
fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < Duration::from_secs(60), "it never {what}");
        std::thread::yield_now();
    }
}

fn starts_at(journals: &Journals, journal: Journal, start: u64) {
    until("retired", || journals.span(journal).unwrap().start >= start);
    assert_eq!(journals.span(journal).unwrap().start, start);
}

#[test]
fn what_was_appended_is_read_back_by_every_leader_until_it_is_retired() {
    let etcd = Etcd::start();
    let (mut numbers, mut clock_ms) = (Numbers(60), 1_000_000);
    let (mut model, mut rows) = (Model::default(), Rows::new());
    for leader in 0..4 {
        let (mut store, loaded) = etcd.lead(&leader.to_string());
        assert!(loaded == rows, "only rows are loaded");
        let journals = store.journals();
        model.check_all(&journals);
        for _ in 0..25 {
            let batch = random_entries(&mut numbers, &mut clock_ms);
            store.commit(&batch).unwrap();
            apply(&mut rows, &batch);
            model.take(&batch);
            check_ranges(&model, &journals, &mut numbers, clock_ms);
        }
        // More than one transaction takes, by number and by length.
        let mut large = one_row(b"large", &[1; 100]);
        for index in 0..400_u32 {
            large.append(JOURNALS[(index % 3) as usize], clock_ms, &index.to_be_bytes().repeat(1000));
        }
        store.commit(&large).unwrap();
        apply(&mut rows, &large);
        model.take(&large);
        model.check_all(&journals);
        check_ranges(&model, &journals, &mut numbers, clock_ms);
        if leader == 2 {
            let left = model.of(Journal::AUDIT).iter().find(|entry| entry.at_ms >= clock_ms - 100).unwrap().sequence;
            journals.retain(Journal::AUDIT, Retention { age_ms: Some(100), bytes: None, stays_from: None });
            journals.retire(clock_ms);
            starts_at(&journals, Journal::AUDIT, left);
            check_ranges(&model, &journals, &mut numbers, clock_ms);
        }
        Box::new(store).close().unwrap();
    }
    assert!(model.len() > 1600);
}

#[test]
fn entries_are_retired_by_size_and_their_numbers_are_not_given_again() {
    let etcd = Etcd::start();
    let (mut store, _) = etcd.lead("a");
    let journals = store.journals();
    // More than one transaction retires.
    for _ in 0..30 {
        store.commit(&appended(Journal::AUDIT, &[[1; 68].as_slice(); 100])).unwrap();
    }
    assert!((200_000..400_000).contains(&journals.bytes(Journal::AUDIT).unwrap()));
    journals.retain(Journal::AUDIT, Retention { age_ms: None, bytes: Some(1000), stays_from: Some(1234) });
    journals.retire(0);
    starts_at(&journals, Journal::AUDIT, 1234);
    journals.retain(Journal::AUDIT, Retention { age_ms: None, bytes: Some(1000), stays_from: None });
    journals.retire(0);
    starts_at(&journals, Journal::AUDIT, 2991);
    assert!(journals.bytes(Journal::AUDIT).unwrap() <= 1000);
    assert_eq!(read_all(&journals, Journal::AUDIT, PageLimit::default()).len(), 10);
    let page = journals.backward(Journal::AUDIT, 2995, PageLimit::default()).unwrap();
    assert_eq!((page.entries.len(), page.entries[3].sequence), (4, 2991));
    journals.retain(Journal::AUDIT, Retention { age_ms: Some(0), bytes: None, stays_from: None });
    journals.retire(1);
    starts_at(&journals, Journal::AUDIT, 3001);
    assert_eq!(journals.backward(Journal::AUDIT, u64::MAX, PageLimit::default()).unwrap().entries, []);
    assert_eq!(journals.since(Journal::AUDIT, 0).unwrap(), 3001);
    Box::new(store).close().unwrap();
    let (mut store, _) = etcd.lead("b");
    assert_eq!(store.journals().span(Journal::AUDIT).unwrap(), 3001..3001);
    store.commit(&appended(Journal::AUDIT, &[b"next"])).unwrap();
    assert_eq!(store.journals().span(Journal::AUDIT).unwrap(), 3001..3002);
}

/// A start asks for the rows and for the counters, and for nothing that was appended.
#[test]
fn a_start_does_not_read_what_was_appended() {
    let etcd = Etcd::start();
    let (mut store, _) = etcd.lead("a");
    for _ in 0..50 {
        store.commit(&appended(Journal::AUDIT, &[[7; 5000].as_slice(); 20])).unwrap();
    }
    store.commit(&one_row(b"a", b"1")).unwrap();
    Box::new(store).close().unwrap();
    // Whoever read them would find that they cannot be read.
    etcd.talk(async |client| {
        let (key, range_end) = (b"/bursar/test/journals/".to_vec(), b"/bursar/test/journals0".to_vec());
        let found = client.range(RangeRequest { key, range_end, keys_only: true, ..RangeRequest::default() }).await;
        let found = found.unwrap().kvs;
        assert_eq!(found.len(), 1000);
        for entry in found {
            let name = String::from_utf8(entry.key).unwrap();
            put(&client, &[(name.strip_prefix("/bursar/test/").unwrap(), b"?")]).await;
        }
    });
    let (store, rows) = etcd.lead("b");
    assert_eq!(rows.len(), 1);
    let error = store.journals().forward(Journal::AUDIT, 5, PageLimit::default()).unwrap_err();
    assert!(matches!(error, StoreError::Corrupt { .. }), "{error}");
}

#[test]
fn a_replaced_leader_appends_nothing_and_retires_nothing() {
    let etcd = Etcd::start();
    let (mut first, _) = etcd.lead("first");
    first.commit(&appended(Journal::AUDIT, &[b"1", b"2"])).unwrap();
    etcd.talk(async |client| {
        let leader = get(&client, "leader").await.unwrap();
        client.lease_revoke(leader.lease).await.unwrap();
    });
    let (mut second, _) = etcd.lead("second");
    let mut batch = one_row(b"a", b"from the grave");
    batch.append(Journal::AUDIT, 0, b"from the grave");
    assert!(matches!(first.commit(&batch), Err(StoreError::Fenced { .. })));
    let old = first.journals();
    old.retain(Journal::AUDIT, Retention { age_ms: None, bytes: Some(0), stays_from: None });
    old.retire(0);
    second.commit(&appended(Journal::AUDIT, &[b"3"])).unwrap();
    let journals = second.journals();
    // The old one asks on, by the same connection, for longer than its retiring takes.
    for _ in 0..100 {
        assert_eq!(old.span(Journal::AUDIT).unwrap(), 1..4);
    }
    let values: Vec<_> =
        read_all(&journals, Journal::AUDIT, PageLimit::default()).into_iter().map(|entry| entry.value).collect();
    assert_eq!(values, [b"1", b"2", b"3"]);
}

#[test]
fn a_commit_whose_answer_was_lost_appends_once() {
    let etcd = Etcd::start();
    let between = Scripted::before(etcd.client_port);
    let mut config = etcd.config("a");
    config.endpoints = vec![format!("http://127.0.0.1:{}", between.port)];
    let mut store = store::EtcdStore::lead(config).unwrap();
    crate::load(&mut store).unwrap();
    for round in 1..=5_u64 {
        between.say(&[Line { method: "Txn", code: 14, says: "lost", done: round % 2 == 0 }]);
        store.commit(&appended(Journal::AUDIT, &[&round.to_be_bytes()])).unwrap();
        assert_eq!(between.left(), 0);
        let all = read_all(&store.journals(), Journal::AUDIT, PageLimit::default());
        assert!(all.iter().zip(1_u64..).all(|(entry, n)| entry.sequence == n && entry.value == n.to_be_bytes()));
        assert_eq!(all.len() as u64, round);
    }
}

#[test]
fn numbers_of_a_restored_etcd_go_on_above_those_that_were_given() {
    let etcd = Etcd::start();
    let (mut store, _) = etcd.lead("a");
    let mut numbers = Batch::new();
    numbers.put(Table::META, b"revision", b"7");
    store.commit(&numbers).unwrap();
    store.commit(&appended(Journal::AUDIT, &[b"1", b"2"])).unwrap();
    Box::new(store).close().unwrap();
    etcd.talk(async |client| put(&client, &[("lead", &(-1_000_000_i64).to_be_bytes())]).await);
    let (mut store, _) = etcd.lead("b");
    assert!(store.rewound());
    store.commit(&numbers).unwrap();
    store.commit(&appended(Journal::AUDIT, &[b"3"])).unwrap();
    Box::new(store).close().unwrap();
    let (mut store, _) = etcd.lead("c");
    assert!(!store.rewound());
    store.commit(&appended(Journal::AUDIT, &[b"4"])).unwrap();
    // And of a journal that had none.
    store.commit(&appended(Journal::EVENTS, &[b"first"])).unwrap();
    let journals = store.journals();
    assert!(journals.span(Journal::EVENTS).unwrap().start > 1_000_000_000);
    let all = read_all(&journals, Journal::AUDIT, PageLimit { entries: 1, bytes: 9 });
    assert_eq!(all.iter().map(|entry| entry.value.as_slice()).collect::<Vec<_>>(), [b"1", b"2", b"3", b"4"]);
    assert!(all[2].sequence > 1_000_000_000 && all[3].sequence == all[2].sequence + 1);
    // Over the gap, from behind it, from its end, and from the middle of it.
    for (before, expected) in [(u64::MAX, 4), (all[3].sequence, 3), (all[2].sequence, 2), (500_000, 2), (2, 1), (1, 0)]
    {
        let page = journals.backward(Journal::AUDIT, before, PageLimit::default()).unwrap();
        let mut left = all[..expected].to_vec();
        left.reverse();
        assert_eq!(page.entries, left, "before {before}");
    }
    assert_eq!(journals.since(Journal::AUDIT, 0).unwrap(), 1);
    assert_eq!(journals.since(Journal::AUDIT, 1).unwrap(), all[3].sequence + 1);
}
