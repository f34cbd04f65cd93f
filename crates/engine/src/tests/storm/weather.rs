//! What happens in a storm: one random write at a time, of a small world in which everything meets.

use serde_json::{Value, json};

use super::*;

const NAMESPACES: [&str; 4] = ["n0", "n1", "n2", "n3"];
const COUNTABLE: [&str; 13] = [
    "pods",
    "requests.cpu",
    "requests.memory",
    "configmaps",
    "count/configmaps",
    "count/pods",
    "services",
    "services.nodeports",
    "persistentvolumeclaims",
    "requests.storage",
    "count/widgetz.example.com",
    "count/resourcepoolclaims.capsule.clastix.io",
    "resourcequotas",
];
const CLAIMABLE: [&str; 3] = ["pods", "requests.cpu", "configmaps"];
/// On every namespace below `n0`.
pub(super) const TREE_LABEL: &str = "n0.tree.hnc.x-k8s.io/depth";
const QUOTA: &str = "quota.openshift.io";
const HNC: &str = "hnc.x-k8s.io";
const CAPSULE: &str = "capsule.clastix.io";

impl Storm {
    pub(super) fn begin(&mut self) {
        for name in NAMESPACES {
            let labels = self.labels();
            self.put("", "namespaces", "", name, json!({"labels": labels}));
        }
        self.definition();
        for _ in 0..6 {
            self.policy();
        }
    }

    /// One write.
    pub(super) fn step(&mut self) {
        self.now_ms += 1 + self.next(20_000) as i64;
        match self.next(20) {
            0..=6 => self.consumer(),
            7..=11 => self.policy(),
            12..=14 => self.claim(),
            15 => self.remove_some(),
            16 => self.relabel(),
            17 => self.tree(),
            18 if self.next(3) == 0 => self.namespace_goes(),
            18 => self.definition(),
            _ if self.chance(2) => self.node(),
            _ => self.status_or_deletion(),
        }
    }

