//! How much of one object is counted.

use families::{DenialReason, Operation};
use ledger::{CHARGE_MAX, Limit, SubjectId, Terms};
use quantity::{Amount, Quantity};
use rules::Verdict;

use crate::command::Refused;
use crate::engine::Engine;

/// What an object takes of an account, as far as it is counted: so little that all objects together stay within the number
/// type, in whatever order they come and go. Otherwise what is counted last would be counted short, for good.
pub(crate) fn counted(amount: Amount) -> Amount {
    amount.min(CHARGE_MAX).max(Amount::from_nanos(-CHARGE_MAX.nanos()))
}

impl Engine {
    /// Refuses an object that takes more than is counted of one, unless it is counted with as much already.
    pub(crate) fn check_countable(
        &self,
        verdict: &Verdict,
        uid: SubjectId,
        terms: Option<Terms>,
    ) -> Result<(), Refused> {
        if terms == Some(Terms::Adopted) {
            return Ok(());
        }
        let beyond = verdict.lines.iter().filter(|line| line.bucket.is_none() && counted(line.amount) != line.amount);
        for line in beyond {
            let (charges, _) = self.policies.charges(&self.ledger, std::slice::from_ref(line), Terms::Enforced);
            let Some(charge) = charges.first() else { continue };
            let had = self.ledger.subject(uid).map_or_else(Vec::new, |view| view.charges);
            let had = had.iter().any(|had| had.account == charge.account && had.amount == charge.amount);
            let enforced =
                self.ledger.balance(charge.account).is_some_and(|one| matches!(one.limit, Limit::Enforced(_)));
            let denial = self.rulebook.name(line.policy).and_then(|name| self.policies.denial(name, Operation::Update));
            let (Some(mut denial), Some(key), true) = (denial, self.ledger.key(charge.account), enforced && !had)
            else {
                continue;
            };
            let (asked, most) = (Quantity::new(line.amount, line.format), Quantity::new(charge.amount, line.format));
            denial.message = Some(format!("{key}: {asked} is more than can be counted of one object, which is {most}"));
            denial.reason = DenialReason::Overflow;
            return Err(Refused::Denied(vec![denial]));
        }
        Ok(())
    }
}
