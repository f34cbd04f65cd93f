//! The two threads.
//!
//! Both run the same loop, and two locks give them their roles: who holds the engine decides, who holds the store writes. A
//! thread that has decided a group waits for the store *while it still holds the engine*, takes in what arrived meanwhile, and
//! only then lets the engine go and writes. So groups are written in the order they were decided; one group at most is decided
//! ahead; and a lone command is decided and written by one thread without being handed to another, which is what keeps the
//! latency of a single client at one sync and two wake-ups.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use store::{Store, StoreError};
use tokio::sync::{mpsc, oneshot, watch};

use crate::core::{Core, Group, commit};
use crate::handle::{Handle, Message};
use crate::{Engine, Limits};

/// Why a sequencer stopped other than by being asked to. The process must end: what was decided and what is durable may differ.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the engine stopped on a bug: {0}")]
    Bug(String),
}

/// Both ends of a running sequencer.
pub type Started<E> =
    (Handle<<E as Engine>::Command, <E as Engine>::Answer>, Running<<E as Engine>::Command, <E as Engine>::Answer>);

/// Starts the two threads. `publish` is called once a group, in order, after the group is durable and before it is answered.
pub fn start<E: Engine>(
    engine: E,
    store: Box<dyn Store>,
    publish: impl FnMut(E::Publication) + Send + 'static,
    limits: Limits,
) -> io::Result<Started<E>> {
    let limits = Limits { group_rows: limits.group_rows.min(store.group_rows()), ..limits };
    let (queue, receiver) = mpsc::channel(limits.queue.max(1));
    let (ended, ending) = watch::channel(());
    let shared = Arc::new(Shared {
        decider: Mutex::new(Decider { core: Core::new(engine, limits), queue: receiver, ended: false }),
        writer: Mutex::new(Writer { store: Some(store), publish: Box::new(publish), failure: None }),
        nudge: queue.downgrade(),
    });
    let mut threads = Vec::new();
    for name in ["sequencer-1", "sequencer-2"] {
        let (shared, ended) = (shared.clone(), ended.clone());
        let thread = thread::Builder::new().name(name.to_owned()).spawn(move || {
            shared.run();
            drop(ended);
        });
        // A thread that was started before this one failed ends by itself: nobody holds the queue.
        threads.push(thread?);
    }
    let running = Running { queue: queue.clone(), ending, threads, outcome: shared };
    Ok((Handle { queue }, running))
}

/// The running sequencer, in the hands of whoever started it.
pub struct Running<C, A> {
    queue: mpsc::Sender<Message<C, A>>,
    ending: watch::Receiver<()>,
    threads: Vec<JoinHandle<()>>,
    outcome: Arc<dyn Outcome>,
}

impl<C, A> Running<C, A> {
    /// Returns when the sequencer has ended, by a shutdown or by a failure; [`Running::join`] then says which.
    pub async fn ended(&self) {
        // The channel carries no values: it closes when the last thread drops its sender.
        let _closed = self.ending.clone().changed().await;
    }

    /// [`Running::ended`] as a future of its own, for a task that watches over the sequencer.
    pub fn ending(&self) -> impl Future<Output = ()> + Send + use<C, A> {
        let mut ending = self.ending.clone();
        async move {
            let _closed = ending.changed().await;
        }
    }

    /// Takes no further command; those already accepted are still decided, committed and answered.
    pub async fn stop(&self) {
        // A closed queue means that it has ended already.
        let _ended = self.queue.send(Message::Stop).await;
    }

    /// [`Running::stop`] for threads outside an async runtime.
    pub fn stop_blocking(&self) {
        let _ended = self.queue.blocking_send(Message::Stop);
    }

    /// Waits, blocking, until the store is closed, and tells how it went.
    pub fn join(self) -> Result<(), Failure> {
        drop(self.queue);
        for thread in self.threads {
            if thread.join().is_err() {
                return Err(Failure::Bug("a sequencer thread panicked".to_owned()));
            }
        }
        self.outcome.take()
    }

    /// Stops, finishes, closes the store, and tells how it went.
    pub async fn shutdown(self) -> Result<(), Failure> {
        self.stop().await;
        self.ended().await;
        self.join()
    }
}

trait Outcome: Send + Sync {
    fn take(&self) -> Result<(), Failure>;
}

struct Decider<E: Engine> {
    core: Core<E>,
    queue: mpsc::Receiver<Message<E::Command, E::Answer>>,
    /// No further command will come.
    ended: bool,
}

struct Writer<E: Engine> {
    /// Gone once it is closed.
    store: Option<Box<dyn Store>>,
    publish: Box<dyn FnMut(E::Publication) + Send>,
    failure: Option<Failure>,
}

