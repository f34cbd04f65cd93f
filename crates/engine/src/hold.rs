//! Holds: writes that are decided here and stored elsewhere. What such a write would be charged is held until its object is seen,
//! or given up, or its time is over, so that nobody else is let into the same room meanwhile.
//!
//! A hold is decided as the write would be: shaped, checked, compiled, measured, and asked of the ledger. Nothing is stored, and
//! nothing is shown. On every account its subject, the object's uid, then has the larger of what its stored object takes and of
//! what is held. The next write of an object with that uid settles it, whatever that says, one that reports what happened
//! ([`WriteKind::Update`] with `status`) included; [`Engine::drop_hold`] gives it up; and its moment, which [`crate::Effects`]
//! tells, lets go of it. All of it is in the ledger's rows, so that a start goes on with it.
//!
//! Of several holds over one subject the newest covers the earlier ones, because any of them may turn out to be stored: it has the
//! larger of all on every account, and the latest of their moments. Said once more, it changes nothing.
//!
//! What is held is counted by the rules of its moment. A policy that takes another's place takes what is held along; one that is
//! new counts the object when it is written. Where an object would wait in line, it takes its place when it is written: nothing is
//! held of what it would wait for.

use std::collections::HashSet;

use families::{Company, Origin};
use ledger::{AccountId, Charge, LedgerError, Limit, Standing, State, SubjectId, Terms};
use quantity::Amount;
use rules::cel::{Foresight, STEP_COST_MAX};

use crate::command::{Expect, Postponed, Refused, WriteKind};
use crate::decide::{Asked, Planned, Ruling, standing};
use crate::engine::Engine;
use crate::object::{Draft, ObjectKey};
use crate::write::Ready;

/// A write that is to be decided now and is stored later, by somebody else.
#[derive(Debug)]
pub struct Hold {
    pub key: ObjectKey,
    /// The object as it is going to be stored. It is an update where an object with its uid is there, and else a new one:
    /// whatever else has its name here is gone where it is stored.
    pub draft: Draft,
    /// Until when, by the clock that also says `now_ms`.
    pub expires_at_ms: i64,
    /// Decided as if, but nothing is held.
    pub dry_run: bool,
    pub now_ms: i64,
    pub foresight: Foresight,
    pub origin: Origin,
}

/// A hold that was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// The object's uid.
    pub subject: SubjectId,
    /// Until when its subject is held, by the engine's clock. None where nothing is: no policy counts the object, or it takes no
    /// more than it has, waits in line, or it was only asked.
    pub expires_at_ms: Option<i64>,
    pub sequence: u64,
}

impl Engine {
    /// Decides a write that somebody else is about to store. One that needs expressions which take long comes back with its
    /// draft, and nothing has changed.
    pub fn hold(&mut self, hold: Hold) -> Result<Result<Held, Refused>, Box<Postponed>> {
        let (key, now_ms, counts) = (hold.key.clone(), hold.now_ms, !hold.dry_run);
        self.origin = self.own.clone();
        self.advance(now_ms);
        self.bring_up(&key.namespace, now_ms);
        let moved_from = self.touched.len();
        let held = self.hold_one(hold);
        if let Some(postponed) = self.postponed.take() {
            return Err(postponed);
        }
        match &held {
            Ok(_) => self.follow(moved_from, now_ms),
            Err(refused) if counts => {
                self.note_refused(refused);
                self.record_refused(&key, refused, now_ms);
            }
            Err(_) => {}
        }
        Ok(held)
    }

    /// Gives up what is held for an object that will not be stored; whether anything was.
    pub fn drop_hold(&mut self, subject: SubjectId, now_ms: i64) -> bool {
        self.origin = self.own.clone();
        self.advance(now_ms);
        let moved_from = self.touched.len();
        let receipt = self.ledger.drop_hold(subject);
        self.note_receipt(&receipt);
        self.follow(moved_from, now_ms);
        receipt.changed
    }

