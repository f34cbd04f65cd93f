//! From stored rows back to a running engine, and the audit that recounts everything.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use families::Families;
use ledger::{AccountId, Ledger, SubjectId};
use quantity::Amount;
use rules::cel::Foresight;
use rules::{GroupResource, Rulebook, Subject};
use store::{Space, Store, StoreError, Table};

use super::cache::Cache;
use super::command::AuditReport;
use super::engine::Engine;
use super::event::{Decided, Publication};
use super::install::Places;
use super::named::Named;
use super::object::{Object, ObjectKey};
use super::policies::Policies;
use super::status::REVISION_ROW;

/// Differences an audit spells out; a ledger that is wrong everywhere is reported as well by its first few lines.
const DIFFERENCES_MAX: usize = 100;

/// What is added to the revision of a restored store. Clients may have seen revisions that the backup does not know; none of
/// them may come again with another meaning. A week at 1 600 writes a second; etcd recommends the same for its own.
const REWOUND_BY: u64 = 1_000_000_000;

/// A row of the ledger, kept until all of them are read.
type KeyValue = (Box<[u8]>, Box<[u8]>);

/// Why stored state could not be taken up.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the stored object {0} cannot be read: the data was written by another version, or is damaged")]
    Object(String),
    #[error("the stored ledger cannot be read: {0}")]
    Ledger(#[from] ledger::LoadError),
}

impl Engine {
    /// Reads everything back. The cache starts with exactly what was acknowledged.
    pub fn load(store: &mut dyn Store, families: Families) -> Result<(Engine, Cache), LoadError> {
        let mut objects: Vec<Arc<Object>> = Vec::new();
        let mut ledger_rows: Vec<KeyValue> = Vec::new();
        let mut last: HashMap<GroupResource, u64> = HashMap::new();
        let mut revision = 0;
        let mut unreadable = None;
        store.load(&mut |table, key, value| match table {
            Table::OBJECTS => match ObjectKey::from_row(key).and_then(|key| Object::decode(key, value)) {
                Some(object) => objects.push(Arc::new(object)),
                None => unreadable = Some(String::from_utf8_lossy(key).replace('\0', "/")),
            },
            Table::LEDGER => ledger_rows.push((key.into(), value.into())),
            Table::META => {
                let Ok(number) = value.try_into().map(u64::from_le_bytes) else { return };
                if key == REVISION_ROW {
                    revision = number;
                } else if let Some(resource) = resource_of_row(key) {
                    last.insert(resource, number);
                }
            }
            _ => {}
        })?;
        if store.rewound() {
            revision += REWOUND_BY;
            last.values_mut().for_each(|last| *last = revision);
            tracing::warn!(
                revision,
                "the store was restored from an older backup: revisions go on far above those it knew"
            );
        }
        if let Some(key) = unreadable {
            return Err(LoadError::Object(key));
        }
        let ledger = Ledger::load(ledger_rows.iter().map(|(key, value)| (&**key, &**value)))?;
        drop(ledger_rows);
        let mut engine = Engine::empty(families, ledger, revision);
        engine.space = store.space();
        for object in &objects {
            engine.take_up(object);
        }
        let cache = Cache::new(objects.into_iter(), &last, revision);
        let mut publication = Publication::default();
        engine.reinstall(&mut publication);
        cache.publish_balances(publication.balances, &[]);
        Ok((engine, cache))
    }

    fn empty(families: Families, ledger: Ledger, revision: u64) -> Engine {
        let policy_resources = families.iter().flat_map(|family| family.policies()).collect();
        let projected_resources =
            families.iter().flat_map(|family| family.policies().into_iter().chain(family.projected())).collect();
        let naming = families.iter().flat_map(|family| family.naming()).collect();
        let queueing = families.iter().flat_map(|family| family.queueing()).collect();
        let depended_on = families.iter().flat_map(|family| family.depends_on()).collect();
        let derived = families.iter().flat_map(|family| family.derived()).collect();
        let leading = families.iter().flat_map(|family| family.leads()).collect();
        Engine {
            families,
            policy_resources,
            projected_resources,
            depended_on,
            derived,
            leading,
            clock_ms: 0,
            due: BTreeSet::new(),
            until_ms: None,
            foresight: Foresight::None,
            wanted: Vec::new(),
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
            queueing,
            woken: Vec::new(),
            naming,
            named: Named::default(),
            trees: RefCell::default(),
            leaving: HashSet::new(),
            space: Space::default(),
            decided: Decided::default(),
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
                match self.compile(&policy.key, &policy.value()) {
                    Ok(Some(compiled)) => {
                        let (known, looked_at) = self.put_in_force(&policy.key, compiled, out);
                        places.extend(looked_at.into_iter().filter(|_| !known));
                    }
                    Ok(None) => {}
                    Err(refused) => {
                        tracing::error!(policy = %policy.key, ?refused, "a stored policy no longer compiles");
                    }
                }
            }
        }
        places.sort();
        places.dedup();
        self.recount(&places, out);
        self.close_orphans(out);
        self.name_all();
        self.find_due();
        // Readers are told of every account, parts included.
        self.touched.extend(self.ledger.balances().map(|(_, balance)| balance.account));
        self.publish_balances(out);
    }

    /// Recounts everything from the stored objects and compares it with the ledger.
    pub(super) fn audit(&self) -> Result<AuditReport, String> {
        self.ledger.audit().map_err(|error| error.to_string())?;
        let mut report = AuditReport::default();
        let mut counted: BTreeMap<AccountId, Amount> = BTreeMap::new();
        let mut seen: BTreeSet<SubjectId> = BTreeSet::new();
        for (resource, shelf) in &self.shelves {
            for object in shelf.values() {
                report.objects += 1;
                if !self.rulebook.concerns(resource, &object.key.namespace) {
                    continue;
                }
                let value = match object.read() {
                    Ok(value) => value,
                    Err(unreadable) => {
                        report.differ(unreadable.to_string());
                        continue;
                    }
                };
                let subject = Subject::new(object.uid, resource, &object.key.namespace, &object.key.name, &value);
                let subject = subject.at(self.clock_ms);
                match self.rulebook.measure(&subject) {
                    Ok(verdict) => {
                        let (charges, _) = self.policies.charges(&self.ledger, &verdict.lines);
                        if !charges.is_empty() {
                            report.subjects += 1;
                            seen.insert(object.uid);
                        }
                        for charge in charges {
                            let sum = counted.entry(charge.account).or_default();
                            *sum = sum.checked_add(charge.amount).ok_or("the recount overflows")?;
                        }
                    }
                    Err(error) => report.differ(format!("{} cannot be measured: {error}", object.key)),
                }
            }
        }
        for (key, balance) in self.ledger.balances() {
            report.accounts += 1;
            let counted = counted.get(&balance.account).copied().unwrap_or_default();
            let waiting = balance.waiting > 0;
            if counted != balance.used && !waiting {
                report.differ(format!("{key}: the ledger has {}, the objects add up to {counted}", balance.used));
            }
            if balance.limit.amount().is_some_and(|limit| balance.used > limit) {
                report.over.push(format!("{}: used {}", key.policy, balance.used));
            }
        }
        report.differences.sort();
        report.over.sort();
        Ok(report)
    }
}

impl AuditReport {
    fn differ(&mut self, line: String) {
        if self.differences.len() < DIFFERENCES_MAX {
            self.differences.push(line);
        }
    }
}

fn resource_of_row(key: &[u8]) -> Option<GroupResource> {
    let (group, resource) = std::str::from_utf8(key).ok()?.strip_prefix("last/")?.split_once('/')?;
    Some(GroupResource::new(group, resource))
}
