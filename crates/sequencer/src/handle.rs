//! The side of those who submit commands.

use tokio::sync::{mpsc, oneshot};

/// What travels through the queue.
pub(crate) enum Message<C, A> {
    Command(C, oneshot::Sender<A>),
    /// Finish what was accepted before this, then close.
    Stop,
}

/// No further command is decided: the sequencer was shut down, or a commit failed. A command that got this answer may or may
/// not have become durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the sequencer has stopped")]
pub struct Stopped;

/// The queue is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many commands are waiting, try again")]
pub struct Overloaded;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    #[error(transparent)]
    Stopped(#[from] Stopped),
    #[error(transparent)]
    Overloaded(#[from] Overloaded),
}

/// Submits commands and awaits their answers. Cheap to clone.
///
/// Dropping the future of an accepted command does not take the command back.
pub struct Handle<C, A> {
    pub(crate) queue: mpsc::Sender<Message<C, A>>,
}

impl<C, A> Clone for Handle<C, A> {
    fn clone(&self) -> Handle<C, A> {
        Handle { queue: self.queue.clone() }
    }
}

impl<C, A> Handle<C, A> {
    /// Awaits a place in the queue, then the answer.
    pub async fn submit(&self, command: C) -> Result<A, Stopped> {
        let (sender, answer) = oneshot::channel();
        self.queue.send(Message::Command(command, sender)).await.map_err(|_| Stopped)?;
        answer.await.map_err(|_| Stopped)
    }

    /// Takes a place in the queue only if there is one now, then awaits the answer.
    pub async fn try_submit(&self, command: C) -> Result<A, SubmitError> {
        let (sender, answer) = oneshot::channel();
        self.queue.try_send(Message::Command(command, sender)).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => SubmitError::Overloaded(Overloaded),
            mpsc::error::TrySendError::Closed(_) => SubmitError::Stopped(Stopped),
        })?;
        answer.await.map_err(|_| SubmitError::Stopped(Stopped))
    }

    /// [`Handle::submit`] for threads outside an async runtime. Called inside one it would block it, and panics instead.
    pub fn submit_blocking(&self, command: C) -> Result<A, Stopped> {
        let (sender, answer) = oneshot::channel();
        self.queue.blocking_send(Message::Command(command, sender)).map_err(|_| Stopped)?;
        answer.blocking_recv().map_err(|_| Stopped)
    }

    /// Whether somebody waits to be decided, for who could stand back meanwhile.
    pub fn has_waiting(&self) -> bool {
        self.queue.capacity() < self.queue.max_capacity()
    }

    /// Free places in the queue, for gauges and health.
    pub fn free_places(&self) -> usize {
        self.queue.capacity()
    }
}
