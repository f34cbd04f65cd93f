//! What a submitter, a reader and an operator may rely on.

use std::sync::mpsc as std_mpsc;
use std::sync::{Arc, Mutex};
use std::task::Poll;

use sequencer::core::{Core, commit};
use sequencer::{Engine, Failure, Limits, Overloaded, Stopped, SubmitError, start};
use store::{Batch, MemoryStore, SharedMemory, Store, StoreError, Table, Visit};

/// A counter. Adding zero writes nothing; adding 999 is a bug.
#[derive(Default)]
struct Counter {
    total: u64,
    groups: u64,
}

const BUG: u64 = 999;

impl Engine for Counter {
    type Command = u64;
    type Answer = u64;
    type Publication = Vec<u64>;

    fn step(&mut self, amount: u64, batch: &mut Batch, publication: &mut Vec<u64>) -> u64 {
        assert_ne!(amount, BUG, "cannot add {BUG}");
        self.total += amount;
        if amount > 0 {
            batch.put(Table::OBJECTS, &self.total.to_be_bytes(), &[0; 100]);
            publication.push(self.total);
        }
        self.total
    }

    fn seal(&mut self, batch: &mut Batch, _publication: &mut Vec<u64>) {
        self.groups += 1;
        if !batch.is_empty() {
            batch.put(Table::META, b"total", &self.total.to_be_bytes());
        }
    }
}

/// A store whose commits wait for permission and end as they are told.
struct Gate {
    entered: std_mpsc::Sender<usize>,
    verdicts: std_mpsc::Receiver<bool>,
    group_rows: usize,
}

impl Store for Gate {
    fn load(&mut self, _visit: &mut Visit<'_>) -> Result<(), StoreError> {
        Ok(())
    }

    fn commit(&mut self, batch: &Batch) -> Result<(), StoreError> {
        self.entered.send(batch.len()).unwrap();
        match self.verdicts.recv() {
            Ok(true) => Ok(()),
            _ => Err(StoreError::Full { place: "gate".to_owned() }),
        }
    }

    fn group_rows(&self) -> usize {
        self.group_rows
    }

    fn close(self: Box<Self>) -> Result<(), StoreError> {
        Ok(())
    }
}

fn gate() -> (Box<Gate>, std_mpsc::Receiver<usize>, std_mpsc::Sender<bool>) {
    let (entered, entries) = std_mpsc::channel();
    let (verdict, verdicts) = std_mpsc::channel();
    (Box::new(Gate { entered, verdicts, group_rows: usize::MAX }), entries, verdict)
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().build().unwrap()
}

#[test]
fn many_clients_are_answered_once_each_and_see_their_own_write() {
    let place = SharedMemory::new();
    let visible = Arc::new(Mutex::new(Vec::new()));
    let publish = {
        let visible = visible.clone();
        move |totals: Vec<u64>| visible.lock().unwrap().extend(totals)
    };
    let (handle, running) = start(Counter::default(), Box::new(place.acquire()), publish, Limits::default()).unwrap();
    runtime().block_on(async {
        let mut clients = tokio::task::JoinSet::new();
        for _ in 0..32 {
            let (handle, visible) = (handle.clone(), visible.clone());
            clients.spawn(async move {
                for _ in 0..100 {
                    let total = handle.submit(1).await.unwrap();
                    assert!(visible.lock().unwrap().last().copied() >= Some(total), "answered before it was visible");
                }
            });
        }
        clients.join_all().await;
        running.shutdown().await.unwrap();
        assert_eq!(handle.submit(1).await, Err(Stopped));
    });
    assert_eq!(*visible.lock().unwrap(), (1..=3200).collect::<Vec<u64>>());
    assert_eq!(place.rows().len(), 3201);
    assert!(place.commits() <= 3200);
}

#[test]
fn what_arrives_during_a_write_forms_one_group() {
    let (store, entries, verdict) = gate();
    let (handle, running) = start(Counter::default(), store, drop, Limits::default()).unwrap();
    let runtime = runtime();
    let mut first = submission(&runtime, &handle);
    assert_eq!(entries.recv().unwrap(), 2, "one row and the total");
    let waiting: Vec<_> = (0..4).map(|_| submission(&runtime, &handle)).collect();
    assert!(runtime.block_on(poll_once(first.as_mut())).is_pending(), "nothing is answered before it is durable");
    verdict.send(true).unwrap();
    assert_eq!(entries.recv().unwrap(), 5, "four rows and the total");
    verdict.send(true).unwrap();
    assert_eq!(runtime.block_on(first), Ok(1));
    for (submission, expected) in waiting.into_iter().zip(2..) {
        assert_eq!(runtime.block_on(submission), Ok(expected));
    }
    running.stop_blocking();
    running.join().unwrap();
}

