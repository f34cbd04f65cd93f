//! From stored rows back to a running engine.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use families::Families;
use ledger::{Ledger, SubjectId};
use rules::cel::Foresight;
use rules::{GroupResource, Rulebook};
use store::{Space, Store, StoreError, Table};

use super::cache::Cache;
use super::counted::CountedObjects;
use super::encryption::{DecryptError, Encryption};
use super::engine::Engine;
use super::event::{Decided, Publication};
use super::identity::named_uid;
use super::install::Places;
use super::object::{Object, ObjectKey};
use super::policies::Policies;
use super::status::{CLOCK_ROW, MEASURING_ROW, REVISION_ROW};

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
        let mut objects: Vec<Arc<Object>> = Vec::new();
        let mut ledger_rows: Vec<KeyValue> = Vec::new();
        let mut last: HashMap<GroupResource, u64> = HashMap::new();
        let mut revision = 0;
        let mut measured_by = None;
        let mut judged_ms = 0;
        let mut unreadable: Option<LoadError> = None;
        let mut outdated = Vec::new();
        store.load(&mut |table, key, value| match table {
            Table::OBJECTS => match read_object(&encryption, key, value) {
                Ok((object, current)) => {
                    outdated.extend((!current).then(|| object.key.clone()));
                    objects.push(Arc::new(object));
                }
                Err(why) => unreadable = Some(why),
            },
            Table::LEDGER => ledger_rows.push((key.into(), value.into())),
            Table::META => {
                let Ok(number) = value.try_into().map(u64::from_le_bytes) else { return };
                if key == REVISION_ROW {
                    revision = number;
                } else if key == MEASURING_ROW {
                    measured_by = Some(number);
                } else if key == CLOCK_ROW {
                    judged_ms = number.cast_signed();
                } else if let Some(resource) = resource_of_row(key) {
                    last.insert(resource, number);
                }
            }
            _ => {}
        })?;
        if store.rewound() {
            revision = beyond(revision, SystemTime::now());
            last.values_mut().for_each(|last| *last = revision);
            tracing::warn!(
                revision,
                "the store was restored from an older backup: revisions go on far above those it knew"
            );
        }
        if let Some(why) = unreadable {
            return Err(why);
        }
        let ledger = Ledger::load(ledger_rows.iter().map(|(key, value)| (&**key, &**value)))?;
        drop(ledger_rows);
        let mut engine = Engine::empty(families, ledger, revision);
        engine.space = store.space();
        (engine.encryption, engine.outdated) = (encryption, outdated);
        for object in &objects {
            engine.take_up(object);
        }
        let cache = Cache::new(objects.into_iter(), &last, revision);
        let mut publication = Publication::default();
        (engine.clock_ms, engine.is_restored) = (judged_ms, true);
        engine.measuring_unsaved = measured_by != Some(engine.measuring);
        engine.reinstall(&mut publication);
        cache.publish_balances(publication.balances, &[]);
        Ok((engine, cache))
    }

    fn empty(families: Families, ledger: Ledger, revision: u64) -> Engine {
        let policy_resources: HashSet<GroupResource> = families.resources(|manifest| manifest.policies);
        let mut projected_resources = policy_resources.clone();
        projected_resources.extend(families.resources::<HashSet<_>>(|manifest| manifest.projected));
        let measuring = measuring(&families);
        let checks_everything = families.iter().any(|family| family.manifest().checks_everything);
        Engine {
            meaning: families.resources(|manifest| manifest.meaning),
            shaped: families.resources(|manifest| manifest.shaped),
            watched: families.resources(|manifest| manifest.watched),
            keeping: families.resources(|manifest| manifest.keeping),
            naming: families.resources(|manifest| manifest.naming),
            checks_everything,
            families,
            policy_resources,
            projected_resources,
            measuring,
            measuring_unsaved: true,
            clock_ms: 0,
            is_restored: false,
            clock_unsaved: false,
            due: BTreeSet::new(),
            foresight: Foresight::None,
            wanted: Vec::new(),
            wanted_of: serde_json::Value::Null,
            postponed: None,
            shelves: HashMap::new(),
            namespaces: BTreeMap::new(),
            rulebook: Rulebook::new(),
            ledger,
            policies: Policies::default(),
            revision,
            last_changes: BTreeMap::new(),
            stale: BTreeSet::new(),
            written_status: BTreeMap::new(),
            touched: Vec::new(),
            subjects: HashMap::new(),
            changed: Vec::new(),
            reached: Vec::new(),
            behind: BTreeSet::new(),
            woken: Vec::new(),
            counted: CountedObjects::default(),
            trees: RefCell::default(),
            leaving: HashSet::new(),
            space: Space::default(),
            decided: Decided::default(),
            encryption: Arc::default(),
            outdated: Vec::new(),
        }
    }

    fn take_up(&mut self, object: &Arc<Object>) {
        let key = &object.key;
        let place = (key.namespace.clone(), key.name.clone());
        if self.projected_resources.contains(&key.resource) {
            self.subjects.insert(object.uid, key.clone());
            self.stale.insert(key.clone());
        }
        if key.resource.is("", "namespaces") {
            // No policy is installed yet, so that this charges nothing.
            self.namespace_stored(&key.name, &object.value(), &mut Publication::default());
        }
        if key.resource.is("apiextensions.k8s.io", "customresourcedefinitions") {
            self.note_leaving(key, &object.value());
        }
        self.shelves.entry(key.resource.clone()).or_default().insert(place, object.clone());
    }

    /// Puts every stored policy in force again. Accounts and charges come from the stored ledger; only where a policy
    /// has an account the ledger does not know (it was written by an older version) is anything recounted, and only
    /// once all are in force: what an object is charged is replaced as a whole.
    fn reinstall(&mut self, out: &mut Publication) {
        let mut resources: Vec<GroupResource> = self.policy_resources.iter().cloned().collect();
        resources.sort();
        let mut places = Places::new();
        for resource in resources {
            let policies: Vec<Arc<Object>> =
                self.shelves.get(&resource).map(|shelf| shelf.values().cloned().collect()).unwrap_or_default();
            for policy in policies {
                if let Some(compiled) = self.compile_or_deny(&policy.key, &policy.value()) {
                    let (known, looked_at) = self.put_in_force(&policy.key, compiled, out);
                    places.extend(looked_at.into_iter().filter(|_| !known));
                }
            }
        }
        if self.measuring_unsaved {
            // Charges are what another version, or other settings, made of the objects.
            self.release_strangers(out);
            self.recount_all(out);
        } else {
            places.sort();
            places.dedup();
            self.recount(&places, out);
        }
        self.close_orphans(out);
        self.name_all();
        self.find_due();
        self.put_all_behind(out);
        // Readers are told of every account, parts included.
        self.touched.extend(self.ledger.balances().map(|(_, balance)| balance.account));
        self.publish_balances(out);
    }
}

