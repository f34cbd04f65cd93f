//! One process: an engine, its store, what waits for it and what it has decided.

use std::collections::VecDeque;

use sequencer::Limits;
use sequencer::core::{Core, Group};
use server::core::{Answer, Cache, Command, Engine, Publication, Recount, Refused};
use store::{Batch, Store, Term};

use super::answers::Said;
use super::apart::shows_apart;
use super::durable::{Added, Told};
use super::errand::{Errand, Errands, Further};
use super::holds::News;
use super::recorder::Recorder;
use super::request::{Request, Verb};

pub const LIMITS: Limits = Limits { queue: 64, group_commands: 5, group_bytes: 64 * 1024, group_rows: usize::MAX };

/// Whom to answer: a client and the number of its request, or nobody.
pub type Asker = Option<(usize, u64)>;

#[derive(Debug)]
pub enum Work {
    Request(Request),
    /// A write that was put off, once more.
    Again(Errand),
    /// The next slice of what it was put off for.
    CountOn(Errand, i64),
    Publish {
        now_ms: i64,
    },
}

/// What a command was, for whoever judges it.
#[derive(Clone, Debug)]
pub enum Done {
    Request(Request),
    Counted(Request),
    Published { now_ms: i64 },
}

/// A group that is decided and not yet durable.
pub struct Flight {
    pub group: Group<Recorder, Asker>,
    pub added: Added,
    pub answers: Vec<(Asker, Said)>,
    /// How many commands it is made of, and the command if it is one.
    pub commands: usize,
    pub alone: Option<(Done, Said)>,
    /// Whoever goes on once it is durable.
    pub further: Vec<Further>,
}

pub struct Replica {
    pub core: Core<Recorder>,
    pub store: Box<dyn Store>,
    pub cache: Cache,
    pub term: Term,
    pub inbox: VecDeque<(Asker, Work)>,
    pub in_flight: VecDeque<Flight>,
    pub errands: Errands,
    /// The latest time it was told since its start.
    pub clock_ms: Option<i64>,
    pub strict: bool,
}

impl Replica {
    /// Decides so many of what waits as one group. New objects get uids from `uids` on.
    pub fn decide(&mut self, count: usize, uids: &mut u128, told_ms: i64) -> Result<(), String> {
        let (group, further) = (Group::default(), Vec::new());
        let mut flight = Flight { group, added: Added::default(), answers: vec![], commands: 0, alone: None, further };
        let is_first = self.clock_ms.is_none();
        let (mut holds, sequence) = (Vec::new(), self.core.engine.engine.sequence());
        while flight.commands < count && self.core.has_room(&flight.group) {
            let Some((asker, mut work)) = self.inbox.pop_front() else { break };
            let asked = match &work {
                Work::Request(request) => Some(request.clone()),
                _ => None,
            };
            let command = self.command(&mut work, uids)?;
            self.core.step(&mut flight.group, asker, command);
            let Some((_, answer)) = flight.group.answers.last_mut() else { return Err("no answer".into()) };
            let answer = std::mem::replace(answer, Answer::Published { remaining: 0, served: 0 });
            let said = said(&work, &answer)?;
            if shows_apart(&format!("{said:?}")) {
                return Err(format!("what nobody is to be told of is told: {said:?}"));
            }
            let uid = match (&said, asked.as_ref().map(|request| &request.verb)) {
                (Said::Held { uid, is_held: true }, _) => Some(*uid),
                (Said::Dropped { .. }, Some(Verb::Drop { uid })) => Some(*uid),
                _ => None,
            };
            if let Some((request, uid)) = asked.zip(uid) {
                let (events, clock_ms) = (flight.group.publication.events.len(), self.clock_ms.unwrap_or(told_ms));
                holds.push(News::of(&request, uid, events, clock_ms));
            }
            flight.answers.push((asker, said.clone()));
            flight.commands += 1;
            // With the first command comes what a start had to count again.
            flight.alone = (flight.commands == 1 && !is_first).then(|| (work.done(), said));
            flight.further.extend(self.errands.further(asker, work, answer));
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
            holds,
            steps: self.core.engine.engine.sequence() - sequence,
            decided: flight.group.publication.decided.clone(),
        };
        self.in_flight.push_back(flight);
        Ok(())
    }