type Submission = std::pin::Pin<Box<dyn Future<Output = Result<u64, Stopped>>>>;

/// A command that has its place in the queue.
fn submission(runtime: &tokio::runtime::Runtime, handle: &sequencer::Handle<u64, u64>) -> Submission {
    let handle = handle.clone();
    let mut submission: Submission = Box::pin(async move { handle.submit(1).await });
    assert!(runtime.block_on(poll_once(submission.as_mut())).is_pending());
    submission
}

#[test]
fn a_full_queue_refuses_or_waits() {
    let (store, entries, verdict) = gate();
    let limits = Limits { queue: 1, group_commands: 1, group_bytes: 1, ..Limits::default() };
    let (handle, running) = start(Counter::default(), store, drop, limits).unwrap();
    let runtime = runtime();
    // One command is being written, one is decided and waits for the store, one waits in the queue.
    let mut accepted = vec![submission(&runtime, &handle)];
    entries.recv().unwrap();
    while accepted.len() < 3 {
        if handle.free_places() > 0 {
            accepted.push(submission(&runtime, &handle));
        }
        std::thread::yield_now();
    }
    // The decider takes one of the two when it gets to it, and makes a place; the next one then fills it for good.
    let refused = loop {
        match runtime.block_on(poll_once(handle.try_submit(0))) {
            Poll::Ready(refused) => break refused,
            Poll::Pending => std::thread::yield_now(),
        }
    };
    assert_eq!(refused, Err(SubmitError::Overloaded(Overloaded)));
    for _ in 0..16 {
        // More verdicts than there are groups; the store may be gone before the last.
        let _closed = verdict.send(true);
    }
    for submission in accepted {
        runtime.block_on(submission).unwrap();
    }
    running.stop_blocking();
    running.join().unwrap();
}

/// Polls once and gives the future up.
async fn poll_once<F: Future>(future: F) -> Poll<F::Output> {
    let mut future = std::pin::pin!(future);
    std::future::poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await
}

#[test]
fn nothing_is_answered_after_a_failed_commit() {
    let (store, entries, verdict) = gate();
    let (handle, running) = start(Counter::default(), store, drop, Limits::default()).unwrap();
    let clients: Vec<_> = (0..8)
        .map(|_| {
            let handle = handle.clone();
            std::thread::spawn(move || handle.submit_blocking(1))
        })
        .collect();
    entries.recv().unwrap();
    verdict.send(false).unwrap();
    runtime().block_on(running.ended());
    for client in clients {
        assert_eq!(client.join().unwrap(), Err(Stopped));
    }
    assert_eq!(handle.submit_blocking(0), Err(Stopped));
    assert!(matches!(running.join(), Err(Failure::Store(StoreError::Full { .. }))));
}

#[test]
fn a_failure_is_noticed_while_nobody_submits() {
    let (store, entries, verdict) = gate();
    let (handle, running) = start(Counter::default(), store, drop, Limits::default()).unwrap();
    let client = std::thread::spawn(move || handle.submit_blocking(1));
    entries.recv().unwrap();
    verdict.send(false).unwrap();
    assert_eq!(client.join().unwrap(), Err(Stopped));
    runtime().block_on(running.ended());
    assert!(running.join().is_err());
}

