//! The audit: what the ledger, kept objects, shaped objects and statuses must say, worked out again from the stored
//! objects alone.
//!
//! The engine hands out a [`Snapshot`] of one moment, which costs it next to nothing, and goes on; the counting happens
//! wherever the caller likes. Policies are compiled anew and charges are compared by name (policy, resource, part) with
//! nothing of what the engine keeps for charging, so that a mistake there is seen here. A difference is a bug.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use families::{Affected, Cause, Change, Families, Family, Must, Origin, Plural, PolicyObject, Projected, holds};
use kinds::field_error::join;
use ledger::{AccountKey, Limit, State, SubjectId};
use quantity::Amount;
use rules::{Compiled, GroupResource, Namespace, PolicyId, Rulebook, Subject, policy_name};
use serde_json::Value;

use crate::behind::Behind;
use crate::command::AuditReport;
use crate::countable::counted;
use crate::engine::Engine;
use crate::install::{check_accounts, check_expressions};
use crate::measured::strip;
use crate::object::{Object, ObjectKey, string_map};
use crate::retire::is_nobodys;
use crate::shelves::Shelves;
use crate::snapshot_view::SnapshotView;
use crate::stale::Stale;

/// Objects and subjects between two breaths: some tenths of a millisecond.
const BREATH: usize = 16;

/// Differences an audit spells out; a ledger that is wrong everywhere is reported as well by its first few lines.
const DIFFERENCES_MAX: usize = 100;

/// Everything at one moment. It shares what it can with the engine and takes no part in what comes after.
pub struct Snapshot {
    pub(crate) families: Families,
    pub(crate) shelves: Shelves,
    pub(crate) ledger: ledger::Snapshot,
    pub(crate) clock_ms: i64,
    /// Objects whose status is known to be behind, or as a user wrote it; and those of what moved in this group, which will be when
    /// it ends.
    stale: Stale,
    moved: BTreeSet<ObjectKey>,
    /// Objects that are still to follow what was written.
    following: Behind,
    revision: u64,
}

/// The policies, compiled anew.
pub(crate) struct Fresh {
    pub rulebook: Rulebook,
    policies: HashMap<PolicyId, Arc<str>>,
    limits: BTreeMap<AccountKey, Limit>,
    broken: BTreeSet<ObjectKey>,
    /// Those that are in force as they were, until they follow what changed: of them only the sums are told.
    outdated: BTreeSet<Arc<str>>,
    /// Resources whose status the server tells.
    told: BTreeSet<GroupResource>,
}

type Sums = BTreeMap<AccountKey, Amount>;

/// What the ledger's subjects add up to, and what they should.
struct Counted {
    sums: Sums,
    waiting: BTreeMap<AccountKey, usize>,
}

impl Engine {
    /// Everything as it is at this moment, for an audit elsewhere.
    pub fn snapshot(&self) -> Snapshot {
        let moved = self.touched.iter().filter_map(|account| self.policies.owner(&self.ledger, *account));
        Snapshot {
            families: self.families.clone(),
            shelves: self.shelves.clone(),
            ledger: self.ledger.snapshot(),
            clock_ms: self.clock_ms,
            stale: self.stale.clone(),
            moved: moved.cloned().collect(),
            following: self.behind.clone(),
            revision: self.revision,
        }
    }
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Snapshot").field("revision", &self.revision).finish_non_exhaustive()
    }
}

impl Snapshot {
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Counts everything. This takes a while: a parse of every object that some policy looks at.
    pub fn audit(&self) -> AuditReport {
        self.audit_with(&mut || {})
    }

