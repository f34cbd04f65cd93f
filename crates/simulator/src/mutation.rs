//! Deliberately broken behaviour. The checker must catch each: a checker that cannot fail proves nothing.

use ledger::{Ledger, SubjectId};

use crate::naive::engine::{charges, to_standing};
use crate::naive::ops::{Asked, No, Op, Said, Standing, Terms};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// Answers go out when a group is decided, not when it is durable.
    AnswersBeforeDurable,
    /// The disk says that it synced and did not.
    SyncDoesNothing,
    /// One of a group's ledger rows is not written.
    ForgetsARow,
    /// One of a group's entries is not appended to its journal.
    ForgetsAnEntry,
    /// A group is committed in two halves.
    SplitsAGroup,
    /// The shared store accepts writes of a replaced leader.
    OldLeaderWrites,
    /// A leader answers reads without proving that it still leads.
    OldLeaderReads,
    /// A repeated request is carried out again.
    RunsDuplicates,
    /// When charges are replaced, the last line is forgotten.
    ForgetsALine,
    /// A claim that misses the limit by one nano is granted.
    LimitOffByOne,
    /// A claim that fits is denied now and then.
    DeniesWhatFits,
    /// Who was woken is told twice.
    WakesTwice,
    /// Who was woken is not told.
    ForgetsTheWoken,
    /// Holds run out before their time.
    ExpiresEarly,
    /// A denial leaves a charge behind.
    ChargesWhatItDenied,
    /// Watchers are not told of one step.
    PublishesTooLittle,
    /// A step of several parts that is refused leaves the account behind that it would have opened or changed.
    UndoneStepLeavesATrace,
    /// Of a step of several parts only the first is carried out.
    SplitsAStep,
    /// Who is put in line lets go of what it has.
    WaiterLosesWhatItHad,
    /// An account that gets another name loses what is charged on it.
    RenameForgetsCharges,
    /// Whoever lets go of an account keeps what it has on those that go with it.
    SweepsAlone,
}

pub const ALL: [Mutation; 21] = [
    Mutation::AnswersBeforeDurable,
    Mutation::SyncDoesNothing,
    Mutation::ForgetsARow,
    Mutation::ForgetsAnEntry,
    Mutation::SplitsAGroup,
    Mutation::OldLeaderWrites,
    Mutation::OldLeaderReads,
    Mutation::RunsDuplicates,
    Mutation::ForgetsALine,
    Mutation::LimitOffByOne,
    Mutation::DeniesWhatFits,
    Mutation::WakesTwice,
    Mutation::ForgetsTheWoken,
    Mutation::ExpiresEarly,
    Mutation::ChargesWhatItDenied,
    Mutation::PublishesTooLittle,
    Mutation::UndoneStepLeavesATrace,
    Mutation::SplitsAStep,
    Mutation::WaiterLosesWhatItHad,
    Mutation::RenameForgetsCharges,
    Mutation::SweepsAlone,
];

/// What no policy's name begins with.
const NOBODY: &str = "nobody";

impl Mutation {
    /// What the broken engine does instead of the step it was asked for.
    pub fn misread(self, op: &Op, turn: u64) -> Op {
        match (self, op.clone()) {
            (Mutation::ForgetsALine, Op::Charge { subject, mut asked, standing }) if asked.len() > 1 => {
                asked.pop();
                Op::Charge { subject, asked, standing }
            }
            (Mutation::ExpiresEarly, Op::Expire { now }) if turn.is_multiple_of(2) => {
                Op::Expire { now: now.saturating_add(2) }
            }
            (Mutation::SweepsAlone, Op::Sweep { key, max, .. }) => Op::Sweep { key, with: NOBODY, max },
            (Mutation::SplitsAStep, Op::Step { settings, mut subjects }) if subjects.len() > 1 => {
                subjects.truncate(1);
                Op::Step { settings, subjects }
            }
            (_, op) => op,
        }
    }

    /// Whom it releases before the step.
    pub fn loses(self, op: &Op, ledger: &Ledger) -> Option<SubjectId> {
        let Op::Charge { subject, asked, standing } = op else { return None };
        let subject = SubjectId(*subject);
        let plan = ledger.decide(subject, &charges(ledger, asked), &to_standing(standing)).ok()?;
        let has = !ledger.subject(subject)?.into_charged().is_empty();
        (self == Mutation::WaiterLosesWhatItHad && has && plan.queues() && !plan.is_unchanged()).then_some(subject)
    }

    /// What it does after the step, if anything.
    pub fn afterthought(self, op: &Op, said: &Said, turn: u64) -> Option<Op> {
        if let (Mutation::UndoneStepLeavesATrace, Op::Step { settings, .. }, Said::Denied(_)) = (self, op, said) {
            return Some(Op::Step { settings: settings.clone(), subjects: vec![] });
        }
        if let (Mutation::RenameForgetsCharges, Op::Rename { to, .. }, Said::Done { changed: true, .. }) =
            (self, op, said)
        {
            return Some(Op::Sweep { key: to.clone(), with: NOBODY, max: 1 });
        }
        let Op::Charge { subject, asked, .. } = op else { return None };
        let Said::Denied(lines) = said else { return None };
        let over_limit = lines.iter().all(|line| line.reason == "over limit");
        let adopt = || {
            let adopted = |(key, amount, format, _)| (key, amount, format, Terms::Adopted);
            let asked: Asked = asked.iter().cloned().map(adopted).collect();
            Some(Op::Charge { subject: *subject, asked, standing: Standing::Stored })
        };
        match self {
            Mutation::ChargesWhatItDenied if over_limit && turn.is_multiple_of(4) => adopt(),
            Mutation::LimitOffByOne if over_limit && asked.iter().any(|(_, amount, ..)| *amount == 1) => adopt(),
            _ => None,
        }
    }

    /// What it says instead.
    pub fn missay(self, said: Said) -> Said {
        match (self, said) {
            (Mutation::WakesTwice, Said::Done { sequence, changed, outcome, mut woken }) => {
                woken.extend(woken.first().copied());
                Said::Done { sequence, changed, outcome, woken }
            }
            (Mutation::ForgetsTheWoken, Said::Done { sequence, changed, outcome, .. }) => {
                Said::Done { sequence, changed, outcome, woken: vec![] }
            }
            (_, said) => said,
        }
    }

    /// Whether it answers no without asking the ledger.
    pub fn denies(self, op: &Op, turn: u64) -> Option<Said> {
        match (self, op) {
            (Mutation::DeniesWhatFits, Op::Charge { asked, standing: Standing::Stored, .. })
                if turn.is_multiple_of(16) && asked.iter().all(|(.., terms)| *terms == Terms::Enforced) =>
            {
                let (key, amount, ..) = asked.first()?;
                let (key, requested) = (key.clone(), *amount);
                Some(Said::Denied(vec![No { key, reason: "over limit", requested, used: 0, held: 0 }]))
            }
            _ => None,
        }
    }

    /// Whether a denial that was not kept is also not told.
    pub fn hides_denial(self) -> bool {
        self == Mutation::LimitOffByOne
    }
}
