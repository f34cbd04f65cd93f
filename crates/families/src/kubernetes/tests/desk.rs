//! A small stand-in for the server: one rulebook, one ledger, objects by uid.

use std::collections::BTreeMap;
use std::sync::Arc;

use ledger::{AccountId, AccountKey, Charge, Ledger, Limit, Standing, SubjectId, Terms};
use rules::{GroupResource, Namespace, PolicyId, Rulebook, Subject, Verdict, policy_name};
use serde_json::{Value, json};

use crate::kubernetes::{Kubernetes, Settings};
use crate::{Admission, BalanceLine, Balances, Denial, DenialLine, Family, Operation, PolicyObject, World};

pub struct Desk {
    pub family: Kubernetes,
    rulebook: Rulebook,
    ledger: Ledger,
    policies: BTreeMap<PolicyId, (GroupResource, String, String)>,
    objects: BTreeMap<u128, (GroupResource, String, Value)>,
    next_uid: u128,
}

impl Desk {
    pub fn new() -> Desk {
        Desk::with(Settings::default())
    }

    pub fn with(settings: Settings) -> Desk {
        Desk {
            family: Kubernetes::new(settings),
            rulebook: Rulebook::new(),
            ledger: Ledger::new(),
            policies: BTreeMap::new(),
            objects: BTreeMap::new(),
            next_uid: 1,
        }
    }

    pub fn namespace(&mut self, name: &str, labels: &[(&str, &str)]) {
        let labels = labels.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
        let namespace = Namespace { name: name.into(), labels, annotations: BTreeMap::new() };
        self.rulebook.namespace_changed(&namespace, true);
        self.recount();
    }

    /// Puts a policy in force, after the checks a write goes through.
    pub fn policy(
        &mut self,
        resource: GroupResource,
        namespace: &str,
        name: &str,
        object: Value,
    ) -> Result<(), String> {
        let mut object = object;
        object["metadata"] = json!({"name": name, "namespace": namespace});
        let mut request = Admission {
            operation: Operation::Create,
            resource: &resource,
            subresource: "",
            namespace,
            name,
            object: &mut object,
            old: None,
            origin: &crate::Origin::default(),
        };
        self.family.admit(&mut request, &Nowhere)?;
        let errors = self.family.validate(&request, &Nowhere);
        if !errors.is_empty() {
            return Err(kinds::field_error::join(&errors));
        }
        let policy = PolicyObject { resource: &resource, namespace, name, object: &object };
        let compiled = self.family.compile(&policy, &Nowhere).map_err(|errors| kinds::field_error::join(&errors))?;
        let full_name = policy_name(&resource, namespace, name);
        for account in &compiled.accounts {
            let key = AccountKey::new(&full_name, &account.resource, "");
            match self.ledger.account(&key) {
                Some(id) => drop(self.ledger.set_limit(id, account.limit).unwrap()),
                None => drop(self.ledger.open(key, account.limit).unwrap()),
            }
        }
        let id = self.rulebook.install(full_name, compiled);
        self.policies.insert(id, (resource.clone(), namespace.to_string(), name.to_string()));
        self.next_uid += 1;
        self.objects.insert(self.next_uid, (resource, namespace.to_string(), object));
        self.recount();
        Ok(())
    }

    pub fn quota(&mut self, name: &str, hard: Value) {
        self.scoped_quota(name, json!({"hard": hard}));
    }

    pub fn scoped_quota(&mut self, name: &str, spec: Value) {
        self.policy(GroupResource::core("resourcequotas"), "ns", name, json!({"spec": spec})).unwrap();
    }

    /// Creates an object in the namespace `ns`; its uid, or why not.
    pub fn create(&mut self, resource: &str, object: Value) -> Result<u128, String> {
        self.create_in("ns", resource, object)
    }

    pub fn create_in(&mut self, namespace: &str, resource: &str, object: Value) -> Result<u128, String> {
        self.next_uid += 1;
        let uid = self.next_uid;
        self.write(uid, namespace, resource, object).map(|()| uid)
    }

    pub fn update(&mut self, uid: u128, object: Value) -> Result<(), String> {
        let (resource, namespace, _) = self.objects[&uid].clone();
        self.write(uid, &namespace, &resource.to_string(), object)
    }

    fn write(&mut self, uid: u128, namespace: &str, resource: &str, object: Value) -> Result<(), String> {
        let (resource, group) = resource.split_once('.').unwrap_or((resource, ""));
        let resource = GroupResource::new(group, resource);
        let verdict = self.measure(uid, &resource, namespace, &object)?;
        if let Some(refusal) = verdict.refusals.first() {
            return Err(refusal.message.clone());
        }
        let charges = self.charges(&verdict);
        let _ = self
            .ledger
            .charge(SubjectId(uid), &charges, &Standing::Stored)
            .map_err(|denied| self.words(denied, &charges))?;
        self.ledger.audit().unwrap();
        self.objects.insert(uid, (resource, namespace.to_string(), object));
        Ok(())
    }

