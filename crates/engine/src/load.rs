//! From what was stored back to a running engine.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use families::{Families, Origin};
use ledger::{Ledger, SubjectId};
use rules::cel::{Foresight, STEP_COST_MAX};
use rules::{GroupResource, Rulebook};

use crate::behind::Behind;
use crate::counted::CountedObjects;
use crate::effects::{Effects, Fact};
use crate::engine::Engine;
use crate::follow::Bounds;
use crate::identity::named_uid;
use crate::install::Places;
use crate::moments::Moments;
use crate::object::{Object, ObjectKey};
use crate::owned::Owned;
use crate::policies::Policies;
use crate::retire::Retired;
use crate::room::Room;
use crate::shelves::Shelves;
use crate::staging::AT_ONCE_MAX;
use crate::stale::Stale;

/// All that was stored.
#[derive(Default)]
pub struct Loaded {
    pub objects: Vec<Arc<Object>>,
    pub ledger: Ledger,
    /// The number of the last write.
    pub revision: u64,
    pub facts: Vec<Fact>,
}

impl Engine {
    /// Takes up what was stored. What a start has to mend is mended with the first steps; the balances of all accounts are
    /// told at once.
    pub fn start(loaded: Loaded, families: Families) -> (Engine, Effects) {
        let Loaded { objects, ledger, revision, facts } = loaded;
        let mut engine = Engine::empty(families, ledger, revision);
        for object in objects {
            engine.take_up(object);
        }
        let mut moments: Vec<(ObjectKey, i64)> = Vec::new();
        for fact in facts {
            match fact {
                Fact::Clock(ms) => engine.clock_ms = ms,
                Fact::Measuring(by) => engine.measuring_unsaved = by != engine.measuring,
                Fact::Due(key, at) => moments.extend(at.map(|at| (key, at))),
            }
        }
        engine.moments = Moments::told(moments);
        engine.reinstall();
        engine.effects.due_ms = engine.next_due_ms();
        let effects = std::mem::take(&mut engine.effects);
        (engine, effects)
    }

    fn empty(families: Families, ledger: Ledger, revision: u64) -> Engine {
        let policy_resources: HashSet<GroupResource> = families.resources(|manifest| manifest.policies);
        let mut projected_resources = policy_resources.clone();
        projected_resources.extend(families.resources::<HashSet<_>>(|manifest| manifest.projected));
        let measuring = measuring(&families);
        let checks_everything = families.iter().any(|family| family.manifest().checks_everything);
        let rulebook = Rulebook::brief_on(projected_resources.iter().cloned());
        let meaning: HashSet<GroupResource> = families.resources(|manifest| manifest.meaning);
        // Whoever makes policies watches what they are made of; and what they count, which is told from them.
        let mut governing: HashSet<GroupResource> =
            families.resources(|manifest| if manifest.made.is_empty() { &[] } else { manifest.watched });
        governing.retain(|resource| !projected_resources.contains(resource));
        governing.extend(families.resources::<HashSet<_>>(|manifest| manifest.limiting));
        governing.extend(policy_resources.iter().chain(&meaning).cloned());
        Engine {
            meaning,
            governing,
            shaped: families.resources(|manifest| manifest.shaped),
            told: families.resources(|manifest| manifest.told),
            watched: families.resources(|manifest| manifest.watched),
            keeping: families.resources(|manifest| manifest.keeping),
            limiting: families.resources(|manifest| manifest.limiting),
            naming: families.resources(|manifest| manifest.naming),
            recorded: families.resources(|manifest| manifest.recorded),
            checked: families.resources(|manifest| manifest.checked),
            checks_everything,
            made: families.resources(|manifest| manifest.made),
            families,
            policy_resources,
            projected_resources,
            measuring,
            measuring_unsaved: true,
            clock_ms: 0,
            is_restored: true,
            clock_unsaved: false,
            moments: Moments::default(),
            foresight: Foresight::None,
            allowance: STEP_COST_MAX,
            known: HashMap::new(),
            wanted: Vec::new(),
            wanted_of: serde_json::Value::Null,
            postponed: None,
            shelves: Shelves::default(),
            namespaces: BTreeMap::new(),
            rulebook,
            ledger,
            policies: Policies::default(),
            revision,
            stale: Stale::default(),
            touched: Vec::new(),
            subjects: HashMap::new(),
            changed: Vec::new(),
            reached: Vec::new(),
            behind: Behind::default(),
            companioned: HashMap::new(),
            owned: Owned::default(),
            woken: Vec::new(),
            counted: CountedObjects::default(),
            staging: None,
            missed: Vec::new(),
            at_once_max: AT_ONCE_MAX,
            prepares: false,
            tickets: 0,
            retired: Retired::default(),
            names_given: 0,
            trees: RefCell::default(),
            gathered: RefCell::default(),
            derived: RefCell::default(),
            leaving: HashSet::new(),
            room: Room::default(),
            bounds: Bounds::default(),
            writes: Vec::new(),
            own: Origin::internal("engine"),
            origin: Origin::default(),
            written_bytes: 0,
            records: Vec::new(),
            effects: Effects::default(),
        }
    }

