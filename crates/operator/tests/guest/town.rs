//! A cluster in which others store: what is pushed there is stored late and in any order, and its quota controller and its pods go on
//! by themselves.

use std::collections::{BTreeMap, BTreeSet};

use operator::push::{Does, Push};

use super::*;

pub fn pools() -> GroupResource {
    GroupResource::new("capsule.clastix.io", "resourcepools")
}

pub fn claims() -> GroupResource {
    GroupResource::new("capsule.clastix.io", "resourcepoolclaims")
}

pub fn claim(namespace: &str, name: &str) -> ObjectKey {
    ObjectKey::new(claims(), namespace, name)
}

pub fn kept(namespace: &str) -> ObjectKey {
    ObjectKey::new(GroupResource::core("resourcequotas"), namespace, "capsule-pool-gold")
}

/// A number of processors somewhere in an object.
pub fn cpu(object: &Value, path: &str) -> u64 {
    object.pointer(path).and_then(Value::as_str).map_or(0, |text| text.parse().unwrap())
}

/// What is stored, what a watch has still to tell of each resource, and what was pushed and is not stored yet.
pub struct Town {
    pub bench: Bench,
    pub stored: BTreeMap<ObjectKey, Value>,
    pub events: BTreeMap<GroupResource, Vec<Seen>>,
    pub under_way: Vec<Push>,
    pub version: u64,
    /// What pods take in each namespace, whatever its quota was told of it.
    pub pods: BTreeMap<String, u64>,
}

impl Town {
    /// One pool over some namespaces.
    pub fn new(limit: u64, namespaces: &[&str]) -> Town {
        let bench = Bench::start(SharedMemory::new(), Vec::new(), 0);
        let (stored, events, pods) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let mut town = Town { bench, stored, events, under_way: Vec::new(), version: 1, pods };
        for namespace in namespaces {
            town.relabel(namespace, true);
        }
        let pool = json!({"spec": {
            "quota": {"hard": {"limits.cpu": limit.to_string()}}, "selectors": [{"matchLabels": {"tier": "gold"}}],
            "defaults": {"limits.cpu": "0"},
        }});
        town.store(&ObjectKey::new(pools(), "", "gold"), pool);
        town.rest();
        town
    }

    /// Writes what is there of an object besides its name, as it is or as it was.
    pub fn store(&mut self, key: &ObjectKey, rest: Value) {
        self.version += 1;
        let before = self.stored.get(key).map(|before| before["metadata"].clone());
        let mut object = rest;
        if !object["metadata"].is_object() {
            object["metadata"] = json!({});
        }
        object["metadata"]["name"] = json!(&*key.name);
        if !key.namespace.is_empty() {
            object["metadata"]["namespace"] = json!(&*key.namespace);
        }
        let made = kinds::uid::text(SubjectId(1_000 + u128::from(self.version)));
        object["metadata"]["uid"] = before.map_or(json!(made), |before| before["uid"].clone());
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.stored.insert(key.clone(), object);
        let seen = self.seen(key);
        self.events.entry(key.resource.clone()).or_default().push(seen);
    }

    pub fn remove(&mut self, key: &ObjectKey) {
        let Some(mut object) = self.stored.remove(key) else { return };
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let gone = Seen::gone(&key.resource, &object).unwrap();
        self.events.entry(key.resource.clone()).or_default().push(gone);
    }

    fn seen(&self, key: &ObjectKey) -> Seen {
        Seen::there(&key.resource, self.stored[key].clone()).unwrap()
    }

    pub fn relabel(&mut self, namespace: &str, is_gold: bool) {
        let key = ObjectKey::new(GroupResource::core("namespaces"), "", namespace);
        let labels = if is_gold { json!({"tier": "gold"}) } else { json!({}) };
        self.store(&key, json!({"metadata": {"labels": labels}}));
    }

    /// Asks whether an object may be stored, as it is going to be; or whether it may go.
    pub fn asks(&mut self, key: &ObjectKey, object: Option<Value>) -> Result<(), Refused> {
        let there = self.stored.get(key).map(|there| there["metadata"].clone());
        let base = there.as_ref().map_or(0, |there| there["resourceVersion"].as_str().unwrap().parse().unwrap());
        let uid = there.as_ref().map(|there| engine::parse_uid(there["uid"].as_str().unwrap()).unwrap());
        loop {
            let wanted = match &object {
                None => Wanted::Gone { uid: uid.unwrap() },
                Some(object) => {
                    let mut object = object.clone();
                    object["metadata"]["name"] = json!(&*key.name);
                    object["metadata"]["namespace"] = json!(&*key.namespace);
                    object["metadata"]["uid"] = json!(kinds::uid::text(uid.unwrap_or(SubjectId(7))));
                    Wanted::Object(Draft::new(object).unwrap())
                }
            };
            let (key, now_ms, origin) = (key.clone(), self.bench.now_ms, Origin::default());
            let review = Review { key, wanted, base, dry_run: false, now_ms, foresight: Foresight::Asked, origin };
            match self.bench.ask(Command::Review(Box::new(review))) {
                Answer::Granted => return Ok(()),
                Answer::Refused(refused) => return Err(refused),
                Answer::Behind(_) => self.tell_all(),
                other => panic!("{other:?}"),
            }
        }
    }

