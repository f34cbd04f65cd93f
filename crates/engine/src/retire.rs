//! Accounts and names that are in nobody's way any more, and are let go of in parts: what a hundred thousand objects were
//! charged by a policy that is gone.
//!
//! Retired accounts have names that no policy has. Their charges go when the object is written, or when they are swept; a start
//! finds them by their names.

use std::sync::Arc;

use ledger::{AccountId, AccountKey, Outcome};
use rules::{Compiled, PolicyId};

use crate::engine::Engine;

/// Subjects that let go of what they had on retired accounts in one step.
const SWEPT_MAX: usize = 256;

/// How the names of retired accounts begin.
const RETIRED: &str = "~r";

#[derive(Default)]
pub(crate) struct Retired {
    accounts: Vec<AccountId>,
    /// Policies that are gone but for the names of what they counted.
    policies: Vec<(PolicyId, Arc<str>)>,
}

impl Retired {
    pub fn is_empty(&self) -> bool {
        self.accounts.is_empty() && self.policies.is_empty()
    }
}

/// Whether a policy's name is that of nothing a user made: of a shadow, or of what is retired.
pub(crate) fn is_nobodys(policy: &str) -> bool {
    policy.starts_with('~')
}

impl Engine {
    /// Takes a policy out of the rulebook, with all it has.
    pub(crate) fn retire_policy(&mut self, name: &Arc<str>) {
        let Some(id) = self.rulebook.id(name) else { return };
        self.policies.remove(id);
        if self.counted.count(id) <= self.at_once_max {
            self.rulebook.remove(name);
            self.counted.forget(id);
        } else {
            // Nobody else gets its place before the last of the names is forgotten.
            let kept = self.unused_name(RETIRED);
            let nothing = Compiled { accounts: Vec::new(), rules: Vec::new(), fingerprint: Vec::new(), until_ms: None };
            self.rulebook.rename(name, kept.clone());
            self.rulebook.install(kept.clone(), nothing);
            self.retired.policies.push((id, kept));
            self.effects.stale_status = true;
        }
        self.retire(self.ledger.accounts_of(name).collect());
    }

    /// Closes accounts: now, or later where that would be much to do.
    pub(crate) fn retire(&mut self, accounts: Vec<AccountId>) {
        let charged = |account: &AccountId| self.ledger.balance(*account).map_or(0, |balance| balance.subjects);
        let is_much = accounts.iter().map(charged).sum::<usize>() > self.at_once_max;
        for account in accounts {
            let Some(balance) = self.ledger.balance(account) else { continue };
            if is_much && balance.subjects > 0 && balance.waiting == 0 {
                let policy = self.unused_name(RETIRED);
                self.rename_account(account, AccountKey { policy, resource: "".into(), bucket: "".into() });
                self.retired.accounts.push(account);
                self.effects.stale_status = true;
                continue;
            }
            match self.ledger.close(account) {
                Ok(receipt) => self.note_receipt(&receipt),
                Err(error) => tracing::error!(%error, "an account could not be closed: a bug"),
            }
        }
    }

    pub(crate) fn rename_account(&mut self, account: AccountId, key: AccountKey) {
        if let Err(error) = self.ledger.rename(account, key) {
            tracing::error!(%error, "an account could not be renamed: a bug");
        }
    }

    /// A name that nothing in ledger and rulebook has.
    pub(crate) fn unused_name(&mut self, prefix: &str) -> Arc<str> {
        loop {
            self.names_given += 1;
            let name: Arc<str> = format!("{prefix}{}", self.names_given).into();
            if self.ledger.accounts_of(&name).next().is_none() && self.rulebook.id(&name).is_none() {
                return name;
            }
        }
    }

    /// Lets go of some of what is retired; how many more steps that takes.
    pub(crate) fn sweep(&mut self) -> usize {
        let mut left = SWEPT_MAX;
        while let Some(account) = self.retired.accounts.last().copied()
            && left > 0
        {
            let before = self.ledger.balance(account).map_or(0, |balance| balance.subjects);
            match self.ledger.sweep(account, |key| key.policy.starts_with(RETIRED), left) {
                Ok(receipt) => {
                    if receipt.outcome == Outcome::Closed {
                        self.retired.accounts.pop();
                    }
                    self.note_receipt(&receipt);
                }
                Err(error) => {
                    tracing::error!(%error, "a retired account could not be swept: a bug");
                    self.retired.accounts.pop();
                }
            }
            left = left.saturating_sub(before.max(1));
        }
        while let Some((id, name)) = self.retired.policies.last().cloned()
            && left > 0
        {
            left = left.saturating_sub(self.counted.forget_some(id, left).max(1));
            if self.counted.count(id) == 0 {
                self.counted.forget(id);
                self.rulebook.remove(&name);
                self.retired.policies.pop();
            }
        }
        let subjects = |account: &AccountId| self.ledger.balance(*account).map_or(0, |balance| balance.subjects);
        let most = self.retired.accounts.iter().map(subjects).max().unwrap_or_default();
        let names = self.retired.policies.iter().map(|(id, _)| self.counted.count(*id)).sum::<usize>();
        let steps = (most + names).div_ceil(SWEPT_MAX) + self.retired.accounts.len().div_ceil(SWEPT_MAX);
        self.effects.stale_status |= steps > 0;
        steps
    }
}
