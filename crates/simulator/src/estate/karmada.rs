//! Quotas over many clusters in this world: bindings that are placed, evicted and placed anew, each field of them edited apart; quotas
//! that lend, and leases; and templates, where those are refused early.

use families::karmada::Karmada;
use families::{Admission, Family, Nothing, Operation, Origin};
use rules::GroupResource;
use serde_json::{Value, json};
use server::core::{Expect, ObjectKey};

use super::durable::Kept;
use super::naive_karmada::{is_divided, is_lent, names_of, pods_on};
use super::request::Verb;
use super::weather::Script;

/// Seeds from here on play quotas over many clusters, and neither organizations nor Datum's.
pub const SEEDS: u64 = 1 << 34;

pub const POLICY: &str = "policy.karmada.io";
pub const WORK: &str = "work.karmada.io";
const CLUSTERS: [&str; 3] = ["m1", "m2", "m3"];
/// Where bindings and quotas are: few, so that they meet.
const HOMES: [&str; 2] = ["n0", "n1"];
const QUOTAS: [&str; 2] = ["f0", "f1"];
const COUNTED: [&str; 6] = ["cpu", "memory", "pods", "requests.cpu", "configmaps", "services"];
const CLASSES: [&str; 2] = ["high", "low"];

impl Script<'_> {
    /// How a world with quotas over many clusters begins.
    pub(super) fn begin_karmada(&mut self) {
        for cluster in CLUSTERS {
            let spec = json!({"syncMode": "Push", "apiEndpoint": "https://nobody:443"});
            self.put("cluster.karmada.io", "clusters", "", cluster, json!({"spec": spec}));
        }
        for namespace in HOMES {
            let hard = json!({"cpu": (6 + self.rng.below(8)).to_string(), "pods": "24"});
            self.ask_valid(POLICY, "federatedresourcequotas", namespace, "f0", json!({"overall": hard}));
            (0..3).for_each(|number| self.bind(namespace, &format!("b{number}")));
            let spec = json!({"quota": "f0", "clusterName": "m1", "hard": {"cpu": "2", "pods": "4"}});
            self.ask_valid(POLICY, "federatedquotaleases", namespace, "f0.m1", spec);
        }
        self.propagation();
    }

    pub(super) fn karmada(&mut self) {
        match self.rng.below(26) {
            0..=11 => self.binding(),
            12..=14 => self.federated_quota(),
            15..=18 => self.lease(),
            19 => self.propagation(),
            20 | 21 => self.template(),
            22 => self.federated_removal(),
            23 | 24 => self.slice(),
            _ => self.cluster(),
        }
    }

    /// What the server would let through to the engine, as it has it completed.
    fn ask_valid(&mut self, group: &str, plural: &str, namespace: &str, name: &str, spec: Value) {
        let key = ObjectKey::new(GroupResource::new(group, plural), namespace, name);
        let kept = self.seen.objects.get(&key);
        let mut value = match kept {
            Some(kept) => Value::clone(&kept.value),
            None => {
                let created = kinds::time::text(self.now_ms);
                json!({"metadata": {"name": name, "namespace": namespace, "creationTimestamp": created}})
            }
        };
        value["spec"] = spec;
        let (family, origin, old) =
            (Karmada::new(Default::default()), Origin::default(), kept.map(|kept| &*kept.value));
        let operation = if kept.is_some() { Operation::Update } else { Operation::Create };
        let (resource, object) = (&key.resource, &mut value);
        let mut request =
            Admission { operation, resource, subresource: "", namespace, name, object, old, origin: &origin };
        let admitted = family.admit(&mut request, &Nothing).is_ok();
        if !admitted || !family.validate(&request, &Nothing).errors.is_empty() {
            return;
        }
        let verb = match kept {
            None => Verb::Create(value),
            // The server decides an update by what it was made from.
            Some(kept) => {
                let expect = Expect { revision: Some(kept.revision), uid: Some(kept.uid) };
                Verb::Update { value, expect, status: false }
            }
        };
        self.ask(key, verb);
    }

    fn pick(&mut self, plural: &str, group: &str) -> Option<Kept> {
        let all: Vec<&Kept> = self.seen.of(group, plural).collect();
        (!all.is_empty()).then(|| all[self.rng.index(all.len())].clone())
    }

    fn requirements(&mut self) -> Value {
        let cpu = format!("{}m", 250 * (1 + self.rng.below(6)));
        let mut requirements = json!({"resourceRequest": {"cpu": cpu}});
        if self.chance(2) {
            requirements["resourceRequest"]["memory"] = json!(format!("{}Mi", 1 + self.rng.below(8)));
        }
        if self.chance(3) {
            requirements["priorityClassName"] = json!(self.one_of(&CLASSES));
        }
        requirements
    }

    fn components(&mut self) -> Value {
        let mut components = Vec::new();
        for name in ["jobmanager", "taskmanager"].iter().take(1 + self.rng.index(2)) {
            let (replicas, requirements) = (self.rng.below(3), self.requirements());
            components.push(json!({"name": name, "replicas": replicas, "replicaRequirements": requirements}));
        }
        json!(components)
    }

    fn placement(&mut self) -> Value {
        match self.rng.below(4) {
            0 => json!({}),
            1 => json!({"replicaScheduling": {"replicaSchedulingType": "Duplicated"}}),
            2 => json!({"replicaScheduling": {"replicaSchedulingType": "Divided"}}),
            _ => json!({"replicaScheduling": {}}),
        }
    }

    fn task(&mut self, cluster: &str) -> Value {
        let mut task = json!({"fromCluster": cluster, "reason": "TaintUntolerated", "producer": "TaintManager"});
        if self.chance(4) {
            // Whoever writes it may say what it likes: it is a fact, if one is known.
            task["replicas"] = json!(self.rng.below(6));
        }
        if self.chance(4) {
            task["clustersBeforeFailover"] = json!([cluster, self.one_of(&CLUSTERS)]);
        }
        task
    }

    /// Somewhere, all of it: divided, or as a whole in each.
    fn scheduled(&mut self, spec: &Value, clusters: &[&str]) -> Value {
        let replicas = spec["replicas"].as_u64().unwrap_or(0);
        let divides = is_divided(spec) && !spec["components"].is_array();
        let mut left = replicas;
        let mut targets = Vec::new();
        for (place, cluster) in clusters.iter().enumerate() {
            let is_last = place + 1 == clusters.len();
            let own = if !divides || is_last { left } else { self.rng.below(left + 1) };
            left -= if divides { own } else { 0 };
            targets.push(json!({"name": cluster, "replicas": own}));
        }
        json!(targets)
    }

    fn some_clusters(&mut self) -> Vec<&'static str> {
        let first = self.rng.index(CLUSTERS.len());
        let count = 1 + self.rng.index(2);
        (0..count).map(|step| CLUSTERS[(first + step) % CLUSTERS.len()]).collect()
    }

    /// A new binding: most are placed at once.
    fn bind(&mut self, namespace: &str, name: &str) {
        let (version, kind) = match self.rng.below(8) {
            0 => ("v1", "Pod"),
            1 => ("v1", "ConfigMap"),
            2 => ("v1", "Service"),
            _ => ("apps/v1", "Deployment"),
        };
        let mut spec = json!({"resource": {"apiVersion": version, "kind": kind, "namespace": namespace, "name": name}});
        match kind {
            "ConfigMap" | "Service" => {}
            _ if self.chance(3) => spec["components"] = self.components(),
            _ => {
                spec["replicas"] = json!(if kind == "Pod" { 1 } else { self.rng.below(5) });
                spec["replicaRequirements"] = self.requirements();
            }
        }
        if !self.chance(5) {
            spec["placement"] = self.placement();
        }
        if !self.chance(4) {
            let clusters = self.some_clusters();
            spec["clusters"] = self.scheduled(&spec, &clusters);
        }
        if self.chance(6) {
            let cluster = self.one_of(&CLUSTERS);
            spec["gracefulEvictionTasks"] = json!([self.task(cluster)]);
        }
        self.ask_valid(WORK, "resourcebindings", namespace, name, spec);
    }

    fn binding(&mut self) {
        let (namespace, name) = (self.one_of(&HOMES), format!("b{}", self.rng.below(5)));
        let Some(kept) = self.seen.get(WORK, "resourcebindings", namespace, &name) else {
            return self.bind(namespace, &name);
        };
        let mut spec = kept.value["spec"].clone();
        let is_evicted = spec["gracefulEvictionTasks"].as_array().is_some_and(|tasks| !tasks.is_empty());
        match self.rng.below(16) {
            _ if is_evicted && self.rng.one_in(3) => self.place_anew(&mut spec),
            0..=3 => self.evict(&mut spec),
            4..=6 => self.place_anew(&mut spec),
            7 => {
                let clusters = self.some_clusters();
                spec["clusters"] = self.scheduled(&spec, &clusters);
            }
            8 => self.scale(&mut spec),
            9 => self.ask_for_other(&mut spec),
            10 => {
                if let Some(tasks) = spec["gracefulEvictionTasks"].as_array_mut().filter(|tasks| !tasks.is_empty()) {
                    let at = self.rng.index(tasks.len());
                    tasks.remove(at);
                }
            }
            11 => self.move_one(&mut spec),
            12 => spec["placement"] = self.placement(),
            13 => self.recompose(&mut spec),
            14 => {
                let count = spec["clusters"].as_array().map_or(0, Vec::len);
                if count > 0 {
                    let at = self.rng.index(count);
                    spec["clusters"][at]["replicas"] = json!(self.rng.below(5));
                }
            }
            _ => return self.remove(kept.key.clone()),
        }
        self.ask_valid(WORK, "resourcebindings", namespace, &name, spec);
    }

    /// Out of one cluster, or of all, into tasks.
    fn evict(&mut self, spec: &mut Value) {
        let all = self.chance(3);
        let Some(clusters) = spec["clusters"].as_array().filter(|clusters| !clusters.is_empty()).cloned() else {
            return;
        };
        let at = self.rng.index(clusters.len());
        let (leaves, stays): (Vec<_>, Vec<_>) =
            clusters.into_iter().enumerate().partition(|(place, _)| all || *place == at);
        spec["clusters"] = stays.into_iter().map(|(_, target)| target).collect();
        let mut tasks = spec["gracefulEvictionTasks"].as_array().cloned().unwrap_or_default();
        for (_, target) in leaves {
            let cluster = target["name"].as_str().unwrap_or("").to_owned();
            if tasks.iter().all(|task| task["fromCluster"] != cluster.as_str()) {
                tasks.push(self.task(&cluster));
            }
        }
        spec["gracefulEvictionTasks"] = json!(tasks);
    }

    /// What is missing goes to one cluster more, or to one that has some of it.
    fn place_anew(&mut self, spec: &mut Value) {
        let cluster = self.one_of(&CLUSTERS);
        let mut clusters = spec["clusters"].as_array().cloned().unwrap_or_default();
        let replicas = spec["replicas"].as_i64().unwrap_or(0);
        let placed: i128 = clusters.iter().map(|target| pods_on(spec, target)).sum();
        let lacks = (replicas - i64::try_from(placed).unwrap_or(0)).max(0);
        let divides = is_divided(spec) && !spec["components"].is_array();
        match clusters.iter_mut().find(|target| target["name"] == cluster) {
            Some(target) if divides => {
                let has = target["replicas"].as_i64().unwrap_or(0);
                target["replicas"] = json!(has + lacks);
            }
            Some(_) => {}
            None => clusters.push(json!({"name": cluster, "replicas": if divides { lacks } else { replicas }})),
        }
        spec["clusters"] = json!(clusters);
    }

    fn scale(&mut self, spec: &mut Value) {
        let replicas = self.rng.below(6);
        spec["replicas"] = json!(replicas);
        if !is_divided(spec) && self.chance(2) {
            for target in spec["clusters"].as_array_mut().into_iter().flatten() {
                target["replicas"] = json!(replicas);
            }
        }
    }

    fn ask_for_other(&mut self, spec: &mut Value) {
        let requirements = self.requirements();
        let count = spec["components"].as_array().map_or(0, Vec::len);
        match count {
            0 => spec["replicaRequirements"] = requirements,
            _ => {
                let at = self.rng.index(count);
                spec["components"][at]["replicaRequirements"] = requirements;
            }
        }
    }

    fn move_one(&mut self, spec: &mut Value) {
        let to = self.one_of(&CLUSTERS);
        let Some(clusters) = spec["clusters"].as_array_mut().filter(|clusters| !clusters.is_empty()) else { return };
        let at = self.rng.index(clusters.len());
        clusters[at]["name"] = json!(to);
    }

    /// Other components, or others in one cluster; or none any more.
    fn recompose(&mut self, spec: &mut Value) {
        let has_some = spec["components"].as_array().is_some_and(|components| !components.is_empty());
        match self.rng.below(4) {
            0 if has_some => {
                let own = json!([{"name": spec["components"][0]["name"], "replicas": self.rng.below(4)}]);
                if let Some(target) = spec["clusters"].as_array_mut().and_then(|clusters| clusters.first_mut()) {
                    target["components"] = own;
                }
            }
            1 if has_some => {
                let at = self.rng.index(spec["components"].as_array().map_or(0, Vec::len));
                spec["components"][at]["replicas"] = json!(self.rng.below(4));
            }
            2 if has_some => {
                spec["components"] = json!([]);
                (spec["replicas"], spec["replicaRequirements"]) = (json!(self.rng.below(4)), self.requirements());
                for target in spec["clusters"].as_array_mut().into_iter().flatten() {
                    target["components"] = json!([]);
                }
            }
            _ => spec["components"] = self.components(),
        }
    }

    fn limit_of(&mut self, name: &str) -> Value {
        json!(match name {
            "memory" => format!("{}Mi", 4 * (1 + self.rng.below(12))),
            "cpu" | "requests.cpu" => format!("{}m", 500 * (1 + self.rng.below(24))),
            _ => (1 + self.rng.below(16)).to_string(),
        })
    }

    fn federated_quota(&mut self) {
        let (namespace, name) = (self.one_of(&HOMES), self.one_of(&QUOTAS));
        let stored = self.seen.get(POLICY, "federatedresourcequotas", namespace, name);
        let Some(kept) = stored else {
            let mut overall = json!({"cpu": self.limit_of("cpu")});
            for _ in 0..self.rng.below(3) {
                let name = self.one_of(&COUNTED);
                overall[name] = self.limit_of(name);
            }
            return self.ask_valid(POLICY, "federatedresourcequotas", namespace, name, json!({"overall": overall}));
        };
        if self.chance(8) {
            return self.remove(kept.key.clone());
        }
        let mut spec = kept.value["spec"].clone();
        let counted = self.one_of(&COUNTED);
        match self.rng.below(10) {
            0..=4 => spec["overall"][counted] = self.limit_of(counted),
            5 => {
                if let Some(overall) = spec["overall"].as_object_mut().filter(|overall| overall.len() > 1) {
                    overall.remove(counted);
                }
            }
            6 => {
                spec["elastic"] = match spec["elastic"].is_object() {
                    true => Value::Null,
                    false => json!({"chunk": {"cpu": "1"}}),
                }
            }
            // What clusters count themselves has no account here.
            7 => {
                spec["overall"]["limits.cpu"] = json!("9");
                spec["staticAssignments"] = json!([{"clusterName": "m1", "hard": {"limits.cpu": "2"}}]);
            }
            8 => spec["scopes"] = if spec["scopes"].is_array() { Value::Null } else { json!(["PriorityClass"]) },
            _ => {
                let operator = self.one_of(&["In", "NotIn", "Exists", "DoesNotExist"]);
                let mut expression = json!({"scopeName": "PriorityClass", "operator": operator});
                if operator.ends_with("In") {
                    expression["values"] = json!([self.one_of(&CLASSES)]);
                }
                spec["scopeSelector"] = match spec["scopeSelector"].is_object() {
                    true => Value::Null,
                    false => json!({"matchExpressions": [expression]}),
                };
            }
        }
        self.ask_valid(POLICY, "federatedresourcequotas", namespace, name, spec);
    }

    /// What whoever lends writes: the member gets more or less, or nothing any more.
    fn lease(&mut self) {
        let (namespace, quota, cluster) = (self.one_of(&HOMES), self.one_of(&QUOTAS), self.one_of(&CLUSTERS));
        let name = format!("{quota}.{cluster}");
        let kept = self.seen.get(POLICY, "federatedquotaleases", namespace, &name);
        if let Some(kept) = kept.filter(|_| self.rng.one_in(6)) {
            return self.remove(kept.key.clone());
        }
        let stored = kept.map(|kept| kept.value["spec"].clone());
        let mut spec = stored.unwrap_or_else(|| json!({"quota": quota, "clusterName": cluster, "hard": {}}));
        let quota = self.seen.get(POLICY, "federatedresourcequotas", namespace, quota).map(|kept| kept.value.clone());
        let names = quota.iter().flat_map(|quota| names_of(quota)).map(|(name, _)| name.as_str());
        let mut names: Vec<&str> = names.filter(|name| is_lent(name)).collect();
        if names.is_empty() || self.chance(10) {
            names = vec!["cpu", "memory"];
        }
        for name in names {
            if !self.chance(3) {
                spec["hard"][name] = match name {
                    "memory" => json!(format!("{}Mi", self.rng.below(24))),
                    "pods" => json!(self.rng.below(8).to_string()),
                    _ => json!(format!("{}m", 250 * self.rng.below(16))),
                };
            }
        }
        if self.chance(6) {
            let field = self.one_of(&["base", "evicted", "covered"]);
            spec[field] = json!({"cpu": "3"});
        }
        self.ask_valid(POLICY, "federatedquotaleases", namespace, &name, spec);
    }

    /// What this cluster was lent, were it a member of another: for a while, or until somebody says otherwise.
    fn slice(&mut self) {
        let namespace = self.one_of(&HOMES);
        let kept = self.seen.get(POLICY, "federatedquotaslices", namespace, "far-elastic");
        if let Some(kept) = kept.filter(|_| self.rng.one_in(5)) {
            return self.remove(kept.key.clone());
        }
        let mut hard = json!({"pods": (1 + self.rng.below(4)).to_string()});
        for name in ["cpu", "memory"] {
            if self.chance(2) {
                hard[name] = self.limit_of(name);
            }
        }
        let mut spec = json!({ "hard": hard });
        if !self.chance(3) {
            let until_ms = self.now_ms + i64::try_from(self.rng.below(90_000)).unwrap_or(0);
            spec["validUntil"] = json!(kinds::time::text(until_ms));
        }
        self.ask_valid(POLICY, "federatedquotaslices", namespace, "far-elastic", spec);
    }

    /// Templates of a kind go somewhere.
    fn propagation(&mut self) {
        let namespace = self.one_of(&HOMES);
        let kept = self.seen.get(POLICY, "propagationpolicies", namespace, "all");
        if let Some(kept) = kept.filter(|_| self.rng.one_in(4)) {
            return self.remove(kept.key.clone());
        }
        let selector = json!({"apiVersion": "apps/v1", "kind": "Deployment"});
        let spec = json!({"resourceSelectors": [selector], "placement": self.placement()});
        self.ask_valid(POLICY, "propagationpolicies", namespace, "all", spec);
    }

    /// A template of some binding.
    fn template(&mut self) {
        let (namespace, name) = (self.one_of(&HOMES), format!("t{}", self.rng.below(2)));
        if self.chance(2) {
            // Its binding, as a detector would write it.
            let key =
                ObjectKey::new(GroupResource::new(WORK, "resourcebindings"), namespace, &format!("{name}-deployment"));
            if !self.seen.objects.contains_key(&key) {
                return self.bind(namespace, &format!("{name}-deployment"));
            }
        }
        let mut requirements = self.requirements();
        let (requests, class) = (requirements["resourceRequest"].take(), requirements["priorityClassName"].take());
        let mut pods = json!({"spec": {"containers": [{"name": "c", "resources": {"requests": requests}}]}});
        if class.is_string() {
            pods["spec"]["priorityClassName"] = class;
        }
        let fields = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "spec": {"replicas": self.rng.below(6), "template": pods},
        });
        self.put("apps", "deployments", namespace, &name, fields);
    }

    fn federated_removal(&mut self) {
        let (group, plural) = match self.rng.below(4) {
            0 => (POLICY, "federatedresourcequotas"),
            1 => (POLICY, "federatedquotaleases"),
            _ => (WORK, "resourcebindings"),
        };
        if let Some(kept) = self.pick(plural, group) {
            self.remove(kept.key);
        }
    }

    fn cluster(&mut self) {
        let name = self.one_of(&CLUSTERS);
        if let Some(kept) = self.seen.get("cluster.karmada.io", "clusters", "", name).filter(|_| self.rng.one_in(3)) {
            return self.remove(kept.key.clone());
        }
        let taints = if self.chance(2) { json!([{"key": "dead", "effect": "NoExecute"}]) } else { json!([]) };
        let spec = json!({"syncMode": "Push", "apiEndpoint": "https://nobody:443", "taints": taints});
        self.ask_valid("cluster.karmada.io", "clusters", "", name, spec);
    }
}