struct Shared<E: Engine> {
    decider: Mutex<Decider<E>>,
    writer: Mutex<Writer<E>>,
    /// For waking a thread that waits for commands when the other one has failed. Weak, so that the queue still closes when
    /// the last handle is gone.
    nudge: mpsc::WeakSender<Message<E::Command, E::Answer>>,
}

type Tagged<E> = Group<E, oneshot::Sender<<E as Engine>::Answer>>;

impl<E: Engine> Shared<E> {
    fn run(&self) {
        let mut group = Tagged::<E>::default();
        loop {
            match catch_unwind(AssertUnwindSafe(|| self.turn(&mut group))) {
                Ok(true) => {}
                Ok(false) => return,
                Err(panic) => {
                    self.fail(Failure::Bug(panic_text(panic.as_ref())));
                    return;
                }
            }
            // Both locks are free again: the other thread already writes the next group while these are being woken.
            for (sender, answer) in group.answers.drain(..) {
                // Whoever asked may have gone; what was decided stays decided.
                let _gone = sender.send(answer);
            }
        }
    }

    /// Decides and writes one group, whose answers may then be given. `false`: there will be no more.
    fn turn(&self, group: &mut Tagged<E>) -> bool {
        let mut decider = match self.decider.lock() {
            Ok(decider) => decider,
            // The other thread panicked while it changed the state: nobody may build on that.
            Err(poisoned) => {
                poisoned.into_inner().end();
                return false;
            }
        };
        if decider.ended {
            return false;
        }
        match decider.queue.blocking_recv() {
            Some(message) => decider.take(message, group),
            None => decider.ended = true,
        }
        decider.drain(group);
        let Ok(mut writer) = self.writer.lock() else {
            decider.end();
            return false;
        };
        if writer.failure.is_some() {
            decider.end();
            return false;
        }
        // What arrived while the store was busy still goes with this group.
        decider.drain(group);
        decider.core.seal(group);
        let last = decider.ended;
        drop(decider);
        if let Err(error) = writer.write(group) {
            // Under the same lock: the group that waits for the store must find the failure, not the store.
            writer.failure.get_or_insert(Failure::Store(error));
            drop(writer);
            group.answers.clear();
            self.wake_decider();
            return true;
        }
        if last {
            writer.close();
        }
        true
    }

    /// After a panic, which has poisoned the lock it happened under, so nobody went on from there.
    fn fail(&self, failure: Failure) {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner).failure.get_or_insert(failure);
        self.wake_decider();
    }

    /// Whoever waits for commands finds the failure and ends everything.
    fn wake_decider(&self) {
        if let Some(queue) = self.nudge.upgrade() {
            // A full queue has woken them already.
            let _full = queue.try_send(Message::Stop);
        }
    }
}

impl<E: Engine> Outcome for Shared<E> {
    fn take(&self) -> Result<(), Failure> {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        writer.failure.take().map_or(Ok(()), Err)
    }
}

impl<E: Engine> Decider<E> {
    fn drain(&mut self, group: &mut Tagged<E>) {
        while self.core.has_room(group) {
            match self.queue.try_recv() {
                Ok(message) => self.take(message, group),
                Err(mpsc::error::TryRecvError::Empty) => return,
                Err(mpsc::error::TryRecvError::Disconnected) => {
                    self.ended = true;
                    return;
                }
            }
        }
    }

    fn take(&mut self, message: Message<E::Command, E::Answer>, group: &mut Tagged<E>) {
        match message {
            Message::Command(command, sender) => self.core.step(group, sender, command),
            // What is in the queue is still taken; then it is disconnected, and the last group closes the store.
            Message::Stop => self.queue.close(),
        }
    }

    fn end(&mut self) {
        self.ended = true;
        self.queue.close();
        while self.queue.try_recv().is_ok() {}
    }
}

impl<E: Engine> Writer<E> {
    fn write(&mut self, group: &mut Tagged<E>) -> Result<(), StoreError> {
        let Some(store) = self.store.as_deref_mut() else {
            return Err(StoreError::Unusable { why: "it was closed".to_owned() });
        };
        commit(store, &mut self.publish, group)
    }

    /// What was committed is durable whether this works or not, so the last answers do not depend on it.
    fn close(&mut self) {
        if let Some(Err(error)) = self.store.take().map(Store::close) {
            self.failure = Some(Failure::Store(error));
        }
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => (*text).to_owned(),
        (_, Some(text)) => text.clone(),
        _ => "a panic without a message".to_owned(),
    }
}
