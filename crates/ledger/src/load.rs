//! Building a ledger from its rows: any order, nothing believed unseen.

use std::collections::BTreeMap;

use crate::account::{Account, AccountId, AccountKey, KEY_TEXT_BYTES_MAX};
use crate::charge::{Line, SubjectId, amount_on, needs};
use crate::error::LoadError;
use crate::ledger::{Ledger, Share, hash_of, settled_of};
use crate::rows::{ACCOUNT, Fault, META, ROW_VERSION, Reader, SUBJECT, account_key};
use crate::subjects::{Pending, SUBJECTS_MAX};

/// Steps after this are not expected in the lifetime of the hardware; a stored number beyond it is damage, and
/// counting on from it could run over the end.
const SEQUENCE_MAX: u64 = 1 << 62;

/// Takes rows one by one and makes a ledger of them.
#[derive(Debug, Default)]
pub struct Loader {
    ledger: Ledger,
    /// Kept apart until all are known: an index is only believed when the meta row confirms it, because a damaged
    /// one would cost memory in the dense table.
    accounts: BTreeMap<u32, Account>,
    meta: Option<Meta>,
}

#[derive(Debug, Default)]
struct Meta {
    sequence: u64,
    accounts_end: u64,
}

impl Ledger {
    /// Rebuilds a ledger from everything that was drained.
    pub fn load<'a>(rows: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Result<Ledger, LoadError> {
        let mut loader = Loader::default();
        for (key, value) in rows {
            loader.row(key, value)?;
        }
        loader.finish()
    }
}

impl Loader {
    pub fn new() -> Loader {
        Loader::default()
    }

    /// Takes one row. Rows may come in any order.
    pub fn row(&mut self, key: &[u8], value: &[u8]) -> Result<(), LoadError> {
        match value.first() {
            Some(&ROW_VERSION) => {}
            Some(&version) => return Err(LoadError::Version { key: shown(key), version }),
            None => return Err(LoadError::Row { key: shown(key), what: "it is empty" }),
        }
        let value = &value[1..];
        match key.split_first() {
            Some((&ACCOUNT, index)) => self.account(index, value),
            Some((&SUBJECT, id)) => self.subject(id, value),
            Some((&META, [])) => self.meta(value),
            _ => Err("its key is of no known kind"),
        }
        .map_err(|what| LoadError::Row { key: shown(key), what })
    }

    /// Connects everything and audits the result.
    pub fn finish(self) -> Result<Ledger, LoadError> {
        let Loader { mut ledger, accounts, meta } = self;
        let meta = meta.unwrap_or_default();
        ledger.sequence = meta.sequence;
        for (index, entry) in accounts {
            let account = AccountId(index);
            if u64::from(index) >= meta.accounts_end {
                return Err(LoadError::Row { key: shown(&account_key(account)), what: "no such account was opened" });
            }
            if let Some(first) = ledger.account(&entry.key) {
                return Err(LoadError::SameKey { first, second: account });
            }
            let hash = hash_of(&entry.key);
            ledger.vacant.extend((0..index).skip(ledger.accounts.len()));
            ledger.accounts.resize_with(account.at(), || None);
            ledger.accounts.push(Some(entry));
            ledger.index_account(account, hash);
        }
        for slot in ledger.subjects.slots() {
            ledger.connect(slot)?;
        }
        ledger.audit()?;
        Ok(ledger)
    }

    fn account(&mut self, index: &[u8], value: &[u8]) -> Result<(), Fault> {
        let index: [u8; 4] = index.try_into().map_err(|_| "an account key has four bytes")?;
        let account = AccountId(u32::from_be_bytes(index));
        let mut reader = Reader::new(value);
        let (format, (limit, discounts)) = (reader.format()?, reader.limit()?);
        let mut text = || reader.text(KEY_TEXT_BYTES_MAX);
        let key = AccountKey { policy: text()?.into(), resource: text()?.into(), bucket: text()?.into() };
        reader.end()?;
        let entry = Account { discounts, ..Account::new(key, limit, format) };
        match self.accounts.insert(account.0, entry) {
            Some(_) => Err("it is stored twice"),
            None => Ok(()),
        }
    }