#[test]
fn a_bug_in_the_engine_stops_everything() {
    let place = SharedMemory::new();
    let (handle, running) = start(Counter::default(), Box::new(place.acquire()), drop, Limits::default()).unwrap();
    assert_eq!(handle.submit_blocking(1), Ok(1));
    assert_eq!(handle.submit_blocking(BUG), Err(Stopped));
    runtime().block_on(running.ended());
    assert_eq!(handle.submit_blocking(1), Err(Stopped));
    match running.join() {
        Err(Failure::Bug(text)) => assert!(text.contains("cannot add 999"), "{text}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(place.rows().len(), 2);
}

#[test]
fn accepted_commands_are_finished_by_a_shutdown() {
    let (store, entries, verdict) = gate();
    let limits = Limits { group_commands: 2, ..Limits::default() };
    let (handle, running) = start(Counter::default(), store, drop, limits).unwrap();
    let first = std::thread::spawn({
        let handle = handle.clone();
        move || handle.submit_blocking(1)
    });
    entries.recv().unwrap();
    let runtime = runtime();
    let accepted: Vec<_> = (0..7).map(|_| submission(&runtime, &handle)).collect();
    running.stop_blocking();
    for _ in 0..16 {
        // More verdicts than there are groups; the store may be gone before the last.
        let _closed = verdict.send(true);
    }
    assert_eq!(first.join().unwrap(), Ok(1));
    for (submission, expected) in accepted.into_iter().zip(2..) {
        assert_eq!(runtime.block_on(submission), Ok(expected));
    }
    running.join().unwrap();
}

#[test]
fn a_store_is_given_no_more_rows_at_once_than_it_asks_for() {
    let (mut store, entries, verdict) = gate();
    store.group_rows = 3;
    let (handle, running) = start(Counter::default(), store, drop, Limits::default()).unwrap();
    let first = std::thread::spawn({
        let handle = handle.clone();
        move || handle.submit_blocking(1)
    });
    assert_eq!(entries.recv().unwrap(), 2, "its own row, and the one that closes a group");
    let runtime = runtime();
    let waiting: Vec<_> = (0..7).map(|_| submission(&runtime, &handle)).collect();
    for _ in 0..16 {
        verdict.send(true).unwrap();
    }
    assert_eq!(first.join().unwrap(), Ok(1));
    for submission in waiting {
        runtime.block_on(submission).unwrap();
    }
    drop(handle);
    running.join().unwrap();
    let groups: Vec<usize> = entries.try_iter().collect();
    assert_eq!(groups.iter().map(|rows| rows - 1).sum::<usize>(), 7);
    assert!(groups.iter().all(|&rows| rows <= 4), "{groups:?}");
}

#[test]
fn commands_without_rows_cost_no_commit() {
    let place = SharedMemory::new();
    let (handle, running) = start(Counter::default(), Box::new(place.acquire()), drop, Limits::default()).unwrap();
    for _ in 0..10 {
        assert_eq!(handle.submit_blocking(0), Ok(0));
    }
    assert_eq!(place.commits(), 0);
    drop(handle);
    running.join().unwrap();
}

#[test]
fn an_empty_group_still_waits_its_turn() {
    let (store, entries, verdict) = gate();
    let (handle, running) = start(Counter::default(), store, drop, Limits::default()).unwrap();
    let writes = std::thread::spawn({
        let handle = handle.clone();
        move || handle.submit_blocking(5)
    });
    entries.recv().unwrap();
    let reads = std::thread::spawn({
        let handle = handle.clone();
        move || handle.submit_blocking(0)
    });
    verdict.send(false).unwrap();
    // The read rests on a write that never became durable, so it must not be answered.
    assert_eq!(reads.join().unwrap(), Err(Stopped));
    assert_eq!(writes.join().unwrap(), Err(Stopped));
    assert!(running.join().is_err());
}

#[test]
fn dropping_every_handle_ends_it() {
    let (handle, running) = start(Counter::default(), Box::new(MemoryStore::new()), drop, Limits::default()).unwrap();
    assert_eq!(handle.submit_blocking(3), Ok(3));
    drop(handle);
    running.join().unwrap();
}

#[test]
fn groups_are_bounded_by_commands_and_bytes() {
    let limits = Limits { queue: 1, group_commands: 3, group_bytes: 250, ..Limits::default() };
    let mut core = Core::new(Counter::default(), limits);
    let mut commands = (0..).zip([0, 0, 0, 1, 1, 1, 1]);
    let sizes: Vec<_> = std::iter::from_fn(|| {
        let group = core.decide_group(&mut commands);
        (!group.answers.is_empty()).then_some(group.answers.len())
    })
    .collect();
    assert_eq!(sizes, [3, 3, 1]);
}

#[test]
fn the_core_runs_without_threads() {
    let place = SharedMemory::new();
    let mut store = place.acquire();
    let mut published = Vec::new();
    let mut core = Core::new(Counter::default(), Limits::default());
    let mut group = core.decide_group(&mut [("a", 2), ("b", 3)].into_iter());
    assert!(place.rows().is_empty());
    commit(&mut store, &mut |totals: Vec<u64>| published.extend(totals), &mut group).unwrap();
    assert_eq!(group.answers, [("a", 2), ("b", 5)]);
    assert_eq!(published, [2, 5]);
    assert_eq!(place.commits(), 1);
    // A fenced writer's group is neither published nor answered.
    place.acquire();
    let mut group = core.decide_group(&mut [("c", 1)].into_iter());
    let outcome = commit(&mut store, &mut |_| panic!("not durable"), &mut group);
    assert!(matches!(outcome, Err(StoreError::Fenced { .. })));
}