    /// The same for whoever wants to stand back meanwhile: it is asked to, every few objects and subjects.
    pub fn audit_with(&self, breathe: &mut dyn FnMut()) -> AuditReport {
        let mut report = AuditReport { revision: self.revision, ..AuditReport::default() };
        let fresh = self.compile(&mut report);
        let mut expected = self.expected(&fresh, &mut report, breathe);
        for id in self.ledger.fitting() {
            match expected.get(&id) {
                Some((object, _)) => report.differ(format!("{object} waits although it fits")),
                None => report.differ(format!("subject {:032x} waits although it fits", id.0)),
            }
        }
        let mut sums = Sums::new();
        let mut waiting: BTreeMap<AccountKey, usize> = BTreeMap::new();
        for (number, (id, view, occupied)) in self.ledger.subjects().enumerate() {
            if number.is_multiple_of(BREATH) {
                breathe();
            }
            let named = |charges: &[ledger::Charge]| -> Sums {
                let key = |charge: &ledger::Charge| {
                    // What is prepared, and what is left of what is gone, is nobody's yet, or any more.
                    let key = self.ledger.key(charge.account).filter(|key| !is_nobodys(&key.policy));
                    key.map(|key| (key.clone(), charge.amount))
                };
                charges.iter().filter_map(key).collect()
            };
            for (key, amount) in named(&occupied) {
                add(&mut sums, key, amount);
            }
            // What is held comes and goes without an object.
            let mut found = match view.state {
                State::Held { expires_at_ms } => {
                    if expires_at_ms <= self.clock_ms {
                        report.differ(format!("subject {:032x} is held, although its time is over", id.0));
                    }
                    named(&view.settled)
                }
                State::Charged | State::Waiting(_) => named(&view.charges),
            };
            found.retain(|key, _| !fresh.outdated.contains(&key.policy));
            let has = named(&occupied);
            // What comes along stands in no line.
            let asked: Vec<ledger::Charge> =
                view.charges.iter().filter(|charge| charge.terms != ledger::Terms::Along).copied().collect();
            for (key, wanted) in named(&asked).iter().filter(|_| matches!(view.state, State::Waiting(_))) {
                let more = *wanted > has.get(key).copied().unwrap_or_default();
                *waiting.entry(key.clone()).or_default() += usize::from(more);
            }
            match expected.remove(&id) {
                Some((object, wanted)) => report.compare(&object, &wanted, &found),
                None if found.is_empty() && !view.charges.is_empty() => {}
                None => {
                    report.differ(format!("subject {:032x}: {} although no object is counted so", id.0, show(&found)))
                }
            }
        }
        for (object, wanted) in expected.into_values() {
            report.compare(&object, &wanted, &Sums::new());
        }
        self.check_accounts(&fresh, &Counted { sums, waiting }, &mut report);
        self.check_objects(&fresh, &mut report);
        report.differences.sort();
        report.over.sort();
        report
    }

    fn compile(&self, report: &mut AuditReport) -> Fresh {
        let policy_kinds: BTreeSet<GroupResource> = self.families.resources(|manifest| manifest.policies);
        let projected = self.families.resources(|manifest| manifest.projected);
        let told: BTreeSet<GroupResource> = policy_kinds.union(&projected).cloned().collect();
        let mut rulebook = Rulebook::brief_on(told.iter().cloned());
        for namespace in self.objects(&GroupResource::core("namespaces")) {
            let value = namespace.value();
            let (labels, annotations) = (string_map(&value, "labels"), string_map(&value, "annotations"));
            rulebook.namespace_changed(&Namespace { name: namespace.key.name.clone(), labels, annotations }, true);
        }
        let mut fresh = Fresh {
            rulebook,
            policies: HashMap::new(),
            limits: BTreeMap::new(),
            broken: BTreeSet::new(),
            outdated: BTreeSet::new(),
            told,
        };
        let world = SnapshotView::new(self, None);
        for resource in policy_kinds {
            let Some(family) = self.families.of_policy(&resource) else { continue };
            for object in self.objects(&resource) {
                let value = object.value();
                let (namespace, name) = (&*object.key.namespace, &*object.key.name);
                let policy = PolicyObject { resource: &resource, namespace, name, object: &value, in_force: None };
                if self.following.is_outdated(&object.key) {
                    fresh.outdated.insert(policy_name(&resource, namespace, name));
                }
                let compiled = family.compile(&policy, &world);
                let checked = compiled.map_err(|uncompiled| uncompiled.errors).and_then(|compiled| {
                    let checked = check_accounts(&object.key, &compiled);
                    let checked = checked.and_then(|()| check_expressions(&compiled, |one| fresh.told.contains(one)));
                    checked.map_err(|error| vec![error]).map(|()| compiled)
                });
                match checked {
                    Ok(compiled) => fresh.install(&object.key, compiled),
                    Err(errors) => {
                        report.broken.push(format!("{} cannot be evaluated: {}", object.key, join(&errors)));
                        fresh.broken.insert(object.key.clone());
                    }
                }
            }
        }
        fresh
    }