    fn one_of<'a>(&mut self, list: &[&'a str]) -> &'a str {
        list[self.next(list.len() as u64) as usize]
    }

    fn chance(&mut self, of: u64) -> bool {
        self.next(of) == 0
    }

    fn labels(&mut self) -> Value {
        json!({"tenant": self.one_of(&["solar", "wind"]), "tier": self.one_of(&["gold", "iron"])})
    }

    fn selector(&mut self) -> Value {
        match self.next(3) {
            0 => json!({"tenant": self.one_of(&["solar", "wind"])}),
            1 => json!({"tier": self.one_of(&["gold", "iron"])}),
            _ => self.labels(),
        }
    }

    /// Writes an object as it has to be from now on: creates it, or edits the one that is there.
    fn put(&mut self, group: &str, resource: &str, namespace: &str, name: &str, fields: Value) {
        let key = ObjectKey::new(GroupResource::new(group, resource), namespace, name);
        let now_ms = self.now_ms;
        self.told.push(format!("put {key} {fields}"));
        let bench = self.bench.as_mut().expect("there is a bench between two restarts");
        let stored = bench.desk.get(&key).map(|object| object.value());
        let kind = match stored {
            None => {
                let mut draft = bench.draft(namespace, name, fields).value;
                draft["metadata"]["creationTimestamp"] = json!(identity::moment(now_ms));
                WriteKind::Create(Draft::new(draft).unwrap())
            }
            Some(mut value) => {
                for (field, new) in fields.as_object().unwrap() {
                    match field.as_str() {
                        "labels" | "annotations" => value["metadata"][field] = new.clone(),
                        _ => value[field] = new.clone(),
                    }
                }
                WriteKind::Update { draft: Draft::new(value).unwrap(), expect: Expect::default(), status: false }
            }
        };
        let done = bench.write_at(now_ms, key, kind, false);
        self.note(done);
    }

    fn remove(&mut self, group: &str, resource: &str, namespace: &str, name: &str) {
        let key = ObjectKey::new(GroupResource::new(group, resource), namespace, name);
        self.told.push(format!("delete {key}"));
        let now_ms = self.now_ms;
        let kind = WriteKind::Delete { expect: Expect::default(), last: None };
        let done = self.bench().write_at(now_ms, key, kind, false);
        self.note(done);
    }

    fn note(&mut self, done: Result<Written, Refused>) {
        match done {
            Ok(_) => {}
            Err(Refused::Bug(why)) => panic!("{why}"),
            Err(refused) => self.told.push(format!("    refused: {refused:?}").chars().take(300).collect()),
        }
    }

    /// What quotas count.
    fn consumer(&mut self) {
        let namespace = self.one_of(&NAMESPACES);
        let number = self.next(4);
        let labels = json!({"app": self.one_of(&["x", "y"])});
        match self.next(8) {
            0..=2 => {
                let cpu = format!("{}m", 100 * (1 + self.next(5)));
                let memory = format!("{}Mi", 1 + self.next(8));
                let mut spec =
                    json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory}}}]});
                if self.chance(4) {
                    spec["activeDeadlineSeconds"] = json!(60);
                }
                if self.chance(6) {
                    spec["containers"][0]["resources"] = json!({});
                }
                self.put("", "pods", namespace, &format!("p{number}"), json!({"spec": spec, "labels": labels}));
            }
            3 | 4 => self.put("", "configmaps", namespace, &format!("c{number}"), json!({"labels": labels})),
            5 => {
                let kind = self.one_of(&["NodePort", "ClusterIP"]);
                let ports: Vec<Value> = (0..1 + self.next(3)).map(|port| json!({"port": port + 1})).collect();
                let spec = json!({"type": kind, "ports": ports});
                self.put("", "services", namespace, &format!("s{number}"), json!({"spec": spec}));
            }
            6 => {
                let size = format!("{}Gi", 1 + self.next(9));
                let spec = json!({"resources": {"requests": {"storage": size}}});
                self.put("", "persistentvolumeclaims", namespace, &format!("v{number}"), json!({"spec": spec}));
            }
            _ => {
                let size = if self.chance(6) { "many".to_owned() } else { self.next(6).to_string() };
                let fields = json!({"spec": {"size": size}, "labels": labels});
                self.put("example.com", "widgetz", namespace, &format!("w{number}"), fields);
            }
        }
    }

    fn hard(&mut self, names: &[&str], most: u64) -> Value {
        let mut hard = serde_json::Map::new();
        for _ in 0..1 + self.next(3) {
            let name = self.one_of(names);
            let amount = match name {
                "requests.cpu" => format!("{}m", 500 * (1 + self.next(most))),
                "requests.memory" => format!("{}Mi", 4 * (1 + self.next(most))),
                "requests.storage" => format!("{}Gi", 4 * (1 + self.next(most))),
                _ => (1 + self.next(most)).to_string(),
            };
            hard.insert(name.into(), json!(amount));
        }
        Value::Object(hard)
    }

    fn policy(&mut self) {
        let namespace = self.one_of(&NAMESPACES);
        let number = self.next(2);
        match self.next(8) {
            0 | 1 => {
                let mut spec = json!({"hard": self.hard(&COUNTABLE, 8)});
                if self.chance(4) {
                    spec["scopes"] = json!(["NotTerminating"]);
                }
                self.put("", "resourcequotas", namespace, &format!("q{number}"), json!({"spec": spec}));
            }
            2 => {
                let mut selector = json!({"labels": {"matchLabels": self.selector()}});
                if self.chance(4) {
                    selector = json!({"annotations": {"owner": "me"}});
                }
                let spec = json!({"selector": selector, "quota": {"hard": self.hard(&COUNTABLE, 12)}});
                self.put(QUOTA, "clusterresourcequotas", "", &format!("k{number}"), json!({"spec": spec}));
            }
            3 => {
                let spec = json!({"hard": self.hard(&COUNTABLE, 10)});
                self.put(HNC, "hierarchicalresourcequotas", namespace, &format!("h{number}"), json!({"spec": spec}));
            }
            4 => {
                let spec = self.custom();
                self.put(CAPSULE, "customquotas", namespace, &format!("u{number}"), json!({"spec": spec}));
            }
            5 => {
                let mut spec = self.custom();
                if self.chance(2) {
                    spec["namespaceSelectors"] = json!([{"matchLabels": self.selector()}]);
                }
                self.put(CAPSULE, "globalcustomquotas", "", &format!("g{number}"), json!({"spec": spec}));
            }
            _ => self.pool(),
        }
        if self.chance(10) {
            let limits = json!({"limits": [{"type": "Container", "max": {"cpu": "4"}}]});
            self.put("", "limitranges", namespace, "range", json!({"spec": limits}));
        }
    }

    fn custom(&mut self) -> Value {
        let mut sources = Vec::new();
        for _ in 0..1 + self.next(2) {
            sources.push(match self.next(6) {
                0 => json!({"version": "v1", "kind": "ConfigMap", "op": "count"}),
                1 => json!({"version": "v1", "kind": "Pod", "op": "count"}),
                2 => json!({"group": "example.com", "version": "v1", "kind": "Widget", "op": "count"}),
                // What pools keep changes on nobody's request.
                3 => json!({"version": "v1", "kind": "ResourceQuota", "op": "add", "path": ".spec.hard.pods"}),
                4 => json!({"group": "example.com", "version": "v1", "kind": "Widget", "op": "sub", "path": ".spec.size"}),
                _ => json!({"group": "example.com", "version": "v1", "kind": "Widget", "op": "add", "path": ".spec.size"}),
            });
        }
        let mut spec = json!({"limit": (1 + self.next(9)).to_string(), "sources": sources});
        if self.chance(3) {
            spec["scopeSelectors"] = json!([{"matchLabels": {"app": self.one_of(&["x", "y"])}}]);
        }
        spec
    }

    /// A pool, of which each field is edited apart.
    fn pool(&mut self) {
        let name = format!("r{}", self.next(2));
        let key = ObjectKey::new(GroupResource::new(CAPSULE, "resourcepools"), "", &name);
        let stored = self.bench().desk.get(&key).map(|object| object.value()["spec"].clone());
        let mut spec = stored.unwrap_or_else(|| {
            json!({
                "quota": {"hard": self.hard(&CLAIMABLE, 8)}, "selectors": [{"matchLabels": self.selector()}],
                "config": {"orderedQueue": false},
            })
        });
        match self.next(7) {
            0 => spec["quota"]["hard"] = self.hard(&CLAIMABLE, 8),
            1 => {
                for (name, amount) in self.hard(&CLAIMABLE, 8).as_object().unwrap() {
                    spec["quota"]["hard"][name] = amount.clone();
                }
            }
            2 => spec["config"]["orderedQueue"] = json!(self.chance(2)),
            3 => spec["selectors"] = json!([{"matchLabels": self.selector()}]),
            4 => spec["selectors"] = json!([{"matchLabels": self.selector()}, {"matchLabels": self.selector()}]),
            5 => spec["defaults"] = self.hard(&CLAIMABLE, 2),
            _ => drop(spec.as_object_mut().unwrap().remove("defaults")),
        }
        match self.next(12) {
            2 => spec["quota"]["scopes"] = json!(["NotTerminating"]),
            3 => drop(spec["quota"].as_object_mut().unwrap().remove("scopes")),
            4 => spec["config"]["jitClaims"] = json!(self.chance(2)),
            // By a label that only the tree writes.
            5 => spec["selectors"] = json!([{"matchExpressions": [{"key": TREE_LABEL, "operator": "Exists"}]}]),
            0 => spec["nodes"] = json!({"selector": {"matchLabels": {"size": "large"}}, "shares": {"pods": "50%"}}),
            1 => drop(spec.as_object_mut().unwrap().remove("nodes")),
            _ => {}
        }
        self.put(CAPSULE, "resourcepools", "", &name, json!({"spec": spec}));
    }

    fn claim(&mut self) {
        if self.chance(3) {
            return self.resize_some();
        }
        let namespace = self.one_of(&NAMESPACES);
        let name = format!("m{}", self.next(4));
        if self.chance(5) {
            let released = self.one_of(&["true", "false"]);
            let annotations = json!({"projectcapsule.dev/release": released});
            let key = ObjectKey::new(GroupResource::new(CAPSULE, "resourcepoolclaims"), namespace, &name);
            if self.bench().desk.get(&key).is_some() {
                return self.put(CAPSULE, "resourcepoolclaims", namespace, &name, json!({"annotations": annotations}));
            }
        }
        let mut spec = json!({"pool": self.one_of(&["r0", "r1"]), "claim": self.hard(&CLAIMABLE, 4)});
        if self.chance(4) {
            spec["claim"][self.one_of(&CLAIMABLE)] = json!("0");
        }
        self.put(CAPSULE, "resourcepoolclaims", namespace, &name, json!({"spec": spec}));
    }

    /// Asks for other amounts of the same, which may be more than there is.
    fn resize_some(&mut self) {
        let shelf = self.engine().shelves.of(&GroupResource::new(CAPSULE, "resourcepoolclaims"));
        let claims: Vec<Value> = shelf.into_iter().flat_map(|shelf| shelf.values()).map(|one| one.value()).collect();
        if claims.is_empty() {
            return;
        }
        let claim = &claims[self.next(claims.len() as u64) as usize];
        let mut spec = claim["spec"].clone();
        for (name, amount) in spec["claim"].as_object_mut().into_iter().flatten() {
            *amount = self.hard(&[name], 9)[name].clone();
        }
        let text = |field: &str| claim["metadata"][field].as_str().unwrap_or_default().to_owned();
        self.put(CAPSULE, "resourcepoolclaims", &text("namespace"), &text("name"), json!({"spec": spec}));
    }

    /// Removes something that is there.
    fn remove_some(&mut self) {
        let shelves = &self.engine().shelves;
        let mut keys: Vec<ObjectKey> = shelves.all().map(|one| one.key.clone()).collect();
        keys.retain(|key| !key.resource.is("", "namespaces"));
        keys.sort();
        if keys.is_empty() {
            return;
        }
        let key = keys[self.next(keys.len() as u64) as usize].clone();
        self.remove(&key.resource.group, &key.resource.resource, &key.namespace, &key.name);
        self.judge();
        // Half of what goes comes back at once, as somebody who re-creates a policy would do it.
        if self.chance(2) {
            match &*key.resource.resource {
                "resourcepools" => self.pool(),
                _ => self.policy(),
            }
        }
    }

    fn relabel(&mut self) {
        let name = self.one_of(&NAMESPACES);
        let labels = self.labels();
        let annotations = if self.chance(2) { json!({"owner": "me"}) } else { json!({}) };
        self.put("", "namespaces", "", name, json!({"labels": labels, "annotations": annotations}));
    }

    fn tree(&mut self) {
        let (child, parent) = (self.one_of(&NAMESPACES), self.one_of(&NAMESPACES));
        if self.chance(3) {
            return self.remove(HNC, "hierarchyconfigurations", child, "hierarchy");
        }
        self.put(HNC, "hierarchyconfigurations", child, "hierarchy", json!({"spec": {"parent": parent}}));
    }

    /// A namespace is deleted as its controller does it, and sometimes comes back.
    fn namespace_goes(&mut self) {
        let name = self.one_of(&NAMESPACES);
        let key = ObjectKey::new(GroupResource::core("namespaces"), "", name);
        let Some(mut value) = self.bench().desk.get(&key).map(|object| object.value()) else {
            let labels = self.labels();
            return self.put("", "namespaces", "", name, json!({"labels": labels}));
        };
        value["metadata"]["deletionTimestamp"] = json!(identity::moment(self.now_ms));
        let update = WriteKind::Update { draft: Draft::new(value).unwrap(), expect: Expect::default(), status: false };
        let now_ms = self.now_ms;
        self.told.push(format!("{name} goes"));
        let done = self.bench().write_at(now_ms, key, update, false);
        self.note(done);
        self.judge();
        for _ in 0..100 {
            let shelves = self.engine().shelves.all();
            let Some(key) = shelves.map(|one| one.key.clone()).filter(|key| &*key.namespace == name).min() else {
                break;
            };
            self.remove(&key.resource.group, &key.resource.resource, &key.namespace, &key.name);
        }
        self.remove("", "namespaces", "", name);
    }

    fn node(&mut self) {
        let name = format!("node{}", self.next(3));
        if self.chance(4) {
            return self.remove("", "nodes", "", &name);
        }
        let labels = json!({"size": self.one_of(&["large", "small"])});
        let allocatable = json!({"pods": (1 + self.next(9)).to_string()});
        self.put("", "nodes", "", &name, json!({"labels": labels, "status": {"allocatable": allocatable}}));
    }

    fn definition(&mut self) {
        if self.chance(3) {
            return self.remove("apiextensions.k8s.io", "customresourcedefinitions", "", "widgetz.example.com");
        }
        let served = !self.chance(4);
        let spec = json!({
            "group": "example.com", "scope": "Namespaced", "names": {"kind": "Widget", "plural": "widgetz"},
            "versions": [{"name": "v1", "served": served, "storage": true}],
        });
        let name = "widgetz.example.com";
        self.put("apiextensions.k8s.io", "customresourcedefinitions", "", name, json!({"spec": spec}));
    }

    /// A pod ends, or is being deleted.
    fn status_or_deletion(&mut self) {
        let namespace = self.one_of(&NAMESPACES);
        let name = format!("p{}", self.next(4));
        let key = ObjectKey::new(GroupResource::core("pods"), namespace, &name);
        let Some(mut value) = self.bench().desk.get(&key).map(|object| object.value()) else { return };
        let status = self.chance(2);
        if status {
            value["status"]["phase"] = json!(self.one_of(&["Running", "Succeeded", "Failed"]));
        } else {
            value["metadata"]["deletionTimestamp"] = json!(identity::moment(self.now_ms));
            value["metadata"]["deletionGracePeriodSeconds"] = json!(self.next(30));
        }
        self.told.push(format!("status or deletion of {key}"));
        let update = WriteKind::Update { draft: Draft::new(value).unwrap(), expect: Expect::default(), status };
        let now_ms = self.now_ms;
        let done = self.bench().write_at(now_ms, key, update, false);
        self.note(done);
    }
}
