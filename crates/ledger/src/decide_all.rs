//! Deciding a step of several parts: reads only, yes to all or no with every account that refuses.
//!
//! What is wrong with the charges themselves comes first, then what does not fit, then who could not even wait: a later
//! question is only asked where the earlier ones found nothing.

use std::collections::BTreeMap;

use quantity::{Amount, Format};

use crate::account::{AMOUNT_MAX, Account, AccountId, Limit, difference, sum};
use crate::answer::{Denied, Outcome, Reason, Refusal};
use crate::books::Books;
use crate::charge::{Charge, Line, Lines, SubjectId, amount_on, overlaid, smaller_of};
use crate::decide::{Plan, Verdict};
use crate::planner::{Ask, Part, Planner, Tally};
use crate::subjects::{Pending, SUBJECTS_MAX};
use crate::terms::Standing;
use crate::wanted::Wanted;
use crate::wide::Wide;

/// A step that was decided. Good for the ledger it was made on, until that takes another step.
#[must_use = "a plan changes nothing until it is applied"]
#[derive(Clone, Debug)]
pub struct StepPlan {
    pub(crate) decided_at: u64,
    /// By id, which is the order in which ids are given.
    pub(crate) opened: Vec<(AccountId, Account)>,
    /// Limits, and whether discounts are allowed, where they change.
    pub(crate) settings: Vec<(AccountId, Limit, bool)>,
    /// By subject.
    pub(crate) parts: Vec<Plan>,
    /// How sums are printed afterwards.
    pub(crate) formats: Vec<(AccountId, Format)>,
    /// Whether all has to be given back before anything is taken, because the sums on the way leave the number type.
    pub(crate) gives_back_first: bool,
}

impl StepPlan {
    /// Whether applying it would put a subject in line instead of granting.
    pub fn queues(&self, subject: SubjectId) -> bool {
        self.part(subject).is_some_and(Plan::queues)
    }

    /// What the step says to one of its subjects.
    pub fn outcome(&self, subject: SubjectId) -> Option<Outcome> {
        self.part(subject).map(|part| part.verdict.outcome())
    }

    /// Whether applying it would change nothing.
    pub fn is_unchanged(&self) -> bool {
        self.opened.is_empty() && self.settings.is_empty() && self.parts.iter().all(Plan::is_unchanged)
    }

    /// The only subject, where nothing else is part of the step.
    pub(crate) fn only_part(&self) -> Option<&Plan> {
        match &self.parts[..] {
            [only] if self.opened.is_empty() && self.settings.is_empty() => Some(only),
            _ => None,
        }
    }

    fn part(&self, subject: SubjectId) -> Option<&Plan> {
        let found = self.parts.binary_search_by_key(&subject, |part| part.subject).ok()?;
        self.parts.get(found)
    }
}

/// What is left on accounts where all that is adopted is more than can be counted.
type Left = BTreeMap<AccountId, Amount>;