    /// What every subject must be charged, or wait for.
    fn expected(
        &self,
        fresh: &Fresh,
        report: &mut AuditReport,
        breathe: &mut dyn FnMut(),
    ) -> HashMap<SubjectId, (ObjectKey, Sums)> {
        let mut expected = HashMap::new();
        for (resource, shelf) in self.shelves.iter() {
            for object in shelf.values() {
                report.objects += 1;
                if report.objects.is_multiple_of(BREATH) {
                    breathe();
                }
                let key = &object.key;
                if !fresh.rulebook.concerns(resource, &key.namespace) {
                    continue;
                }
                let mut value = match object.read() {
                    Ok(value) => value,
                    Err(unreadable) => {
                        report.differ(unreadable.to_string());
                        continue;
                    }
                };
                strip(&mut value, fresh.told.contains(resource));
                let subject = Subject::new(object.uid, resource, &key.namespace, &key.name, &value);
                let verdict = match fresh.rulebook.measure(&subject.at(self.clock_ms)) {
                    Ok(verdict) => verdict,
                    Err(error) => {
                        report.differ(format!("{key} cannot be measured: {error}"));
                        continue;
                    }
                };
                let mut sums = Sums::new();
                for line in verdict.lines.iter().filter(|line| !line.amount.is_zero()) {
                    let Some(account) = fresh.account(line) else { continue };
                    if !fresh.outdated.contains(&account.policy) {
                        add(&mut sums, account, counted(line.amount));
                    }
                }
                // A discount may have made up for a charge.
                sums.retain(|_, amount| !amount.is_zero());
                if !sums.is_empty() {
                    report.subjects += 1;
                    expected.insert(object.uid, (key.clone(), sums));
                }
            }
        }
        expected
    }

    /// Accounts are those that policies list, with their limits, and parts of these; each is the sum of its charges.
    fn check_accounts(&self, fresh: &Fresh, counted: &Counted, report: &mut AuditReport) {
        let Counted { sums, waiting } = counted;
        let mut seen = BTreeSet::new();
        for (key, balance) in self.ledger.balances().filter(|(key, _)| !is_nobodys(&key.policy)) {
            report.accounts += 1;
            seen.insert(key.clone());
            let whole = AccountKey { bucket: "".into(), ..key.clone() };
            match fresh.limits.get(&whole) {
                _ if fresh.outdated.contains(&key.policy) => {}
                None => report.differ(format!("{key} is open, and no policy lists it")),
                Some(limit) => {
                    let limit = if key.bucket.is_empty() { *limit } else { Limit::Unlimited };
                    if balance.limit != limit {
                        report.differ(format!("{key} is limited to {:?}, its policy says {limit:?}", balance.limit));
                    }
                }
            }
            let counted = sums.get(key).copied().unwrap_or_default();
            let occupied = balance.used.checked_add(balance.held);
            if occupied != Some(counted) {
                report.differ(format!(
                    "{key}: the ledger has {} used and {} held, its charges add up to {counted}",
                    balance.used, balance.held
                ));
            }
            let waiting = waiting.get(key).copied().unwrap_or_default();
            if balance.waiting != waiting {
                report.differ(format!("{key}: {} stand in its line, {waiting} wait for it", balance.waiting));
            }
            if balance.limit.amount().is_some_and(|limit| balance.used > limit) {
                report.over.push(format!("{key}: used {}", balance.used));
            }
        }
        for key in fresh.limits.keys().filter(|key| !seen.contains(key) && !fresh.outdated.contains(&key.policy)) {
            report.differ(format!("{key} is listed by its policy, and not open"));
        }
    }

    /// Objects that follow the ledger or other objects are as they have to be.
    fn check_objects(&self, fresh: &Fresh, report: &mut AuditReport) {
        let view = SnapshotView::new(self, Some(fresh));
        for family in self.families.iter() {
            let manifest = family.manifest();
            for resource in manifest.shaped.iter().map(Plural::resource) {
                for object in self.objects(&resource) {
                    self.check_shape(family, &object.key, &object.value(), &view, report);
                }
            }
            for resource in manifest.keeping.iter().chain(manifest.making).map(Plural::resource) {
                for policy in self.objects(&resource) {
                    self.check_kept(family, policy, &view, report);
                }
            }
            for resource in manifest.policies.iter().map(Plural::resource) {
                for object in self.objects(&resource).filter(|object| self.is_told(fresh, &object.key)) {
                    let mut value = object.value();
                    let shown = value.get("status").cloned().unwrap_or_default();
                    if family.project(&resource, &mut value, &view.numbers()) == Projected::Changed {
                        report.differ(format!(
                            "the status of {} says {shown}, and has to say {}",
                            object.key, value["status"]
                        ));
                    }
                }
            }
        }
    }