impl Engine {
    /// Lets go of what is charged to no stored object: versions that let an object wait charged it twice, once under a
    /// name of its own making.
    fn release_strangers(&mut self, out: &mut Publication) {
        let stored: HashSet<SubjectId> =
            self.shelves.values().flat_map(|shelf| shelf.values()).map(|object| object.uid).collect();
        let charged = self.ledger.snapshot();
        for (stranger, ..) in charged.subjects().filter(|(subject, ..)| !stored.contains(subject)) {
            let receipt = self.ledger.release(stranger);
            self.note_receipt(&receipt, out);
        }
    }
}

/// The object of a row, and whether it is stored as the configuration of encryption says.
pub(super) fn read_object(encryption: &Encryption, row: &[u8], value: &[u8]) -> Result<(Object, bool), LoadError> {
    let shown = || String::from_utf8_lossy(row).replace('\0', "/");
    let unknown = || LoadError::Object(shown());
    let key = ObjectKey::from_row(row).ok_or_else(unknown)?;
    let opened = encryption.open(&key.resource, row, value);
    let opened = opened.map_err(|why| LoadError::Encrypted { object: shown(), why })?;
    let object = Object::decode(key, opened.plain.as_deref().unwrap_or(value)).ok_or_else(unknown)?;
    Ok((object, opened.current))
}

/// Where the revisions of a restored store go on. One backup may be restored twice, and an older one after a newer: clients
/// remember what each of those servers said, no backup knows, and only the time tells them apart. In millionths of a second,
/// because nobody writes more often than that.
pub(super) fn beyond(revision: u64, now: SystemTime) -> u64 {
    let micros = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros());
    revision.saturating_add(REWOUND_BY).max(u64::try_from(micros).unwrap_or(0))
}

/// A number for the code and the settings that decide how much objects are charged.
fn measuring(families: &Families) -> u64 {
    let mut text = env!("CARGO_PKG_VERSION").to_owned();
    for family in families.iter() {
        text.push_str(&format!("\n{MEASURING_VERSION} {} {}", family.manifest().name, family.measuring()));
    }
    let mixed = named_uid(text.as_bytes()).0;
    (mixed >> 64) as u64 ^ mixed as u64
}

/// To be raised with every change of how much an object is charged, within one release.
const MEASURING_VERSION: u32 = 3;

fn resource_of_row(key: &[u8]) -> Option<GroupResource> {
    let (group, resource) = std::str::from_utf8(key).ok()?.strip_prefix("last/")?.split_once('/')?;
    Some(GroupResource::new(group, resource))
}