    pub fn delete(&mut self, uid: u128) {
        let _ = self.ledger.release(SubjectId(uid));
        self.objects.remove(&uid);
    }

    pub fn measure(
        &self,
        uid: u128,
        resource: &GroupResource,
        namespace: &str,
        object: &Value,
    ) -> Result<Verdict, String> {
        let subject = Subject::new(SubjectId(uid), resource, namespace, "x", object);
        self.rulebook.measure(&subject).map_err(|error| error.to_string())
    }

    fn recount(&mut self) {
        let objects: Vec<_> = self.objects.iter().map(|(uid, object)| (*uid, object.clone())).collect();
        for (uid, (resource, namespace, object)) in objects {
            let verdict = self.measure(uid, &resource, &namespace, &object).unwrap();
            let charges: Vec<Charge> =
                self.charges(&verdict).into_iter().map(|charge| charge.on(Terms::Adopted)).collect();
            let _ = self.ledger.charge(SubjectId(uid), &charges, &Standing::Stored).unwrap();
        }
    }

    fn charges(&mut self, verdict: &Verdict) -> Vec<Charge> {
        let mut charges = Vec::new();
        for line in &verdict.lines {
            let policy = self.rulebook.name(line.policy).unwrap().clone();
            let resource = self.rulebook.compiled(line.policy).unwrap().accounts[line.account].resource.clone();
            let key = AccountKey { policy, resource, bucket: line.bucket.clone().unwrap_or_default() };
            let account: AccountId = match self.ledger.account(&key) {
                Some(account) => account,
                None => self.ledger.open(key, Limit::Unlimited).unwrap(),
            };
            charges.push(Charge::new(account, line.amount, line.format));
        }
        charges
    }

    /// The words of the first policy that said no.
    fn words(&self, denied: ledger::Denied, charges: &[Charge]) -> String {
        let first = denied.lines[0].key.policy.clone();
        let id = self.rulebook.id(&first).unwrap();
        let (resource, namespace, name) = &self.policies[&id];
        let accounts = &self.rulebook.compiled(id).unwrap().accounts;
        let lines = denied.lines.iter().filter(|line| line.key.policy == first).map(|line| {
            let account = accounts.iter().find(|account| account.resource == line.key.resource).unwrap();
            let charge = charges.iter().find(|charge| charge.account == line.account).unwrap();
            DenialLine {
                account: line.key.resource.clone(),
                requested: line.requested,
                requested_format: charge.format,
                used: line.used,
                held: line.held,
                used_format: line.format,
                limit: line.limit.amount().unwrap(),
                limit_text: account.limit_text.clone(),
                reason: crate::DenialReason::Full,
            }
        });
        self.family.words(&Denial {
            policy: first.clone(),
            resource: resource.clone(),
            namespace: Arc::from(&**namespace),
            name: Arc::from(&**name),
            operation: Operation::Create,
            lines: lines.collect(),
            message: None,
            reason: crate::DenialReason::Full,
        })
    }

    /// `name=used` of a quota in the namespace `ns`, as its status shows it.
    pub fn used(&self, quota: &str) -> String {
        let status = self.status(GroupResource::core("resourcequotas"), "ns", quota);
        let used = status["used"].as_object().cloned().unwrap_or_default();
        used.iter().map(|(name, used)| format!("{name}={}", used.as_str().unwrap())).collect::<Vec<_>>().join(" ")
    }

    pub fn status(&self, resource: GroupResource, namespace: &str, name: &str) -> Value {
        let (_, _, object) = self
            .objects
            .values()
            .rfind(|(of, at, object)| *of == resource && at == namespace && object["metadata"]["name"] == name)
            .unwrap();
        let mut object = object.clone();
        self.family.project(&resource, &mut object, self);
        object["status"].clone()
    }
}

impl Balances for Desk {
    fn of(&self, policy: &str) -> Vec<BalanceLine> {
        let mut lines: Vec<_> = self
            .ledger
            .balances()
            .filter(|(key, _)| &*key.policy == policy)
            .map(|(key, balance)| BalanceLine { resource: key.resource.clone(), bucket: key.bucket.clone(), balance })
            .collect();
        lines.sort_by(|a, b| (&a.resource, &a.bucket).cmp(&(&b.resource, &b.bucket)));
        lines
    }
}

/// A world without other objects.
pub struct Nowhere;

impl World for Nowhere {
    fn list(&self, _: &GroupResource, _: &str) -> Vec<Arc<Value>> {
        Vec::new()
    }

    fn get(&self, _: &GroupResource, _: &str, _: &str) -> Option<Arc<Value>> {
        None
    }
}

/// A pod whose one container requests this much.
pub fn pod(requests: Value) -> Value {
    json!({"spec": {"containers": [{"name": "c", "resources": {"requests": requests}}]}})
}
