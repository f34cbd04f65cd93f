//! What a decision reads of accounts: those of the ledger, or those that a step under way would leave.

use crate::account::{Account, AccountId};
use crate::answer::{Denied, Reason, Refusal};
use crate::charge::Charge;
use crate::ledger::Ledger;
use crate::{AccountKey, Limit};
use quantity::Amount;

pub(crate) trait Books {
    fn entry(&self, account: AccountId) -> Option<&Account>;

    /// An account that was looked at before, and is therefore open.
    fn known_entry(&self, account: AccountId) -> &Account {
        self.entry(account).expect("a line names an account that is not open")
    }

    /// The denial, ordered by account key, each account once.
    fn refused_by(&self, refusals: impl IntoIterator<Item = (Charge, Reason)>) -> Denied {
        Denied::of(refusals.into_iter().map(|(charge, reason)| self.refusal(charge, reason)).collect())
    }

    fn refusal(&self, charge: Charge, reason: Reason) -> Refusal {
        let Charge { account, amount: requested, format, .. } = charge;
        match self.entry(account) {
            Some(entry) => {
                let zero = entry.occupied().is_zero();
                let format = if zero { format } else { entry.format };
                let (key, limit, used, held) = (entry.key.clone(), entry.limit, entry.used, entry.held);
                Refusal { account, key, limit, used, held, requested, format, reason }
            }
            None => {
                let key = AccountKey::new("", &format!("account {}", account.index()), "");
                let (used, held, limit) = (Amount::ZERO, Amount::ZERO, Limit::Unlimited);
                Refusal { account, key, limit, used, held, requested, format, reason }
            }
        }
    }
}

impl Books for Ledger {
    #[inline]
    fn entry(&self, account: AccountId) -> Option<&Account> {
        self.get(account)
    }
}
