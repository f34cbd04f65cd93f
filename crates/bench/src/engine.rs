//! The ledger behind a sequencer and a store, and nothing else: what the ledger benchmark measures and the crash test kills.

use std::fmt;

use ledger::{AccountKey, Charge, Ledger, Limit, Loader, Standing, SubjectId};
use quantity::{Amount, Format};
use sequencer::Engine;
use store::{Batch, Store, Table};

/// Every claim charges three accounts.
pub const LINES: usize = 3;

#[derive(Clone, Debug)]
pub enum Command {
    Claim {
        subject: SubjectId,
        charges: [Charge; LINES],
    },
    Release(SubjectId),
    /// Count everything again. Costs as much as the ledger is large.
    Check,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Granted { sequence: u64 },
    Denied,
    Released { sequence: u64 },
    Checked(Result<Totals, String>),
}

/// What the ledger holds, counted from its accounts: an audit has agreed with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Totals {
    pub claims: usize,
    /// The sum over all accounts.
    pub used: Amount,
}

impl fmt::Display for Totals {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} claims, {} charged", self.claims, self.used)
    }
}

pub struct LedgerEngine {
    pub ledger: Ledger,
}

impl LedgerEngine {
    /// Rebuilds the ledger from a store. The ledger audits itself on the way.
    pub fn load(store: &mut dyn Store) -> anyhow::Result<LedgerEngine> {
        let mut loader = Loader::new();
        let mut failure = None;
        store.load(&mut |table, key, value| {
            if table == Table::LEDGER && failure.is_none() {
                failure = loader.row(key, value).err();
            }
        })?;
        match failure {
            Some(failure) => Err(failure.into()),
            None => Ok(LedgerEngine { ledger: loader.finish()? }),
        }
    }

    /// Opens accounts `0..count`, each with that limit, where they do not exist yet.
    pub fn open_accounts(&mut self, count: u32, limit: Amount) -> anyhow::Result<Vec<ledger::AccountId>> {
        (0..count)
            .map(|number| {
                let key = AccountKey::new(&format!("account-{number}"), "units", "");
                match self.ledger.account(&key) {
                    Some(account) => Ok(account),
                    None => Ok(self.ledger.open(key, Limit::Enforced(limit))?),
                }
            })
            .collect()
    }

    pub fn totals(&self) -> Result<Totals, String> {
        self.ledger.audit().map_err(|error| error.to_string())?;
        let mut used = Amount::ZERO;
        for (_, balance) in self.ledger.balances() {
            used = used.checked_add(balance.used).ok_or("the sum of all accounts is out of range")?;
        }
        Ok(Totals { claims: self.ledger.subjects_live(), used })
    }

    pub fn write_changes(&mut self, batch: &mut Batch) {
        self.ledger.drain_changes(&mut |row| {
            batch.push(store::Row { table: Table::LEDGER, key: row.key, value: row.value });
        });
    }
}

impl Engine for LedgerEngine {
    type Command = Command;
    type Answer = Answer;
    type Publication = ();

    fn step(&mut self, command: Command, _batch: &mut Batch, _publication: &mut ()) -> Answer {
        match command {
            Command::Claim { subject, charges } => match self.ledger.charge(subject, &charges, &Standing::Stored) {
                Ok(receipt) => Answer::Granted { sequence: receipt.sequence },
                Err(_) => Answer::Denied,
            },
            Command::Release(subject) => Answer::Released { sequence: self.ledger.release(subject).sequence },
            Command::Check => Answer::Checked(self.totals()),
        }
    }

    fn seal(&mut self, batch: &mut Batch, _publication: &mut ()) {
        self.write_changes(batch);
    }
}

/// One unit of an account.
pub fn unit(account: ledger::AccountId) -> Charge {
    Charge::new(account, Amount::from_units(1), Format::DecimalSi)
}
