//! Writes that are put off, as the server goes on with them: one at a time has what it needs counted, a slice a command, and
//! is then sent again. Whoever goes away lets go of its turn, and what was counted for it is forsaken.

use std::collections::{BTreeSet, VecDeque};

use rules::cel::Foresight;
use server::core::{Answer, Command, Counted, Found, Postponed, Recount, Wanted, WriteKind};

use super::replica::{Asker, Work};
use super::request::Request;

/// How often a write lets itself be put off. As in the server.
const ASKED_MAX: u32 = 3;

/// A write that was put off.
#[derive(Debug)]
pub struct Errand {
    number: u64,
    asker: Asker,
    pub request: Request,
    /// The write, when it is to be sent.
    kind: Option<(WriteKind, Foresight)>,
    /// The same while something is counted for it, and under which number.
    postponed: Option<Box<Postponed>>,
    pub ticket: u64,
    /// What was found out for the next slice.
    pub found: Vec<Found>,
    asked: u32,
    has_turn: bool,
}

/// What became of a command of an errand, known to its sender once the group is durable.
pub enum Further {
    PutOff(Errand, Box<Postponed>),
    Counted(Errand, Counted),
    Over(Errand),
}

/// All errands of a process.
#[derive(Default)]
pub struct Errands {
    given: u64,
    /// Whose turn it is, and whether something has been counted for it.
    turn: Option<Turn>,
    waiting: VecDeque<Errand>,
    /// Who has gone away.
    left: BTreeSet<(usize, u64)>,
}

struct Turn {
    number: u64,
    asker: Asker,
    counts: bool,
}

impl Errand {
    pub fn command(&mut self) -> Result<Command, String> {
        let (kind, foresight) = self.kind.take().ok_or("an errand is sent without its write")?;
        let write = Box::new(self.request.write(kind, foresight));
        Ok(if self.has_turn { Command::Stage(write) } else { Command::Write(write) })
    }

    /// Ready to be sent again, with what is known by now.
    fn ready(mut self, postponed: Postponed) -> (Asker, Work) {
        self.asked += 1;
        let (kind, known) = postponed.evaluate();
        let known = Box::new(known);
        let foresight = if self.asked < ASKED_MAX { Foresight::Known(known) } else { Foresight::Last(known) };
        self.kind = Some((kind, foresight));
        (self.asker, Work::Again(self))
    }
}

impl Errands {
    /// What is to be done about an answer, if anything.
    pub fn further(&mut self, asker: Asker, work: Work, answer: Answer) -> Option<Further> {
        match (work, answer) {
            (Work::Request(request), Answer::Postponed(postponed)) => {
                self.given += 1;
                let errand = Errand {
                    number: self.given,
                    asker,
                    request,
                    kind: None,
                    postponed: None,
                    ticket: 0,
                    found: Vec::new(),
                    asked: 0,
                    has_turn: false,
                };
                Some(Further::PutOff(errand, postponed))
            }
            (Work::Again(errand), Answer::Postponed(postponed)) => Some(Further::PutOff(errand, postponed)),
            (Work::Again(errand), _) => Some(Further::Over(errand)),
            (Work::CountOn(errand, _), Answer::Counted(counted)) => Some(Further::Counted(errand, counted)),
            _ => None,
        }
    }

    /// What is sent next.
    pub fn go_on(&mut self, further: Further, now_ms: i64) -> Option<(Asker, Work)> {
        let errand = match &further {
            Further::PutOff(errand, _) | Further::Counted(errand, _) | Further::Over(errand) => errand,
        };
        if errand.asker.is_some_and(|asker| self.left.contains(&asker)) {
            return self.end(errand.number);
        }
        match further {
            Further::Over(errand) => self.end(errand.number),
            Further::PutOff(mut errand, postponed) => match postponed.recount {
                None => Some(errand.ready(*postponed)),
                Some(Recount::ToBegin) => {
                    errand.kind = Some((postponed.kind, Foresight::Asked));
                    self.waiting.push_back(errand);
                    if self.turn.is_none() { self.next() } else { None }
                }
                Some(Recount::Begun(ticket)) => {
                    (errand.postponed, errand.ticket) = (Some(postponed), ticket);
                    if let Some(turn) = &mut self.turn {
                        turn.counts = true;
                    }
                    Some((errand.asker, Work::CountOn(errand, now_ms)))
                }
            },
            Further::Counted(mut errand, Counted { is_last: Some(false), wanted }) => {
                errand.found = wanted.into_iter().map(Wanted::evaluate).collect();
                Some((errand.asker, Work::CountOn(errand, now_ms)))
            }
            Further::Counted(mut errand, _) => {
                let postponed = errand.postponed.take()?;
                Some(errand.ready(*postponed))
            }
        }
    }

    /// Somebody goes away. Whether something was being counted for it, and what is sent next.
    pub fn leave(&mut self, asker: (usize, u64)) -> (bool, Option<(Asker, Work)>) {
        self.left.insert(asker);
        self.waiting.retain(|errand| errand.asker != Some(asker));
        match self.turn.take_if(|turn| turn.asker == Some(asker)) {
            Some(turn) => (turn.counts, self.next()),
            None => (false, None),
        }
    }

    /// Whether something is being counted, and whether somebody waits for that.
    pub fn is_counting(&self) -> bool {
        self.turn.as_ref().is_some_and(|turn| turn.counts)
    }

    pub fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// For whom something is being counted.
    pub fn counts_for(&self) -> Asker {
        self.turn.as_ref().filter(|turn| turn.counts).and_then(|turn| turn.asker)
    }

    fn end(&mut self, number: u64) -> Option<(Asker, Work)> {
        self.turn.take_if(|turn| turn.number == number)?;
        self.next()
    }

    fn next(&mut self) -> Option<(Asker, Work)> {
        let mut errand = self.waiting.pop_front()?;
        self.turn = Some(Turn { number: errand.number, asker: errand.asker, counts: false });
        errand.has_turn = true;
        Some((errand.asker, Work::Again(errand)))
    }
}
