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
async fn however_long_users_hold_what_they_have_there_is_a_seat_for_another() {
    let in_flight = InFlight::new(Limits { writes: 64, wait: Duration::from_millis(1), ..limits() });
    let mut held = Vec::new();
    let mut had = Vec::new();
    // Each takes what it can get and gives nothing back, as with a body that never comes.
    for greedy in ["one", "two", "three"] {
        let before = held.len();
        while let Ok(seat) = in_flight.seat(&person(greedy), Work::Write).await {
            held.push(seat);
        }
        had.push(held.len() - before);
    }
    assert_eq!(had, [48, 8, 4], "all but a quarter, then half of what is left");
    let modest = in_flight.seat(&person("modest"), Work::Write).await;
    assert!(modest.is_ok());
    // Whoever waits is served as soon as it may have more, though not in the place of those who have less.
    let two = person("two");
    let mut waiting = std::pin::pin!(in_flight.seat(&two, Work::Write));
    assert!((&mut waiting).now_or_never().is_none());
    held.truncate(40);
    assert!(waiting.await.is_ok());
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
    let others = [in_flight.watch(&two).expect("a watch"), in_flight.watch(&two).expect("a watch")];
    assert!(in_flight.watch(&person("three")).is_err(), "four in all");
    let owners: Vec<_> = (0..10).map(|_| in_flight.watch(&owner).expect("the owner always sees")).collect();
    drop(others);
    assert!(in_flight.watch(&person("three")).is_ok(), "the owner's are not counted");
    drop(owners);
}

#[tokio::test]
async fn service_accounts_of_a_namespace_have_one_share_together() {
    let account = |namespace: &str, at: usize| Identity::service_account(namespace, &format!("sa-{at}"), "u");
    let in_flight = InFlight::new(Limits {
        watches_per_user: 3,
        queue_per_user: 3,
        writes: 1,
        answer_bytes: 8 * 1024,
        body_bytes: 8 * 1024 * 1024,
        ..limits()
    });
    let _watches: Vec<_> = (0..3).map(|at| in_flight.watch(&account("a", at)).expect("a watch")).collect();
    assert!(in_flight.watch(&account("a", 3)).is_err(), "however many accounts there are");
    assert!(in_flight.watch(&account("b", 0)).is_ok());

    let _held = in_flight.seat(&person("holder"), Work::Write).await.expect("a seat");
    let accounts: Vec<_> = (0..4).map(|at| account("a", at)).collect();
    let mut queued: Vec<_> = accounts.iter().map(|one| in_flight.seat(one, Work::Write).boxed_local()).collect();
    let refused = queued.iter_mut().filter_map(|seat| seat.now_or_never()).filter(Result::is_err).count();
    assert_eq!(refused, 1, "three of the namespace wait, the fourth is refused");

    let _answer = in_flight.answer(&account("a", 0), 1024).await.expect("room");
    assert!(in_flight.piece(&account("a", 1), 1).is_err(), "the namespace's part is used up");
    assert!(in_flight.piece(&account("b", 0), 1).is_ok());
    assert!(in_flight.piece(&Identity::internal("test"), 2 * 1024).is_ok(), "the owner has a part of its own");
    let _body = in_flight.body(&account("a", 0), 1024 * 1024).await.expect("room");
    assert!(in_flight.body(&account("a", 1), 1024 * 1024).now_or_never().is_none(), "waits for its own namespace");
    assert!(in_flight.body(&account("b", 1), 1024 * 1024).await.is_ok());
    assert!(matches!(in_flight.body(&account("a", 1), 100).await, Ok(None)), "small ones always fit");
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