impl Planner<'_> {
    /// Decides the step. Changes nothing, and more may be planned afterwards, whatever the answer is.
    ///
    /// Only an account that grows by what may be refused can refuse: it is asked about the sum of all parts, under the
    /// limit that it will have. What is adopted is counted first.
    pub fn decide(&self) -> Result<StepPlan, Denied> {
        none_of(self.faults())?;
        none_of(self.too_many())?;
        none_of(self.over_limit())?;
        none_of(self.served().refusals.iter().map(|(charge, reason)| self.refusal(*charge, *reason)).collect())?;

        let (mut opened, mut settings) = (Vec::new(), Vec::new());
        for (account, entry) in &self.settings {
            match self.ledger.get(*account) {
                None => opened.push((*account, entry.clone())),
                Some(now) if now.limit == entry.limit && now.discounts == entry.discounts => {}
                Some(_) => settings.push((*account, entry.limit, entry.discounts)),
            }
        }
        let mut left = self.cut_accounts();
        let decided_at = self.ledger.sequence;
        let mut parts: Vec<Plan> = Vec::with_capacity(self.parts.len());
        for (index, Part { subject, slot, .. }) in self.parts.iter().enumerate() {
            let verdict = self.verdict_within(index, &mut left);
            parts.push(Plan { decided_at, subject: *subject, slot: *slot, verdict });
        }
        // One part alone exchanges what it has in one go: no sum is beyond anything, or at zero, on the way.
        let are_several = parts.len() > 1;
        let gives_back_first = are_several && self.is_beyond_on_the_way();
        let formats = if are_several { self.formats(&parts) } else { Vec::new() };
        parts.sort_by_key(|part| part.subject);
        Ok(StepPlan { decided_at, opened, settings, parts, formats, gives_back_first })
    }

    /// What becomes of one part.
    pub(crate) fn verdict(&self, index: usize) -> Verdict {
        let is_cut =
            |line: &Line| self.tallies.get(&line.account).is_some_and(|tally| self.is_cut(line.account, tally));
        let mut left = Left::new();
        if let Ask::Charge { wanted, .. } = &self.parts[index].ask
            && wanted.adopted.iter().any(is_cut)
        {
            left = self.cut_accounts();
            for earlier in &self.parts[..index] {
                if let Ask::Charge { wanted, .. } = &earlier.ask {
                    self.adopted_lines(earlier, wanted, &mut left);
                }
            }
        }
        self.verdict_within(index, &mut left)
    }

    fn verdict_within(&self, index: usize, left: &mut Left) -> Verdict {
        let part = &self.parts[index];
        match &part.ask {
            Ask::Unchanged(verdict) => verdict.clone(),
            Ask::Faulty(_) => {
                let (outcome, sequence) = (Outcome::Granted, self.ledger.sequence);
                Verdict::Unchanged { outcome, sequence }
            }
            Ask::Release => Verdict::Release,
            Ask::Charge { standing: Standing::Held { .. }, .. } => {
                let (lines, pending) = self.certain(part).unwrap_or_default();
                match pending {
                    Some(pending) => Verdict::Hold { lines, pending: Box::new(pending) },
                    None => Verdict::Charge { lines },
                }
            }
            Ask::Charge { wanted, standing } => {
                let lines = overlaid(&wanted.enforced, &self.adopted_lines(part, wanted, left));
                let in_line = &wanted.in_line;
                match standing.wait().filter(|_| self.served().queues(index)) {
                    None => Verdict::Charge { lines: overlaid(&lines, in_line) },
                    Some(wait) => {
                        let lines = overlaid(&lines, &smaller_of(self.occupied(part), in_line));
                        let pending = Pending::Wait { wait: wait.clone(), wanted: in_line.clone() };
                        Verdict::Queue { lines, pending: Box::new(pending) }
                    }
                }
            }
        }
    }

    /// What a part adopts, cut where all that is adopted goes beyond the number type: who was named first comes first.
    fn adopted_lines(&self, part: &Part, wanted: &Wanted, left: &mut Left) -> Lines {
        let mut lines = wanted.adopted.clone();
        for line in &mut lines {
            let had = amount_on(self.occupied(part), line.account);
            if let Some(left) = left.get_mut(&line.account).filter(|_| line.amount() > had) {
                let growth = Wide::default().plus(line.amount()).minus(had);
                let growth = if growth.exceeds(*left) { *left } else { growth.nearest() };
                *left = difference(*left, growth);
                *line = Line::new(line.account, sum(had, growth), line.format());
            }
        }
        lines.retain(|line| !line.amount().is_zero());
        lines
    }

    fn cut_accounts(&self) -> Left {
        let cut = self.tallies.iter().filter(|(account, tally)| self.is_cut(**account, tally));
        cut.map(|(account, tally)| (*account, self.adopted(*account, tally))).collect()
    }

    fn is_cut(&self, account: AccountId, tally: &Tally) -> bool {
        tally.adopted.is_positive() && tally.adopted.exceeds(self.adopted(account, tally))
    }

    /// How many of those who adopt on an account come away with nothing, because the number type has no more.
    pub(crate) fn cut_off(&self, account: AccountId, tally: &Tally) -> i64 {
        if !self.is_cut(account, tally) {
            return 0;
        }
        let is_on = |line: &Line| line.account == account;
        let cut_off = (0..self.parts.len()).filter(|index| match &self.parts[*index].ask {
            Ask::Charge { wanted, .. } => {
                wanted.adopted.iter().any(is_on) && !self.verdict(*index).lines().iter().any(is_on)
            }
            _ => false,
        });
        cut_off.map(|_| 1).sum()
    }

    fn faults(&self) -> Vec<Refusal> {
        let faulty = self.parts.iter().filter_map(|part| match &part.ask {
            Ask::Faulty(denied) => Some(&denied.lines),
            _ => None,
        });
        faulty.flatten().cloned().collect()
    }

    /// Who comes when the ledger has no place left.
    fn too_many(&self) -> Vec<Refusal> {
        let new = self.parts.iter().filter_map(|part| match &part.ask {
            Ask::Charge { wanted, .. } if part.slot.is_none() => Some(wanted),
            _ => None,
        });
        if self.ledger.subjects.len() + new.clone().count() <= SUBJECTS_MAX {
            return Vec::new();
        }
        new.flat_map(|wanted| wanted.all()).map(|line| self.refusal(line.charge(), Reason::Full)).collect()
    }

    /// The accounts on which all that may be refused does not fit.
    fn over_limit(&self) -> Vec<Refusal> {
        let mut refusals = Vec::new();
        for (account, tally) in self.tallies.iter().filter(|(_, tally)| tally.enforced.is_positive()) {
            let entry = self.known_entry(*account);
            let adopted = self.adopted(*account, tally);
            let (most, reason) = match entry.limit {
                Limit::Enforced(limit) => (limit, Reason::OverLimit),
                Limit::Unlimited | Limit::Observed(_) => (AMOUNT_MAX, Reason::Overflow),
            };
            if tally.enforced.plus(entry.occupied()).plus(adopted).exceeds(most) {
                let charge = Charge::new(*account, tally.enforced.nearest(), self.asked_format(*account));
                let mut refusal = self.refusal(charge, reason);
                refusal.used = sum(refusal.used, adopted);
                refusals.push(refusal);
            }
        }
        refusals
    }

    /// How the first who asks for more of an account wrote it.
    fn asked_format(&self, account: AccountId) -> Format {
        let grown = self.parts.iter().find_map(|part| {
            let (lines, _) = self.certain(part)?;
            let line = lines.iter().find(|line| line.account == account).copied()?;
            (line.amount() > amount_on(self.occupied(part), account)).then(|| line.format())
        });
        grown.unwrap_or_default()
    }

    /// A sum stays as it is printed; where there was none, it is printed as the first of the step's charges.
    fn formats(&self, parts: &[Plan]) -> Vec<(AccountId, Format)> {
        let mut formats: BTreeMap<AccountId, Format> = BTreeMap::new();
        for line in parts.iter().flat_map(|part| part.verdict.lines()) {
            formats.entry(line.account).or_insert_with(|| {
                let entry = self.known_entry(line.account);
                if entry.used.is_zero() && entry.held.is_zero() { line.format() } else { entry.format }
            });
        }
        formats.into_iter().collect()
    }

    fn is_beyond_on_the_way(&self) -> bool {
        let most = |account: AccountId, growth: Wide| growth.plus(self.known_entry(account).occupied());
        let taken = |account: &AccountId| self.served().on(*account).taken;
        let at_once = self.tallies.iter().map(|(account, tally)| most(*account, tally.gross).plus(taken(account)));
        let later = self.served().taken().map(|(account, taken)| most(account, Wide::default()).plus(taken));
        at_once.chain(later).any(|most| most.exceeds(AMOUNT_MAX))
    }
}

fn none_of(refusals: Vec<Refusal>) -> Result<(), Denied> {
    if refusals.is_empty() { Ok(()) } else { Err(Denied::of(refusals)) }
}
