//! What is durable, row by row, as it must be found after every crash: the groups that were acknowledged, applied to plain
//! maps.

use std::collections::BTreeMap;
use std::sync::Arc;

use ledger::{Ledger, SubjectId};
use rules::GroupResource;
use serde_json::Value;
use server::core::{Decided, EventKind, ObjectKey, row};
use store::{Batch, Journal, Journals, PageLimit, StoreError, Table};

use super::holds::{Granted, News};
use super::naive::{Stored, Sums};
use super::naive_datum::MAX_AGE_MS;
use super::naive_karmada::until_ms;
use super::season;

pub const JOURNAL: Journal = Journal::EVENTS;
/// Entries read at once.
const PAGE: PageLimit = PageLimit { entries: 64, bytes: 16 * 1024 };

type Rows = BTreeMap<(Table, Vec<u8>), Vec<u8>>;

/// One object as its row has it.
#[derive(Clone, Debug)]
pub struct Kept {
    pub key: ObjectKey,
    pub uid: SubjectId,
    pub revision: u64,
    pub born: u64,
    pub value: Arc<Value>,
}

/// What an event told watchers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    pub kind: EventKind,
    pub key: ObjectKey,
    pub revision: u64,
}

/// What one group adds.
#[derive(Clone, Default)]
pub struct Added {
    pub batch: Batch,
    pub events: Vec<Told>,
    /// The latest time the engine had been told when the group was decided, and by whose reading it decided.
    pub told_ms: i64,
    pub strict: bool,
    /// Whether it is the first group after a start.
    pub is_first: bool,
    /// What it did with holds, how many steps the ledger took, and what was counted as decided.
    pub holds: Vec<News>,
    pub steps: u64,
    pub decided: Decided,
}

#[derive(Clone, Default)]
pub struct Durable {
    pub rows: Rows,
    pub objects: BTreeMap<ObjectKey, Kept>,
    pub entries: Vec<Vec<u8>>,
    /// What is to be told to others of usage.
    pub metering: Vec<Vec<u8>>,
    /// The events of all time; the last one's number is the revision.
    pub history: Vec<Told>,
    pub told_ms: i64,
    pub strict: bool,
    /// What is held for objects that others store.
    pub holds: BTreeMap<SubjectId, Granted>,
    /// What each subject was charged when it was last looked at.
    pub had: BTreeMap<SubjectId, Sums>,
}

impl Durable {
    pub fn revision(&self) -> u64 {
        self.history.last().map_or(0, |told| told.revision)
    }

    pub fn apply(&mut self, added: &Added) -> Result<(), String> {
        let before = self.objects.clone();
        for row in added.batch.rows() {
            let place = (row.table, row.key.to_vec());
            match row.value {
                Some(value) => drop(self.rows.insert(place, value.to_vec())),
                None => drop(self.rows.remove(&place)),
            }
            if row.table == Table::OBJECTS {
                let key = ObjectKey::from_row(row.key).ok_or("a row has a key that nobody can read")?;
                match row.value {
                    Some(value) => drop(self.objects.insert(key.clone(), kept(key, value)?)),
                    None => drop(self.objects.remove(&key)),
                }
            }
        }
        let of = |journal: Journal| added.batch.entries().filter(move |entry| entry.journal == journal);
        self.entries.extend(of(JOURNAL).map(|entry| entry.value.to_vec()));
        self.metering.extend(of(Journal::METERING).map(|entry| entry.value.to_vec()));
        for told in &added.events {
            if told.revision != self.revision() + 1 {
                return Err(format!("A8: {told:?} follows on revision {}", self.revision()));
            }
            self.history.push(told.clone());
        }
        (self.told_ms, self.strict) = (added.told_ms, added.strict);
        self.apply_holds(added, &before);
        Ok(())
    }