    fn command(&mut self, work: &mut Work, uids: &mut u128) -> Result<Command, String> {
        Ok(match work {
            Work::Request(request) => {
                self.tell_time(request.now_ms);
                request.command(uids)?
            }
            Work::Again(errand) => {
                self.tell_time(errand.request.now_ms);
                errand.command()?
            }
            Work::CountOn(errand, now_ms) => {
                self.tell_time(*now_ms);
                let found = std::mem::take(&mut errand.found);
                Command::CountOn { ticket: errand.ticket, found, now_ms: *now_ms }
            }
            Work::Publish { now_ms } => {
                // On a disk that is almost full nothing is published, and nobody looks at the clock.
                if !self.store.space().is_low() {
                    self.tell_time(*now_ms);
                }
                Command::PublishStatus { now_ms: *now_ms }
            }
        })
    }

    fn tell_time(&mut self, now_ms: i64) {
        self.clock_ms = Some(self.clock_ms.map_or(now_ms, |known| known.max(now_ms)));
    }

    /// Whoever was put off in a group that is durable now goes on.
    pub fn go_on(&mut self, further: Vec<Further>, now_ms: i64) {
        for further in further {
            let next = self.errands.go_on(further, now_ms);
            self.inbox.extend(next);
        }
    }

    /// Somebody goes away; whether something was being counted for it.
    pub fn leave(&mut self, asker: (usize, u64)) -> bool {
        let (counted, next) = self.errands.leave(asker);
        self.inbox.extend(next);
        counted
    }
}

impl Work {
    fn done(&self) -> Done {
        match self {
            Work::Request(request) => Done::Request(request.clone()),
            Work::Again(errand) => Done::Request(errand.request.clone()),
            Work::CountOn(errand, _) => Done::Counted(errand.request.clone()),
            Work::Publish { now_ms } => Done::Published { now_ms: *now_ms },
        }
    }
}

/// What the engine's own audit finds.
pub fn audit(engine: &mut Engine) -> Result<Vec<String>, String> {
    let (mut batch, mut publication) = (Batch::new(), Publication::default());
    let report = match sequencer::Engine::step(engine, Command::Snapshot, &mut batch, &mut publication) {
        Answer::Snapshot(snapshot) => snapshot.audit(),
        other => return Err(format!("a snapshot was answered with {other:?}")),
    };
    let mut told = report.differences.iter().chain(&report.over).chain(&report.broken);
    match told.find(|line| shows_apart(line)) {
        Some(line) => Err(format!("what nobody is to be told of is in the audit: {line}")),
        None => Ok(report.differences),
    }
}

fn said(work: &Work, answer: &Answer) -> Result<Said, String> {
    let refused = match answer {
        Answer::Written(Err(refused)) | Answer::WrittenAll(Err((_, refused))) | Answer::Held(Err(refused)) => {
            Some(refused)
        }
        _ => None,
    };
    if let Some(Refused::Bug(why)) = refused {
        return Err(format!("a bug, as the engine says itself: {why}"));
    }
    let request = match work {
        Work::Request(request) => Some(request),
        Work::Again(errand) => Some(&errand.request),
        Work::CountOn(..) | Work::Publish { .. } => None,
    };
    match (work, request, answer) {
        (_, Some(_), Answer::Written(Err(refused))) => Ok(Said::Refused(0, refused.clone())),
        (_, Some(_), Answer::WrittenAll(Err((place, refused)))) => Ok(Said::Refused(*place, refused.clone())),
        (_, Some(request), Answer::Written(Ok(_))) if request.dry_run => Ok(Said::Would),
        (_, Some(_), Answer::Written(Ok(written))) => {
            Ok(Said::Written(vec![(written.object.uid.0, written.object.revision)]))
        }
        (_, Some(request), Answer::WrittenAll(Ok(written))) if written.len() == request.parts().count() => {
            let told = |one: &server::core::Written| (one.object.uid.0, one.object.revision);
            Ok(if request.dry_run { Said::Would } else { Said::Written(written.iter().map(told).collect()) })
        }
        (_, Some(request), Answer::Held(Ok(_))) if request.dry_run => Ok(Said::Would),
        (_, Some(_), Answer::Held(Ok(held))) => {
            Ok(Said::Held { uid: held.subject.0, is_held: held.expires_at_ms.is_some() })
        }
        (_, Some(_), Answer::Held(Err(refused))) => Ok(Said::Refused(0, refused.clone())),
        (_, Some(_), Answer::Dropped { was_held }) => Ok(Said::Dropped { was_held: *was_held }),
        (_, Some(_), Answer::Postponed(postponed)) => {
            Ok(Said::PutOff { begun: matches!(postponed.recount, Some(Recount::Begun(_))) })
        }
        (Work::CountOn(..), _, Answer::Counted(counted)) => Ok(Said::Counted { is_last: counted.is_last }),
        (Work::Publish { .. }, _, Answer::Published { .. }) => Ok(Said::Published),
        (work, _, answer) => Err(format!("{work:?} was answered with {answer:?}")),
    }
}
