//! What a start finds in the store: the ledger's rows, for what is held, and which holds are still to be decided. Everything
//! else is counted again from what the cluster lists.

use ledger::Ledger;
use store::{Batch, Store, StoreError, Table};

use crate::holds::Holds;

pub struct Journal {
    pub ledger: Ledger,
    pub holds: Holds,
    pub identity: Identity,
}

/// Who an operator is, by its store: two that decide apart must not decide for one cluster.
pub struct Identity {
    pub name: String,
    is_stored: bool,
}

impl Identity {
    /// Its row, the first time.
    pub fn save(&mut self, batch: &mut Batch) {
        if !std::mem::replace(&mut self.is_stored, true) {
            batch.put(Table::META, IDENTITY_ROW, self.name.as_bytes());
        }
    }
}

const IDENTITY_ROW: &[u8] = b"operator";

#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the stored ledger cannot be read: {0}")]
    Ledger(#[from] ledger::LoadError),
    #[error("a stored hold cannot be read: {0}")]
    Hold(#[from] serde_json::Error),
    #[error(
        "the store has objects in it, which are a control plane's and not an operator's: give the operator a folder of its own"
    )]
    ControlPlane,
}

impl Journal {
    /// A store without a name gets the new one.
    pub fn load(store: &mut dyn Store, new_name: &str) -> Result<Journal, JournalError> {
        let identity = Identity { name: new_name.to_owned(), is_stored: false };
        let mut journal = Journal { ledger: Ledger::default(), holds: Holds::default(), identity };
        let mut rows = Vec::<(Box<[u8]>, Box<[u8]>)>::new();
        let mut wrong = None;
        store.load(&mut |table, key, value| match table {
            Table::LEDGER => rows.push((key.into(), value.into())),
            Table::META if key == IDENTITY_ROW => {
                let name = String::from_utf8_lossy(value).into_owned();
                journal.identity = Identity { name, is_stored: true };
            }
            Table::META => {
                if let Some(Err(error)) = journal.holds.load(key, value) {
                    wrong = Some(JournalError::Hold(error));
                }
            }
            Table::OBJECTS => wrong = Some(JournalError::ControlPlane),
            _ => {}
        })?;
        if let Some(wrong) = wrong {
            return Err(wrong);
        }
        journal.ledger = Ledger::load(rows.iter().map(|(key, value)| (&**key, &**value)))?;
        Ok(journal)
    }
}