    fn subject(&mut self, id: &[u8], value: &[u8]) -> Result<(), Fault> {
        let id: [u8; 16] = id.try_into().map_err(|_| "a subject key has sixteen bytes")?;
        let id = SubjectId(u128::from_be_bytes(id));
        let mut reader = Reader::new(value);
        let row = reader.subject()?;
        reader.end()?;
        if row.sequence == 0 {
            return Err("no step made it");
        }
        match &row.pending {
            Some(Pending::Wait { wanted, .. }) => {
                let has_more = |line: &Line| amount_on(&row.lines, line.account) > line.amount();
                if wanted.iter().any(|line| line.amount().is_negative() || has_more(line)) {
                    return Err("it waits for less than it has");
                }
                if wanted.is_empty() {
                    return Err("it has no lines");
                }
                if needs(&row.lines, wanted).next().is_none() {
                    return Err("it waits for nothing");
                }
            }
            _ if row.lines.is_empty() => return Err("it has no lines"),
            _ => {}
        }
        if self.ledger.subjects.find(id).is_some() {
            return Err("it is stored twice");
        }
        if self.ledger.subjects.len() >= SUBJECTS_MAX {
            return Err("there are too many subjects");
        }
        let slot = self.ledger.subjects.insert(id, row.sequence);
        let subject = self.ledger.subjects.get_mut(slot);
        subject.lines = row.lines;
        subject.pending = row.pending.map(Box::new);
        Ok(())
    }

    fn meta(&mut self, value: &[u8]) -> Result<(), Fault> {
        let mut reader = Reader::new(value);
        let (sequence, accounts_end) = (reader.u64()?, reader.u64()?);
        reader.end()?;
        if sequence > SEQUENCE_MAX {
            return Err("the last step is beyond any that was taken");
        }
        match self.meta.replace(Meta { sequence, accounts_end }) {
            Some(_) => Err("it is stored twice"),
            None => Ok(()),
        }
    }
}

impl Ledger {
    /// Adds a read subject to the sums, rosters, lines of waiters and expiries.
    fn connect(&mut self, slot: u32) -> Result<(), LoadError> {
        let subject = self.subjects.get_mut(slot);
        let (id, sequence) = (subject.id(), subject.sequence);
        if sequence > self.sequence {
            return Err(LoadError::FromTheFuture { subject: id, sequence, last: self.sequence });
        }
        let mut lines = std::mem::take(&mut subject.lines);
        let pending = subject.pending.take();
        let settled = settled_of(pending.as_deref());
        for line in &mut lines {
            let account = line.account;
            let share = Share::of(account, Some(line), settled);
            let entry = self.get_mut(account).ok_or(LoadError::MissingAccount { subject: id, account })?;
            if !entry.may_be_charged(line.amount()) {
                return Err(LoadError::Overflow { account });
            }
            let used = entry.used.checked_add(share.used);
            let held = entry.held.checked_add(share.held);
            let sums = used.zip(held).filter(|(used, held)| used.checked_add(*held).is_some());
            (entry.used, entry.held) = sums.ok_or(LoadError::Overflow { account })?;
            line.set_place(entry.roster.len());
            entry.roster.push(slot);
        }
        if let Some(Pending::Wait { wanted, .. }) = pending.as_deref()
            && let Some(line) = wanted.iter().find(|line| self.get(line.account).is_none())
        {
            return Err(LoadError::MissingAccount { subject: id, account: line.account });
        }
        self.enter_pending(slot, id, &lines, pending.as_deref());
        let subject = self.subjects.get_mut(slot);
        subject.lines = lines;
        subject.pending = pending;
        Ok(())
    }
}

fn shown(key: &[u8]) -> String {
    let bytes_max = 24;
    key.iter().take(bytes_max).map(|byte| format!("{byte:02x}")).collect()
}
