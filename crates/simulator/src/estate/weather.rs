//! What clients wish for: random writes of a small world in which everything meets.

use serde_json::{Value, json};
use server::core::{Expect, ObjectKey};

use rules::GroupResource;

use super::durable::{Durable, Kept};
use super::request::{Request, Together, Verb};
use super::season;
use crate::rng::Rng;

pub const NAMESPACES: [&str; 4] = ["n0", "n1", "n2", "n3"];
/// On every namespace below `n0`.
pub const TREE_LABEL: &str = "n0.tree.hnc.x-k8s.io/depth";
pub(super) const HNC: &str = "hnc.x-k8s.io";
const DEFINITIONS: (&str, &str) = ("apiextensions.k8s.io", "customresourcedefinitions");

/// One client's next requests, one after the other, by what it has seen.
pub struct Script<'a> {
    pub rng: &'a mut Rng,
    pub seen: &'a Durable,
    pub now_ms: i64,
    /// Whether there are organizations.
    pub orgs: bool,
    /// Whether there are Datum's quotas.
    pub datum: bool,
    /// Whether there are quotas over many clusters.
    pub karmada: bool,
    /// Whether some objects are stored by others.
    pub holds: bool,
    pub requests: Vec<Request>,
}

impl Script<'_> {
    /// How a world begins.
    pub fn begin(&mut self) {
        for name in NAMESPACES {
            let labels = self.namespace_labels();
            self.put("", "namespaces", "", name, json!({"labels": labels}));
        }
        self.define(true);
        for namespace in NAMESPACES {
            for number in 0..3 {
                self.put("", "configmaps", namespace, &format!("c{number}"), json!({"labels": {"app": "x"}}));
            }
            self.consumer();
        }
        self.pool();
        for _ in 0..5 {
            self.policy();
        }
        if self.orgs {
            self.begin_orgs();
        }
        if self.datum {
            self.begin_datum();
        }
        if self.karmada {
            self.begin_karmada();
        }
    }

    /// One wish, or several that are to come true together.
    pub fn write(&mut self) {
        if self.orgs && !self.chance(4) {
            self.org()
        } else if self.datum && !self.chance(4) {
            self.datum()
        } else if self.karmada && !self.chance(4) {
            self.karmada()
        } else if self.holds && self.chance(4) {
            self.hold()
        } else if self.chance(6) {
            self.several()
        } else {
            self.one()
        }
        // Some only ask what would happen.
        let dry_run = self.chance(12);
        self.requests.iter_mut().for_each(|request| request.dry_run = dry_run);
    }

    fn several(&mut self) {
        match self.rng.below(3) {
            0 => self.crowd(),
            _ => (0..2 + self.rng.below(4)).for_each(|_| if self.chance(3) { self.one() } else { self.consumer() }),
        }
        if self.chance(2) {
            self.remove_some();
        }
        if self.chance(8) {
            self.cannot_be();
        }
        let mut parts: Vec<(ObjectKey, Verb)> = Vec::new();
        for Request { key, verb, .. } in std::mem::take(&mut self.requests) {
            if parts.iter().all(|(other, _)| *other != key) {
                parts.push((key, verb));
            }
        }
        let Some((key, verb)) = (!parts.is_empty()).then(|| parts.remove(0)) else { return };
        let entry = |number| format!("entry {number} of {} {}", self.now_ms, key);
        let entries = (0..self.rng.below(3)).map(entry).collect();
        self.ask(key, verb);
        if let Some(request) = self.requests.last_mut() {
            request.together = Some(Together { others: parts, entries });
        }
    }

    /// Many of a kind in one place, which may be too many.
    fn crowd(&mut self) {
        let namespace = self.one_of(&NAMESPACES);
        for number in 0..2 + self.rng.below(5) {
            self.put("", "configmaps", namespace, &format!("c{number}"), json!({"labels": {"app": "x"}}));
        }
    }

    /// What is refused whatever quotas say.
    fn cannot_be(&mut self) {
        let keys: Vec<ObjectKey> = self.seen.of("", "configmaps").map(|kept| kept.key.clone()).collect();
        if keys.is_empty() || self.chance(2) {
            let namespace = self.one_of(&["n0", "n1", "nowhere"]);
            let key = ObjectKey::new(GroupResource::core("configmaps"), namespace, "absent");
            let metadata = json!({"name": "absent", "namespace": namespace});
            let is_there = namespace != "nowhere";
            let verb = Verb::Create(json!({"metadata": metadata}));
            return self.ask(key, if is_there { Verb::Delete { expect: Expect::default() } } else { verb });
        }
        let key = keys[self.rng.index(keys.len())].clone();
        let metadata = json!({"name": &*key.name, "namespace": &*key.namespace});
        self.ask(key, Verb::Create(json!({"metadata": metadata})));
    }

    fn one(&mut self) {
        match self.rng.below(28) {
            0..=6 => self.consumer(),
            7..=11 => self.policy(),
            12..=14 => self.claim(),
            15 => self.remove_some(),
            16 => self.relabel(),
            17 => self.tree(),
            18 if self.chance(3) => self.namespace_goes(),
            18 => self.definition(),
            19..=21 => self.season(),
            22 if self.chance(2) => self.node(),
            23..=25 => self.broad_policy(),
            26 => self.relabel(),
            _ => self.status_or_deletion(),
        }
    }

    pub(super) fn one_of<'a>(&mut self, list: &[&'a str]) -> &'a str {
        list[self.rng.index(list.len())]
    }

    pub(super) fn chance(&mut self, of: u64) -> bool {
        self.rng.one_in(of)
    }

    pub(super) fn labels(&mut self) -> Value {
        json!({"tenant": self.one_of(&["solar", "wind"]), "tier": self.one_of(&["gold", "iron"])})
    }

    pub(super) fn selector(&mut self) -> Value {
        match self.rng.below(3) {
            0 => json!({"tenant": self.one_of(&["solar", "wind"])}),
            1 => json!({"tier": self.one_of(&["gold", "iron"])}),
            _ => self.labels(),
        }
    }

    pub(super) fn ask(&mut self, key: ObjectKey, verb: Verb) {
        // Some do not go on with what is put off.
        let at_once = self.chance(8);
        let (together, now_ms) = (None, self.now_ms);
        self.requests.push(Request { key, verb, together, dry_run: false, at_once, now_ms, is_service: false });
    }

    /// Some say on what they base their write, and are refused when that is no longer so.
    fn expect(&mut self, kept: &Kept) -> Expect {
        let revision = self.chance(3).then_some(kept.revision);
        let uid = self.chance(3).then_some(kept.uid);
        Expect { revision, uid }
    }

    /// Writes an object as it has to be from now on: creates it, or edits the one that is there.
    pub(super) fn put(&mut self, group: &str, resource: &str, namespace: &str, name: &str, fields: Value) {
        let key = ObjectKey::new(GroupResource::new(group, resource), namespace, name);
        let Some(kept) = self.seen.objects.get(&key) else {
            let created = kinds::time::text(self.now_ms);
            let metadata = json!({"name": name, "namespace": namespace, "creationTimestamp": created});
            let mut value = json!({"metadata": metadata});
            merge(&mut value, &fields);
            return self.ask(key, Verb::Create(value));
        };
        let mut value = Value::clone(&kept.value);
        merge(&mut value, &fields);
        let expect = self.expect(kept);
        self.ask(key, Verb::Update { value, expect, status: false });
    }

    pub(super) fn remove(&mut self, key: ObjectKey) {
        let expect = match self.seen.objects.get(&key) {
            Some(kept) => self.expect(kept),
            None => Expect::default(),
        };
        self.ask(key, Verb::Delete { expect });
    }

    /// What quotas count.
    pub(super) fn consumer(&mut self) {
        let namespace = self.one_of(&NAMESPACES);
        let number = self.rng.below(4);
        let labels = json!({"app": self.one_of(&["x", "y"])});
        match self.rng.below(8) {
            0..=2 => {
                let cpu = format!("{}m", 100 * (1 + self.rng.below(5)));
                let memory = format!("{}Mi", 1 + self.rng.below(8));
                let mut spec =
                    json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory}}}]});
                if self.chance(4) {
                    spec["activeDeadlineSeconds"] = json!(60);
                }
                if self.chance(6) {
                    spec["containers"][0]["resources"] = json!({});
                } else if self.chance(8) {
                    // More than can be counted of one object.
                    let container = json!({"name": "c", "resources": {"requests": {"cpu": "1m", "memory": "100Ei"}}});
                    spec["containers"] = json!(vec![container; 10]);
                }
                self.put("", "pods", namespace, &format!("p{number}"), json!({"spec": spec, "labels": labels}));
            }
            3 | 4 => self.put("", "configmaps", namespace, &format!("c{number}"), json!({"labels": labels})),
            5 => {
                let kind = self.one_of(&["NodePort", "ClusterIP"]);
                let ports: Vec<Value> = (0..1 + self.rng.below(3)).map(|port| json!({"port": port + 1})).collect();
                let spec = json!({"type": kind, "ports": ports});
                self.put("", "services", namespace, &format!("s{number}"), json!({"spec": spec}));
            }
            6 => {
                // Now and then as much as a quantity can be.
                let size = if self.chance(6) { "100Ei".to_owned() } else { format!("{}Gi", 1 + self.rng.below(9)) };
                let spec = json!({"resources": {"requests": {"storage": size}}});
                self.put("", "persistentvolumeclaims", namespace, &format!("v{number}"), json!({"spec": spec}));
            }
            _ => {
                let size = if self.chance(6) { "many".to_owned() } else { self.rng.below(6).to_string() };
                let fields = json!({"spec": {"size": size}, "labels": labels});
                self.put("example.com", "widgetz", namespace, &format!("w{number}"), fields);
            }
        }
    }

    /// Removes something that is there.
    fn remove_some(&mut self) {
        // What must be so of others is known only as long as these are there.
        let stays = ["namespaces", "servicequotadefinitions", "claimcreationpolicies"];
        let goes = |kept: &&Kept| !stays.contains(&&*kept.key.resource.resource);
        let keys: Vec<ObjectKey> = self.seen.objects.values().filter(goes).map(|kept| kept.key.clone()).collect();
        if keys.is_empty() {
            return;
        }
        let key = keys[self.rng.index(keys.len())].clone();
        let is_pool = &*key.resource.resource == "resourcepools";
        self.remove(key);
        // Half of what goes comes back at once, as somebody who re-creates a policy would do it.
        if self.chance(2) {
            if is_pool { self.pool() } else { self.policy() }
        }
    }

    pub(super) fn relabel(&mut self) {
        let name = self.one_of(&NAMESPACES);
        let labels = self.namespace_labels();
        let annotations = if self.chance(2) { json!({"owner": "me"}) } else { json!({}) };
        self.put("", "namespaces", "", name, json!({"labels": labels, "annotations": annotations}));
    }

    fn tree(&mut self) {
        let (child, parent) = (self.one_of(&NAMESPACES), self.one_of(&NAMESPACES));
        if self.chance(3) {
            let resource = GroupResource::new(HNC, "hierarchyconfigurations");
            return self.remove(ObjectKey::new(resource, child, "hierarchy"));
        }
        self.put(HNC, "hierarchyconfigurations", child, "hierarchy", json!({"spec": {"parent": parent}}));
    }

    /// A namespace is marked as one that goes; what is in it is removed by a controller, and then it is, too.
    fn namespace_goes(&mut self) {
        let name = self.one_of(&NAMESPACES);
        let Some(kept) = self.seen.get("", "namespaces", "", name) else {
            let labels = self.namespace_labels();
            return self.put("", "namespaces", "", name, json!({"labels": labels}));
        };
        let (key, mut value) = (kept.key.clone(), Value::clone(&kept.value));
        value["metadata"]["deletionTimestamp"] = json!(kinds::time::text(self.now_ms));
        self.ask(key, Verb::Update { value, expect: Expect::default(), status: false });
    }

    fn node(&mut self) {
        let name = format!("node{}", self.rng.below(3));
        if self.chance(4) {
            return self.remove(ObjectKey::new(GroupResource::core("nodes"), "", &name));
        }
        let labels = json!({"size": self.one_of(&["large", "small"])});
        let allocatable = json!({"pods": (1 + self.rng.below(9)).to_string()});
        self.put("", "nodes", "", &name, json!({"labels": labels, "status": {"allocatable": allocatable}}));
    }

    fn definition(&mut self) {
        let (group, resource) = DEFINITIONS;
        if self.chance(3) {
            return self.remove(ObjectKey::new(GroupResource::new(group, resource), "", "widgetz.example.com"));
        }
        let served = !self.chance(4);
        self.define(served);
    }

    fn define(&mut self, served: bool) {
        let spec = json!({
            "group": "example.com", "scope": "Namespaced", "names": {"kind": "Widget", "plural": "widgetz"},
            "versions": [{"name": "v1", "served": served, "storage": true}],
        });
        let (group, resource) = DEFINITIONS;
        self.put(group, resource, "", "widgetz.example.com", json!({"spec": spec}));
    }

    /// What changes when its time has come.
    fn season(&mut self) {
        let until_ms = self.now_ms + i64::try_from(self.rng.below(60_000)).unwrap_or(0);
        if self.chance(3) {
            let opens_ms = if self.chance(2) { json!(until_ms) } else { Value::Null };
            let spec = json!({"seats": (1 + self.rng.below(6)).to_string(), "opensMs": opens_ms});
            return self.put(season::GROUP, "seasons", "", "summer", json!({"spec": spec}));
        }
        let name = format!("t{}", self.rng.below(4));
        let until_ms = if self.chance(4) { Value::Null } else { json!(until_ms) };
        let spec = json!({"seats": (1 + self.rng.below(4)).to_string(), "untilMs": until_ms});
        let namespace = self.one_of(&NAMESPACES);
        self.put(season::GROUP, "tickets", namespace, &name, json!({"spec": spec}));
    }

    /// A pod ends, or is being deleted.
    fn status_or_deletion(&mut self) {
        let pods: Vec<&Kept> = self.seen.of("", "pods").collect();
        if pods.is_empty() {
            return;
        }
        let pod = pods[self.rng.index(pods.len())];
        let (key, mut value) = (pod.key.clone(), Value::clone(&pod.value));
        let status = self.chance(2);
        if status {
            value["status"]["phase"] = json!(self.one_of(&["Running", "Succeeded", "Failed"]));
        } else {
            value["metadata"]["deletionTimestamp"] = json!(kinds::time::text(self.now_ms));
            value["metadata"]["deletionGracePeriodSeconds"] = json!(self.rng.below(30));
        }
        self.ask(key, Verb::Update { value, expect: Expect::default(), status });
    }
}

fn merge(object: &mut Value, fields: &Value) {
    for (field, new) in fields.as_object().into_iter().flatten() {
        match field.as_str() {
            "labels" | "annotations" => object["metadata"][field] = new.clone(),
            _ => object[field] = new.clone(),
        }
    }
}