    fn hold_one(&mut self, hold: Hold) -> Result<Held, Refused> {
        let Hold { key, draft, expires_at_ms, dry_run, now_ms, foresight, origin } = hold;
        (self.origin, self.foresight, self.allowance) = (origin, foresight, STEP_COST_MAX);
        self.known.clear();
        self.missed.clear();
        self.check_room(dry_run)?;
        let stored = self.stored(&key).filter(|stored| stored.uid == draft.uid).cloned();
        let kind = match &stored {
            Some(_) => WriteKind::Update { draft, expect: Expect::default(), status: false },
            None => WriteKind::Create(draft),
        };
        let Ready::Put(put) = self.ready(key, kind, stored, now_ms, &HashSet::new())? else {
            return Err(Refused::Bug("a hold is no deletion".into()));
        };
        match self.company(&put.accompanied(now_ms)) {
            Ok(company) if company == Company::default() => {}
            Ok(_) => {
                let why = format!("{} comes with other objects, which cannot be made where it is stored", put.key);
                return Err(self.refusal(&put.key, why));
            }
            Err(why) => return Err(self.put_off(put, why)),
        }
        let asked = match self.ask(&put.key, &put.draft, put.terms) {
            Ok(asked) => asked,
            Err(why) => return Err(self.put_off(put, why)),
        };
        let subject = put.draft.uid;
        let nothing = Held { subject, expires_at_ms: None, sequence: self.ledger.sequence() };
        let Some(asked) = asked else { return Ok(nothing) };
        // By the engine's clock, which may be ahead of whoever asks.
        let expires_at_ms = self.clock_ms.saturating_add(expires_at_ms.saturating_sub(now_ms));
        let ruling = self.rule_hold(subject, &asked, expires_at_ms)?;
        if dry_run || expires_at_ms <= self.clock_ms {
            return Ok(nothing);
        }
        self.apply(ruling);
        let expires_at_ms = match self.ledger.subject(subject).map(|view| view.state) {
            Some(State::Held { expires_at_ms }) => Some(expires_at_ms),
            _ => None,
        };
        Ok(Held { subject, expires_at_ms, sequence: self.ledger.sequence() })
    }

    /// What the ledger says. Changes nothing.
    fn rule_hold(&self, subject: SubjectId, asked: &Asked, expires_at_ms: i64) -> Result<Ruling, Refused> {
        let bug = |error: LedgerError| Refused::Bug(error.to_string());
        let (mut charges, unopened) = self.policies.charges(&self.ledger, &asked.verdict.lines, asked.terms);
        let mut plan = self.ledger.plan();
        for (key, charge) in unopened {
            let account = plan.open(key, Limit::Unlimited).map_err(bug)?;
            charges.push(Charge { account, ..charge });
        }
        // Whoever stands in line stays there, and is asked about the rest.
        let waits = self.ledger.is_waiting(subject);
        let stands = match self.ledger.subject(subject).map(|view| (view.state, view.charges)) {
            Some((State::Held { expires_at_ms: before }, earlier)) => {
                charges.retain(|charge| charge.terms != Terms::InLine && charge.terms != Terms::Along);
                top_up(&mut charges, &earlier);
                Standing::Held { expires_at_ms: expires_at_ms.max(before) }
            }
            _ if waits => standing(&asked.verdict),
            _ => Standing::Held { expires_at_ms },
        };
        plan.charge(subject, &charges, &stands).map_err(bug)?;
        let step = plan.decide().map_err(|denied| self.denied(denied, &charges, asked.operation))?;
        let mut ruling = Ruling::of(asked, step.queues(subject), step.is_unchanged(), self);
        ruling.plan = (!waits).then_some(Planned::Step(step));
        Ok(ruling)
    }

    /// Counts what is stored of an object that something is held for. Its hold stays as it is.
    pub(crate) fn charge_under(&mut self, subject: SubjectId, charges: &[Charge]) {
        match self.ledger.adopt_under(subject, charges) {
            Ok(receipt) => self.note_receipt(&receipt),
            Err(denied) => tracing::error!(%denied, "an object could not be counted again"),
        }
    }
}

/// Adds to charges what earlier ones have beyond them, account by account.
fn top_up(charges: &mut Vec<Charge>, earlier: &[Charge]) {
    for had in earlier {
        let on = |account: AccountId| charges.iter().filter(move |charge| charge.account == account);
        let asked = on(had.account).try_fold(Amount::ZERO, |sum, charge| sum.checked_add(charge.amount));
        // What cannot be added up is refused by the ledger.
        let more = asked.and_then(|asked| had.amount.checked_sub(asked)).filter(|more| *more > Amount::ZERO);
        charges.extend(more.map(|amount| Charge { amount, ..*had }));
    }
}
