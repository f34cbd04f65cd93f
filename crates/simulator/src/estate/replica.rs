//! One process: an engine, its store, what waits for it and what it has decided.

use std::collections::VecDeque;

use sequencer::Limits;
use sequencer::core::{Core, Group};
use server::core::{Answer, Cache, Command, Engine, Publication, Refused};
use store::{Batch, Store, Term};

use super::answers::Said;
use super::durable::{Added, Told};
use super::recorder::Recorder;
use super::request::Request;

pub const LIMITS: Limits = Limits { queue: 64, group_commands: 5, group_bytes: 64 * 1024, group_rows: usize::MAX };

/// Whom to answer: a client and the number of its request, or nobody.
pub type Asker = Option<(usize, u64)>;

#[derive(Clone, Debug)]
pub enum Work {
    Request(Request),
    Publish { now_ms: i64 },
}

/// A group that is decided and not yet durable.
pub struct Flight {
    pub group: Group<Recorder, Asker>,
    pub added: Added,
    pub answers: Vec<(Asker, Said)>,
    /// How many commands it is made of, and the command if it is one.
    pub commands: usize,
    pub alone: Option<(Work, Said)>,
}

pub struct Replica {
    pub core: Core<Recorder>,
    pub store: Box<dyn Store>,
    pub cache: Cache,
    pub term: Term,
    pub inbox: VecDeque<(Asker, Work)>,
    pub in_flight: VecDeque<Flight>,
    /// The latest time it was told since its start.
    pub clock_ms: Option<i64>,
    pub strict: bool,
}

impl Replica {
    /// Decides so many of what waits as one group. New objects get uids from `uids` on.
    pub fn decide(&mut self, count: usize, uids: &mut u128, told_ms: i64) -> Result<(), String> {
        let mut flight =
            Flight { group: Group::default(), added: Added::default(), answers: vec![], commands: 0, alone: None };
        let is_first = self.clock_ms.is_none();
        while flight.commands < count && self.core.has_room(&flight.group) {
            let Some((asker, work)) = self.inbox.pop_front() else { break };
            let command = match &work {
                Work::Request(request) => {
                    *uids += 1;
                    self.tell_time(request.now_ms);
                    request.command(*uids)?
                }
                Work::Publish { now_ms } => {
                    // On a disk that is almost full nothing is published, and nobody looks at the clock.
                    if !self.store.space().is_low() {
                        self.tell_time(*now_ms);
                    }
                    Command::PublishStatus { now_ms: *now_ms }
                }
            };
            self.core.step(&mut flight.group, asker, command);
            let Some((_, answer)) = flight.group.answers.last() else { return Err("no answer".into()) };
            let said = said(&work, answer)?;
            flight.answers.push((asker, said.clone()));
            flight.commands += 1;
            // With the first command comes what a start had to count again.
            flight.alone = (flight.commands == 1 && !is_first).then_some((work, said));
        }
        self.core.seal(&mut flight.group);
        let events = flight.group.publication.events.iter();
        flight.added = Added {
            batch: flight.group.batch.clone(),
            events: events
                .map(|event| Told { kind: event.kind, key: event.object.key.clone(), revision: event.revision() })
                .collect(),
            told_ms: self.clock_ms.unwrap_or(told_ms),
            strict: self.strict,
            is_first,
        };
        self.in_flight.push_back(flight);
        Ok(())
    }

    fn tell_time(&mut self, now_ms: i64) {
        self.clock_ms = Some(self.clock_ms.map_or(now_ms, |known| known.max(now_ms)));
    }
}

/// What the engine's own audit finds.
pub fn audit(engine: &mut Engine) -> Result<Vec<String>, String> {
    let (mut batch, mut publication) = (Batch::new(), Publication::default());
    match sequencer::Engine::step(engine, Command::Snapshot, &mut batch, &mut publication) {
        Answer::Snapshot(snapshot) => Ok(snapshot.audit().differences),
        other => Err(format!("a snapshot was answered with {other:?}")),
    }
}

fn said(work: &Work, answer: &Answer) -> Result<Said, String> {
    match (work, answer) {
        (_, Answer::Written(Err(Refused::Bug(why)))) => Err(format!("a bug, as the engine says itself: {why}")),
        (_, Answer::Written(Err(refused))) => Ok(Said::Refused(refused.clone())),
        (Work::Request(request), Answer::Written(Ok(_))) if request.dry_run => Ok(Said::Would),
        (Work::Request(_), Answer::Written(Ok(written))) => {
            Ok(Said::Written { uid: written.object.uid.0, revision: written.object.revision })
        }
        (Work::Publish { .. }, Answer::Published { .. }) => Ok(Said::Published),
        (work, answer) => Err(format!("{work:?} was answered with {answer:?}")),
    }
}
