//! The two steps of every group, free of threads, queues and clocks: [`Core::step`] … [`Core::seal`], then [`commit`].
//!
//! The threads of [`crate::start`] wrap exactly this code; the simulator calls it step by step and crashes in between.

use store::{Batch, Store, StoreError};

use crate::{Engine, Limits};

/// What one group has gathered. `T` is whatever a caller wants back beside each answer, such as the sender to answer on.
pub struct Group<E: Engine, T> {
    pub batch: Batch,
    pub publication: E::Publication,
    pub answers: Vec<(T, E::Answer)>,
}

impl<E: Engine, T> Default for Group<E, T> {
    fn default() -> Group<E, T> {
        Group { batch: Batch::new(), publication: E::Publication::default(), answers: Vec::new() }
    }
}

/// The engine and the bounds of its groups.
pub struct Core<E> {
    pub engine: E,
    limits: Limits,
}

impl<E: Engine> Core<E> {
    pub fn new(engine: E, limits: Limits) -> Core<E> {
        Core { engine, limits }
    }

    /// Whether the group may take another command. An empty group always may, so that no command is too big to be served.
    pub fn has_room<T>(&self, group: &Group<E, T>) -> bool {
        let commands = group.answers.len();
        let batch = &group.batch;
        commands == 0
            || (commands < self.limits.group_commands
                && batch.bytes() < self.limits.group_bytes
                && batch.len() < self.limits.group_rows)
    }

    /// Decides one command into the group.
    pub fn step<T>(&mut self, group: &mut Group<E, T>, tag: T, command: E::Command) {
        let answer = self.engine.step(command, &mut group.batch, &mut group.publication);
        group.answers.push((tag, answer));
    }

    /// Completes the group; no further command may be decided into it.
    pub fn seal<T>(&mut self, group: &mut Group<E, T>) {
        self.engine.seal(&mut group.batch, &mut group.publication);
    }

    /// All of the above for commands that are already at hand; commands beyond the bounds stay in the iterator.
    pub fn decide_group<T>(&mut self, commands: &mut dyn Iterator<Item = (T, E::Command)>) -> Group<E, T> {
        let mut group = Group::default();
        while self.has_room(&group)
            && let Some((tag, command)) = commands.next()
        {
            self.step(&mut group, tag, command);
        }
        self.seal(&mut group);
        group
    }
}

/// Makes the group durable and then visible; its answers may be given when this returned `Ok`. After an error they must never
/// be given. A group without rows costs no sync: its answers rest on groups committed before it, and on nobody else having
/// become the writer since.
pub fn commit<E: Engine, T>(
    store: &mut dyn Store,
    publish: &mut dyn FnMut(E::Publication),
    group: &mut Group<E, T>,
) -> Result<(), StoreError> {
    if group.batch.is_empty() {
        store.confirm()?;
    } else {
        store.commit(&group.batch)?;
        group.batch.clear();
    }
    publish(std::mem::take(&mut group.publication));
    Ok(())
}
