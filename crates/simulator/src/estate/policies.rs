//! The same for policies, each field of them edited apart, and for claims.

use serde_json::{Value, json};

use super::durable::Kept;
use super::weather::{HNC, NAMESPACES, Script, TREE_LABEL};

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
const QUOTA: &str = "quota.openshift.io";
const CAPSULE: &str = "capsule.clastix.io";

impl Script<'_> {
    fn hard(&mut self, names: &[&str], most: u64) -> Value {
        let mut hard = serde_json::Map::new();
        for _ in 0..1 + self.rng.below(3) {
            let name = self.one_of(names);
            let amount = match name {
                "requests.cpu" => format!("{}m", 500 * (1 + self.rng.below(most))),
                "requests.memory" => format!("{}Mi", 4 * (1 + self.rng.below(most))),
                "requests.storage" => format!("{}Gi", 4 * (1 + self.rng.below(most))),
                _ => (1 + self.rng.below(most)).to_string(),
            };
            hard.insert(name.into(), json!(amount));
        }
        Value::Object(hard)
    }

    pub(super) fn policy(&mut self) {
        let namespace = self.one_of(&NAMESPACES);
        let number = self.rng.below(2);
        match self.rng.below(8) {
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

    /// A policy over what there is most of.
    pub(super) fn broad_policy(&mut self) {
        let (number, namespace) = (self.rng.below(2), self.one_of(&NAMESPACES));
        let hard = json!({"count/configmaps": (4 + self.rng.below(12)).to_string(), "pods": "12"});
        match self.rng.below(4) {
            0 => self.put("", "resourcequotas", namespace, &format!("q{number}"), json!({"spec": {"hard": hard}})),
            1 | 2 => {
                let selector = json!({"labels": {"matchLabels": self.selector()}});
                let spec = json!({"selector": selector, "quota": {"hard": hard}});
                self.put(QUOTA, "clusterresourcequotas", "", &format!("k{number}"), json!({"spec": spec}));
            }
            _ => {
                let count = |kind: &str| json!({"version": "v1", "kind": kind, "op": "count"});
                let mut spec = json!({"limit": "12", "sources": [count("ConfigMap"), count("Pod")]});
                if self.chance(2) {
                    spec["namespaceSelectors"] = json!([{"matchLabels": self.selector()}]);
                }
                self.put(CAPSULE, "globalcustomquotas", "", &format!("g{number}"), json!({"spec": spec}));
            }
        }
    }

    fn custom(&mut self) -> Value {
        let mut sources = Vec::new();
        for _ in 0..1 + self.rng.below(2) {
            sources.push(match self.rng.below(6) {
                0 => json!({"version": "v1", "kind": "ConfigMap", "op": "count"}),
                1 => json!({"version": "v1", "kind": "Pod", "op": "count"}),
                2 => json!({"group": "example.com", "version": "v1", "kind": "Widget", "op": "count"}),
                // What pools keep changes on nobody's request.
                3 => json!({"version": "v1", "kind": "ResourceQuota", "op": "add", "path": ".spec.hard.pods"}),
                4 => json!({"group": "example.com", "version": "v1", "kind": "Widget", "op": "sub", "path": ".spec.size"}),
                _ => json!({"group": "example.com", "version": "v1", "kind": "Widget", "op": "add", "path": ".spec.size"}),
            });
        }
        // None at all is a limit by the documentation, and by the releases it is none.
        let limit = if self.chance(4) { 0 } else { 1 + self.rng.below(9) };
        let mut spec = json!({"limit": limit.to_string(), "sources": sources});
        if self.chance(3) {
            spec["scopeSelectors"] = json!([{"matchLabels": {"app": self.one_of(&["x", "y"])}}]);
        }
        spec
    }

    /// A pool, of which each field is edited apart.
    pub(super) fn pool(&mut self) {
        let name = format!("r{}", self.rng.below(2));
        let stored = self.seen.get(CAPSULE, "resourcepools", "", &name).map(|kept| kept.value["spec"].clone());
        let mut spec = stored.unwrap_or_else(|| {
            // Some let nobody have anything to begin with, and make a claim for whoever comes.
            let jit_claims = self.chance(2);
            let defaults = if jit_claims { json!({"configmaps": "0", "pods": "0"}) } else { json!({}) };
            let mut hard = self.hard(&CLAIMABLE, 8);
            hard["configmaps"] = json!("6");
            json!({
                "quota": {"hard": hard}, "selectors": [{"matchLabels": self.selector()}], "defaults": defaults,
                "config": {"orderedQueue": false, "jitClaims": jit_claims},
            })
        });
        match self.rng.below(7) {
            0 => spec["quota"]["hard"] = self.hard(&CLAIMABLE, 8),
            1 => {
                for (name, amount) in self.hard(&CLAIMABLE, 8).as_object().into_iter().flatten() {
                    spec["quota"]["hard"][name] = amount.clone();
                }
            }
            2 => spec["config"]["orderedQueue"] = json!(self.chance(2)),
            3 => spec["selectors"] = json!([{"matchLabels": self.selector()}]),
            4 => spec["selectors"] = json!([{"matchLabels": self.selector()}, {"matchLabels": self.selector()}]),
            5 => spec["defaults"] = self.hard(&CLAIMABLE, 2),
            _ => forget(&mut spec, "defaults"),
        }
        match self.rng.below(12) {
            2 => spec["quota"]["scopes"] = json!(["NotTerminating"]),
            3 => forget(&mut spec["quota"], "scopes"),
            4 | 6 | 7 => spec["config"]["jitClaims"] = json!(!self.chance(4)),
            // By a label that only the tree writes.
            5 => spec["selectors"] = json!([{"matchExpressions": [{"key": TREE_LABEL, "operator": "Exists"}]}]),
            0 => spec["nodes"] = json!({"selector": {"matchLabels": {"size": "large"}}, "shares": {"pods": "50%"}}),
            1 => forget(&mut spec, "nodes"),
            _ => {}
        }
        self.put(CAPSULE, "resourcepools", "", &name, json!({"spec": spec}));
    }

    pub(super) fn claim(&mut self) {
        if self.chance(3) {
            return self.resize_some();
        }
        let namespace = self.one_of(&NAMESPACES);
        let name = format!("m{}", self.rng.below(4));
        if self.chance(5) {
            let released = self.one_of(&["true", "false"]);
            let annotations = json!({"projectcapsule.dev/release": released});
            if self.seen.get(CAPSULE, "resourcepoolclaims", namespace, &name).is_some() {
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
        let claims: Vec<&Kept> = self.seen.of(CAPSULE, "resourcepoolclaims").collect();
        if claims.is_empty() {
            return;
        }
        let claim = claims[self.rng.index(claims.len())].value.clone();
        let mut spec = claim["spec"].clone();
        for (name, amount) in spec["claim"].as_object_mut().into_iter().flatten() {
            *amount = self.hard(&[name], 9)[name].clone();
        }
        let text = |field: &str| claim["metadata"][field].as_str().unwrap_or_default().to_owned();
        self.put(CAPSULE, "resourcepoolclaims", &text("namespace"), &text("name"), json!({"spec": spec}));
    }
}

fn forget(object: &mut Value, field: &str) {
    if let Some(fields) = object.as_object_mut() {
        fields.remove(field);
    }
}
