//! Seats in flight: bounded, and shared in turn.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::stream::{FuturesUnordered, StreamExt};
use server::identity::Identity;
use server::inflight::{InFlight, Limits, TooMany, Work};

fn limits() -> Limits {
    Limits { reads: 2, writes: 1, queue_per_user: 100, queue: 1_000, ..Limits::default() }
}

fn person(user: &str) -> Identity {
    Identity::authenticated(user, [""; 0])
}

#[tokio::test]
async fn one_users_flood_delays_another_by_one_round() {
    let in_flight = Arc::new(InFlight::new(Limits { writes: 1, ..limits() }));
    let holder = in_flight.seat(&person("holder"), Work::Write).await.expect("a seat");
    let (flood, modest) = (person("flood"), person("modest"));
    let mut waiting = FuturesUnordered::new();
    for at in 0..50 {
        waiting.push(in_flight.seat(&flood, Work::Write).map(move |seat| ("flood", at, seat)).boxed_local());
    }
    // Every waiter stands in the queue once it was polled.
    assert!(waiting.next().now_or_never().is_none());
    for at in 0..3 {
        waiting.push(in_flight.seat(&modest, Work::Write).map(move |seat| ("modest", at, seat)).boxed_local());
    }
    assert!(waiting.next().now_or_never().is_none());
    drop(holder);
    let mut order = Vec::new();
    while let Some((user, at, seat)) = waiting.next().await {
        order.push((user, at));
        drop(seat.expect("a seat"));
    }
    assert_eq!(order.len(), 53);
    let third = order.iter().position(|entry| *entry == ("modest", 2)).expect("served");
    assert!(third <= 6, "the third modest request came {third}th: {order:?}");
    let floods: Vec<i32> = order.iter().filter(|(user, _)| *user == "flood").map(|(_, at)| *at).collect();
    assert!(floods.is_sorted(), "one user's requests keep their order");
}

#[tokio::test]
async fn queues_are_bounded_per_user_and_in_all() {
    let in_flight = InFlight::new(Limits { writes: 1, queue_per_user: 2, queue: 3, ..limits() });
    let _holder = in_flight.seat(&person("holder"), Work::Write).await.expect("a seat");
    let (one, two, three) = (person("one"), person("two"), person("three"));
    let mut queued = Vec::new();
    let mut ask = |who: &'static str, identity| {
        let mut future = in_flight.seat(identity, Work::Write).boxed_local();
        let refused = matches!((&mut future).now_or_never(), Some(Err(TooMany)));
        queued.push(future);
        (who, refused)
    };
    assert_eq!(ask("one", &one), ("one", false));
    assert_eq!(ask("one", &one), ("one", false));
    assert!(ask("one's own queue is full", &one).1);
    assert_eq!(ask("two", &two), ("two", false));
    assert!(ask("all queues are full", &three).1);
    // Who leaves the queue makes room.
    drop(queued.remove(0));
    let mut future = in_flight.seat(&three, Work::Write).boxed_local();
    assert!((&mut future).now_or_never().is_none());
}

#[tokio::test]
async fn waiting_ends() {
    let in_flight = InFlight::new(Limits { wait: Duration::from_millis(5), ..limits() });
    let holder = in_flight.seat(&person("holder"), Work::Write).await.expect("a seat");
    assert!(in_flight.seat(&person("late"), Work::Write).await.is_err());
    drop(holder);
    assert!(in_flight.seat(&person("late"), Work::Write).await.is_ok());
}

#[tokio::test]
async fn reads_writes_and_the_owner_do_not_wait_for_each_other() {
    let in_flight = InFlight::new(limits());
    let held = in_flight.seat(&person("w"), Work::Write).await.expect("a seat");
    let reads = [in_flight.seat(&person("r"), Work::Read).await, in_flight.seat(&person("r"), Work::Read).await];
    assert!(reads.iter().all(Result::is_ok));
    let owner = Identity::internal("test");
    assert!(matches!(in_flight.seat(&owner, Work::Write).await, Ok(None)));
    drop(held);
}

#[tokio::test]
async fn watches_are_counted_per_user() {
    let in_flight = InFlight::new(Limits { watches_per_user: 2, watches: 4, ..limits() });
    let (one, two, owner) = (person("one"), person("two"), Identity::internal("test"));
    let first = in_flight.watch(&one).expect("a watch");
    let _second = in_flight.watch(&one).expect("a watch");
    assert!(in_flight.watch(&one).is_err());
    drop(first);
    let _again = in_flight.watch(&one).expect("a watch");
    let _owners = [in_flight.watch(&owner).expect("a watch"), in_flight.watch(&owner).expect("a watch")];
    assert!(in_flight.watch(&two).is_err(), "four in all");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn seats_are_neither_lost_nor_made_up() {
    let in_flight = Arc::new(InFlight::new(Limits { writes: 3, wait: Duration::from_secs(60), ..limits() }));
    let running = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let mut tasks = tokio::task::JoinSet::new();
    for at in 0..400 {
        let (in_flight, running) = (Arc::clone(&in_flight), Arc::clone(&running));
        tasks.spawn(async move {
            let who = person(&format!("user-{}", at % 7));
            let work = in_flight.seat(&who, Work::Write);
            // Every fifth client gives up, at whatever point it has reached.
            if at % 5 == 0 {
                let _ = tokio::time::timeout(Duration::from_micros(at), work).await;
                return;
            }
            let Ok(seat) = work.await else { return };
            let now = running.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            assert!(now < 3);
            tokio::task::yield_now().await;
            running.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
            drop(seat);
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.expect("no panic");
    }
    // All three are free again.
    let held: Vec<_> =
        futures::future::join_all((0..3).map(|_| async { in_flight.seat(&person("x"), Work::Write).await })).await;
    assert!(held.iter().all(Result::is_ok));
}