    /// Whether it is this that a start found.
    pub fn is(&self, rows: &Rows) -> Result<(), String> {
        let differs = |place: &&(Table, Vec<u8>)| self.rows.get(*place) != rows.get(*place);
        match self.rows.keys().chain(rows.keys()).find(differs) {
            None => Ok(()),
            Some(place) => {
                let length = |rows: &Rows| rows.get(place).map(Vec::len);
                let (known, found) = (length(&self.rows), length(rows));
                let (table, key) = (place.0.0, String::from_utf8_lossy(&place.1).replace('\0', "/"));
                Err(format!("A7: row {key:?} of table {table} has {found:?} bytes, and had {known:?}"))
            }
        }
    }

    /// Whether the journal has every entry, in order.
    pub fn has_entries(&self, journals: &Journals) -> Result<Result<(), String>, StoreError> {
        for (journal, known) in [(JOURNAL, &self.entries), (Journal::METERING, &self.metering)] {
            let mut found = Vec::new();
            loop {
                let page = journals.forward(journal, found.len() as u64 + 1, PAGE)?;
                if page.entries.is_empty() {
                    break;
                }
                found.extend(page.entries.into_iter().map(|entry| entry.value));
            }
            if found != *known {
                let (count, known) = (found.len(), known.len());
                return Ok(Err(format!("A7: {known} entries were appended, {count} are there")));
            }
        }
        Ok(Ok(()))
    }

    pub fn ledger(&self) -> Result<Ledger, String> {
        let rows = self.rows.iter().filter(|((table, _), _)| *table == Table::LEDGER);
        Ledger::load(rows.map(|((_, key), value)| (key.as_slice(), value.as_slice())))
            .map_err(|error| error.to_string())
    }

    pub fn stored(&self) -> Stored {
        let mut objects: BTreeMap<String, Vec<Arc<Value>>> = BTreeMap::new();
        for kept in self.objects.values() {
            objects.entry(kept.key.resource.to_string()).or_default().push(kept.value.clone());
        }
        Stored { objects, now_ms: self.told_ms, strict: self.strict }
    }

    pub fn get(&self, group: &str, resource: &str, namespace: &str, name: &str) -> Option<&Kept> {
        self.objects.get(&ObjectKey::new(GroupResource::new(group, resource), namespace, name))
    }

    /// Whether something means something else by this time than by the one that was told last.
    pub fn has_moments_until(&self, now_ms: i64) -> bool {
        let came = |at: Option<i64>| at.is_some_and(|at| self.told_ms < at && at <= now_ms);
        let mut opened = self.of(season::GROUP, "seasons").map(|one| one.value["spec"]["opensMs"].as_i64());
        let mut ended = self.of(season::GROUP, "tickets").map(|one| one.value["spec"]["untilMs"].as_i64());
        let kept = self.of("quota.datumapis.com", "effectivequotagrants");
        let mut samples = kept.flat_map(|kept| kept.value["spec"]["usage"].as_array().into_iter().flatten());
        let over = |sample: &Value| sample["recordedAtMs"].as_i64().map(|at| at + MAX_AGE_MS + 1);
        let mut valid = self.of("policy.karmada.io", "federatedquotaslices").map(|slice| until_ms(&slice.value));
        let mut holds = self.holds.values().map(|granted| Some(granted.expires_at_ms));
        holds.any(came)
            || valid.any(came)
            || opened.any(came)
            || ended.any(came)
            || samples.any(|sample| came(over(sample)))
    }

    pub fn of<'a>(&'a self, group: &'a str, resource: &'a str) -> impl Iterator<Item = &'a Kept> {
        self.objects.values().filter(move |kept| kept.key.resource.is(group, resource))
    }
}

fn kept(key: ObjectKey, stored: &[u8]) -> Result<Kept, String> {
    let object = row::decode(key.clone(), stored).ok_or_else(|| format!("the row of {key} cannot be read"))?;
    let value = object.read().map_err(|error| error.to_string())?;
    Ok(Kept { key, uid: object.uid, revision: object.revision, born: object.born, value: Arc::new(value) })
}
