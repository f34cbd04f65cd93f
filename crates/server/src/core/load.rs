//! From stored rows back to a running engine.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use engine::{Fact, Loaded, Object, ObjectKey};
use families::Families;
use ledger::Ledger;
use rules::GroupResource;
use store::{Store, StoreError, Table};

use super::cache::Cache;
use super::encryption::{DecryptError, Encryption};
use super::engine::{CLOCK_ROW, Engine, MEASURING_ROW, REVISION_ROW};
use super::row::{DUE_ROW, decode};

/// The least that is added to the revision of a restored store. Clients may have seen revisions that the backup does not know;
/// none of them may come again with another meaning. A week at 1 600 writes a second; etcd recommends the same for its own.
const REWOUND_BY: u64 = 1_000_000_000;

/// A row of the ledger, kept until all of them are read.
pub(super) type KeyValue = (Box<[u8]>, Box<[u8]>);

/// Why stored state could not be taken up.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the stored object {0} cannot be read: the data was written by another version, or is damaged")]
    Object(String),
    #[error("the stored object {object} {why}")]
    Encrypted { object: String, why: DecryptError },
    #[error("the stored ledger cannot be read: {0}")]
    Ledger(#[from] ledger::LoadError),
}

impl Engine {
    /// Reads everything back. The cache starts with exactly what was acknowledged.
    pub fn load(store: &mut dyn Store, families: Families) -> Result<(Engine, Cache), LoadError> {
        Engine::load_encrypted(store, families, Arc::default())
    }

    /// [`Engine::load`] of a store whose objects may be encrypted.
    pub fn load_encrypted(
        store: &mut dyn Store,
        families: Families,
        encryption: Arc<Encryption>,
    ) -> Result<(Engine, Cache), LoadError> {
        let Rows { loaded, last, outdated } = Rows::read(store, &encryption)?;
        let cache = Cache::new(loaded.objects.iter().cloned(), &last, loaded.revision);
        let (engine, effects) = engine::Engine::start(loaded, families);
        cache.publish_balances(effects.balances, &[]);
        let space = store.space();
        Ok((Engine { engine, last_changes: BTreeMap::new(), space, encryption, outdated }, cache))
    }
}

/// What a store has.
pub(super) struct Rows {
    pub loaded: Loaded,
    /// The revision of the last change of each resource.
    last: HashMap<GroupResource, u64>,
    outdated: Vec<ObjectKey>,
}

impl Rows {
    pub fn read(store: &mut dyn Store, encryption: &Encryption) -> Result<Rows, LoadError> {
        let mut loaded = Loaded::default();
        let mut ledger_rows: Vec<KeyValue> = Vec::new();
        let mut last: HashMap<GroupResource, u64> = HashMap::new();
        let mut unreadable: Option<LoadError> = None;
        let mut outdated = Vec::new();
        store.load(&mut |table, key, value| match table {
            Table::OBJECTS => match read_object(encryption, key, value) {
                Ok((object, current)) => {
                    outdated.extend((!current).then(|| object.key.clone()));
                    loaded.objects.push(Arc::new(object));
                }
                Err(why) => unreadable = Some(why),
            },
            Table::LEDGER => ledger_rows.push((key.into(), value.into())),
            Table::META => {
                let Ok(number) = value.try_into().map(u64::from_le_bytes) else { return };
                if key == REVISION_ROW {
                    loaded.revision = number;
                } else if let Some(resource) = resource_of_row(key) {
                    last.insert(resource, number);
                } else {
                    loaded.facts.extend(fact_of_row(key, number));
                }
            }
            _ => {}
        })?;
        if store.rewound() {
            loaded.revision = beyond(loaded.revision, SystemTime::now());
            last.values_mut().for_each(|last| *last = loaded.revision);
            tracing::warn!(
                revision = loaded.revision,
                "the store was restored from an older backup: revisions go on far above those it knew"
            );
        }
        if let Some(why) = unreadable {
            return Err(why);
        }
        loaded.ledger = Ledger::load(ledger_rows.iter().map(|(key, value)| (&**key, &**value)))?;
        Ok(Rows { loaded, last, outdated })
    }
}

/// The object of a row, and whether it is stored as the configuration of encryption says.
pub(super) fn read_object(encryption: &Encryption, row: &[u8], value: &[u8]) -> Result<(Object, bool), LoadError> {
    let shown = || String::from_utf8_lossy(row).replace('\0', "/");
    let unknown = || LoadError::Object(shown());
    let key = ObjectKey::from_row(row).ok_or_else(unknown)?;
    let opened = encryption.open(&key.resource, row, value);
    let opened = opened.map_err(|why| LoadError::Encrypted { object: shown(), why })?;
    let object = decode(key, opened.plain.as_deref().unwrap_or(value)).ok_or_else(unknown)?;
    Ok((object, opened.current))
}

/// Where the revisions of a restored store go on. One backup may be restored twice, and an older one after a newer: clients
/// remember what each of those servers said, no backup knows, and only the time tells them apart. In millionths of a second,
/// because nobody writes more often than that.
pub(super) fn beyond(revision: u64, now: SystemTime) -> u64 {
    let micros = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros());
    revision.saturating_add(REWOUND_BY).max(u64::try_from(micros).unwrap_or(0))
}

fn fact_of_row(key: &[u8], number: u64) -> Option<Fact> {
    match key {
        MEASURING_ROW => Some(Fact::Measuring(number)),
        CLOCK_ROW => Some(Fact::Clock(number.cast_signed())),
        _ => Some(Fact::Due(ObjectKey::from_row(key.strip_prefix(DUE_ROW)?)?, Some(number.cast_signed()))),
    }
}

fn resource_of_row(key: &[u8]) -> Option<GroupResource> {
    let (group, resource) = std::str::from_utf8(key).ok()?.strip_prefix("last/")?.split_once('/')?;
    Some(GroupResource::new(group, resource))
}