    /// Whether an object is as its family will have it; null is one that is not there.
    fn check_shape(
        &self,
        family: &Arc<dyn Family>,
        key: &ObjectKey,
        value: &Value,
        view: &SnapshotView<'_>,
        report: &mut AuditReport,
    ) {
        let object = PolicyObject {
            resource: &key.resource,
            namespace: &key.namespace,
            name: &key.name,
            object: value,
            in_force: None,
        };
        match family.must_be(&object, view) {
            Ok(Must::AsItIs) => {}
            // Beyond a bound they are written in the next steps.
            Ok(_) if self.following.contains(key) => report.missing += 1,
            Ok(Must::Gone) => report.differ(format!("{key} is stored, and has to be gone")),
            Ok(Must::Be(_)) if value.is_null() => {
                let namespace = self.get(&ObjectKey::new(GroupResource::core("namespaces"), "", &key.namespace));
                let leaves = namespace.is_some_and(|one| one.value().pointer("/metadata/deletionTimestamp").is_some());
                if !leaves {
                    report.differ(format!("{key} is not there, and has to be"));
                }
            }
            Ok(Must::Be(right)) => {
                report.differ(format!("{key} is stored as {}, and has to be {}", value["spec"], right["spec"]));
            }
            // It was written before what it contradicts, and stays until somebody writes it again.
            Err(why) => report.broken.push(format!("{key} cannot be shaped: {}", why.message)),
        }
    }

    /// Whether all that a policy keeps, or has made, is there.
    fn check_kept(&self, family: &Arc<dyn Family>, policy: &Object, view: &SnapshotView<'_>, report: &mut AuditReport) {
        let value = policy.value();
        let ObjectKey { resource, namespace, name } = &policy.key;
        let change = Change { resource, namespace, name, old: &value, new: Some(&value), origin: &Origin::default() };
        for affected in family.affected(&Cause::Written(&change), view) {
            let Affected::Object(place) = affected else { continue };
            let key = ObjectKey::from(place);
            if key.resource == *resource || !holds(family.manifest().shaped, &key.resource) {
                continue;
            }
            report.kept += 1;
            if self.get(&key).is_none() {
                self.check_shape(family, &key, &Value::Null, view, report);
            }
        }
    }

    /// Whether the status of an object has to be what the ledger says now.
    fn is_told(&self, fresh: &Fresh, key: &ObjectKey) -> bool {
        !self.stale.contains(key) && !self.moved.contains(key) && !fresh.broken.contains(key)
    }

    pub(crate) fn objects(&self, resource: &GroupResource) -> impl Iterator<Item = &Arc<Object>> {
        self.shelves.of(resource).into_iter().flat_map(|shelf| shelf.values())
    }

    pub(crate) fn get(&self, key: &ObjectKey) -> Option<&Arc<Object>> {
        self.shelves.get(key)
    }
}

impl Fresh {
    fn install(&mut self, key: &ObjectKey, compiled: Compiled) {
        let name = policy_name(&key.resource, &key.namespace, &key.name);
        for account in &compiled.accounts {
            self.limits.insert(AccountKey::new(&name, &account.resource, ""), account.limit);
        }
        let id = self.rulebook.install(name.clone(), compiled);
        self.policies.insert(id, name);
    }

    /// The name of the account that a line charges.
    fn account(&self, line: &rules::Line) -> Option<AccountKey> {
        let policy = self.policies.get(&line.policy)?;
        let account = self.rulebook.compiled(line.policy)?.accounts.get(line.account)?;
        let bucket = line.bucket.clone().unwrap_or_else(|| "".into());
        Some(AccountKey { policy: policy.clone(), resource: account.resource.clone(), bucket })
    }
}

/// Adds as the ledger does. What is [`counted`] of objects cannot be beyond the number type.
fn add(sums: &mut Sums, key: AccountKey, amount: Amount) {
    let sum = sums.entry(key).or_default();
    *sum = sum.checked_add(amount).unwrap_or(Amount::from_nanos(i128::MAX));
}

fn show(sums: &Sums) -> String {
    sums.iter().map(|(key, amount)| format!("{key} {amount}")).collect::<Vec<_>>().join(", ")
}

impl AuditReport {
    /// Tells what differs between what an object has to be charged and what it is.
    fn compare(&mut self, object: &ObjectKey, wanted: &Sums, found: &Sums) {
        let keys: BTreeSet<&AccountKey> = wanted.keys().chain(found.keys()).collect();
        let say = |sums: &Sums, key| sums.get(key).copied().unwrap_or_default();
        let parts: Vec<String> = keys
            .into_iter()
            .map(|key| (key, say(wanted, key), say(found, key)))
            .filter(|(_, wanted, found)| found != wanted)
            .map(|(key, wanted, found)| format!("{key} expected {wanted} found {found}"))
            .collect();
        if !parts.is_empty() {
            self.differ(format!("{object}: {}", parts.join(", ")));
        }
    }

    fn differ(&mut self, line: String) {
        self.differing += 1;
        if self.differences.len() < DIFFERENCES_MAX {
            self.differences.push(line);
        }
    }
}