    fn take_up(&mut self, object: Arc<Object>) {
        let key = &object.key;
        if self.projected_resources.contains(&key.resource) {
            self.subjects.insert(object.uid, key.clone());
            if self.may_wait(&key.resource) {
                self.owned.take_up(&object);
            }
            self.stale.mark(key.clone());
        }
        if key.resource.is("", "namespaces") {
            // No policy is installed yet, so that this charges nothing.
            self.namespace_stored(&key.name, &object.value());
        }
        if key.resource.is("apiextensions.k8s.io", "customresourcedefinitions") {
            self.note_leaving(key, &object.value());
        }
        self.shelves.put(object);
    }

    /// Puts every stored policy in force again. Accounts and charges come from the stored ledger; only where a policy
    /// has an account the ledger does not know (it was written by an older version) is anything recounted, and only
    /// once all are in force: what an object is charged is replaced as a whole.
    fn reinstall(&mut self) {
        let mut resources: Vec<GroupResource> = self.policy_resources.iter().cloned().collect();
        resources.sort();
        let mut places = Places::new();
        for resource in resources {
            let policies: Vec<Arc<Object>> =
                self.shelves.of(&resource).map(|shelf| shelf.values().cloned().collect()).unwrap_or_default();
            for policy in policies {
                if let Some(compiled) = self.compile_or_deny(&policy.key, &policy.value()) {
                    let (known, looked_at) = self.put_in_force(&policy.key, compiled);
                    places.extend(looked_at.into_iter().filter(|_| !known));
                }
            }
        }
        if self.measuring_unsaved {
            // Charges are what another version, or other settings, made of the objects.
            self.release_strangers();
            self.recount_all();
        } else {
            places.sort();
            places.dedup();
            self.recount(&places, None);
        }
        self.close_orphans();
        self.name_all();
        self.find_companioned();
        self.put_all_behind();
        // Readers are told of every account, parts included.
        self.touched.extend(self.ledger.balances().map(|(_, balance)| balance.account));
        self.publish_balances();
    }

    /// Lets go of what is charged to no stored object: versions that let an object wait charged it twice, once under a
    /// name of its own making. What is held for one stays: it may still come.
    fn release_strangers(&mut self) {
        let stored: HashSet<SubjectId> = self.shelves.all().map(|object| object.uid).collect();
        let charged = self.ledger.snapshot();
        let is_strange = |subject: &SubjectId| !stored.contains(subject);
        let strangers: Vec<SubjectId> = charged.subjects().map(|(subject, ..)| subject).filter(is_strange).collect();
        for stranger in strangers {
            if self.ledger.is_held(stranger) {
                self.charge_under(stranger, &[]);
                continue;
            }
            let receipt = self.ledger.release(stranger);
            self.note_receipt(&receipt);
        }
    }
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

/// To be raised with every change of how much an object is charged, or of what a start is told, within one release.
const MEASURING_VERSION: u32 = 4;