    /// Asks for a write, and stores it where it is granted.
    pub fn write(&mut self, key: &ObjectKey, object: Value) -> Result<(), Refused> {
        self.asks(key, Some(object.clone()))?;
        self.store(key, object);
        Ok(())
    }

    pub fn end(&mut self, key: &ObjectKey) -> Result<(), Refused> {
        self.asks(key, None)?;
        self.remove(key);
        Ok(())
    }

    /// The first few of what is still to be told of a resource.
    pub fn tell(&mut self, resource: &GroupResource, most: usize) {
        let events = self.events.entry(resource.clone()).or_default();
        let told: Vec<Seen> = events.drain(..most.min(events.len())).collect();
        self.bench.see(told);
        self.under_way.append(&mut self.bench.pushes);
    }

    pub fn tell_all(&mut self) {
        let resources: Vec<GroupResource> = self.events.keys().cloned().collect();
        resources.iter().for_each(|resource| self.tell(resource, usize::MAX));
    }

    pub fn publish(&mut self) {
        self.bench.publish();
        self.under_way.append(&mut self.bench.pushes);
    }

    /// What an API server makes of a push.
    pub fn carry_out(&mut self, push: &Push) {
        let (key, object) = (&push.object.key, push.object.value());
        let Some(there) = self.stored.get(key).cloned() else {
            if push.does == Does::Make {
                self.store(key, object);
            }
            return;
        };
        let version = there["metadata"]["resourceVersion"].as_str().unwrap();
        let is_same = there["metadata"]["uid"] == kinds::uid::text(push.uid) && version == push.version.to_string();
        if !is_same || push.does == Does::Make {
            return;
        }
        let mut new = there.clone();
        match push.does {
            // One on its way out goes when nothing holds it.
            Does::End => return self.remove(key),
            Does::Stamp => new["metadata"]["annotations"] = json!({"stamp": version}),
            Does::Change { body, status } => {
                if body {
                    new["spec"] = object["spec"].clone();
                    for field in ["labels", "annotations", "finalizers", "ownerReferences"] {
                        new["metadata"][field] = object["metadata"][field].clone();
                    }
                }
                if status {
                    new["status"] = object["status"].clone();
                }
            }
            Does::Make => unreachable!(),
        }
        // What changes nothing is not stored.
        if new != there {
            self.store(key, new);
        }
    }

    /// The quota controller: what the API server goes by is what the quota says, and what is used is what pods take.
    pub fn control(&mut self, namespace: &str) {
        let Some(quota) = self.stored.get(&kept(namespace)).cloned() else { return };
        let mut new = quota.clone();
        new["status"] = json!({"hard": new["spec"]["hard"]});
        new["status"]["used"]["limits.cpu"] = json!(self.pods.get(namespace).copied().unwrap_or(0).to_string());
        if new != quota {
            self.store(&kept(namespace), new);
        }
    }

    /// Pods come, as far as the quota lets them.
    pub fn run(&mut self, namespace: &str, more: u64) -> bool {
        let Some(mut quota) = self.stored.get(&kept(namespace)).cloned() else { return false };
        let used = cpu(&quota, "/status/used/limits.cpu") + more;
        if quota["status"]["hard"].is_null() || used > cpu(&quota, "/status/hard/limits.cpu") {
            return false;
        }
        quota["status"]["used"]["limits.cpu"] = json!(used.to_string());
        self.store(&kept(namespace), quota);
        *self.pods.entry(namespace.to_owned()).or_default() += more;
        true
    }

    /// What a namespace may have or has.
    pub fn allowed(&self, namespace: &str) -> u64 {
        let Some(quota) = self.stored.get(&kept(namespace)) else { return 0 };
        let paths = ["/spec/hard/limits.cpu", "/status/hard/limits.cpu", "/status/used/limits.cpu"];
        paths.iter().map(|path| cpu(quota, path)).max().unwrap()
    }

    pub fn namespaces(&self) -> BTreeSet<String> {
        let is_namespace = |key: &&ObjectKey| key.resource.is("", "namespaces");
        self.stored.keys().filter(is_namespace).map(|key| key.name.to_string()).collect()
    }

    /// Until nothing happens any more.
    pub fn rest(&mut self) {
        for round in 0.. {
            assert!(round < 200, "they never come to rest");
            let version = self.version;
            self.tell_all();
            self.publish();
            let pushes = std::mem::take(&mut self.under_way);
            pushes.iter().for_each(|push| self.carry_out(push));
            for namespace in self.namespaces() {
                self.control(&namespace);
            }
            if self.version == version && pushes.is_empty() && self.events.values().all(Vec::is_empty) {
                return;
            }
        }
    }

    /// The operator dies, and another one starts from what is listed. What was pushed goes on.
    pub fn crash(&mut self) {
        let listed = self.stored.keys().map(|key| self.seen(key)).collect();
        self.events.clear();
        let (place, now_ms) = (self.bench.place.clone(), self.bench.now_ms);
        self.bench = Bench::start(place, listed, now_ms);
        self.under_way.append(&mut self.bench.pushes);
    }

    /// Whether something is kept back.
    pub fn keeps_back(&self) -> bool {
        self.bench.core.engine.engine().ledger().held().next().is_some()
    }
}
