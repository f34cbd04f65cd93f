//! A small stand-in for the server: one rulebook, one ledger, objects by uid.

use std::collections::BTreeMap;
use std::sync::Arc;

use ledger::{AccountKey, Charge, Explanation, Ledger, Limit, Standing, SubjectId, Terms};
use rules::{GroupResource, Namespace, Rulebook, Subject, Verdict, policy_name};
use serde_json::{Value, json};

use crate::capsule::{Capsule, GROUP, Settings};
use crate::metrics::Survey;
use crate::{
    Admission, BalanceLine, Balances, Change, Denial, DenialLine, Families, Family, Operation, PolicyObject,
    SubjectLine, View, World,
};

pub struct Desk {
    families: Families,
    pub family: Arc<Capsule>,
    rulebook: Rulebook,
    pub ledger: Ledger,
    objects: BTreeMap<(GroupResource, String, String), (u128, Value)>,
    next_uid: u128,
}

/// `pods` or `buckets.s3.example.com`.
pub fn resource(text: &str) -> GroupResource {
    let (resource, group) = text.split_once('.').unwrap_or((text, ""));
    GroupResource::new(group, resource)
}

pub fn quotas() -> GroupResource {
    GroupResource::new(GROUP, "customquotas")
}

pub fn global_quotas() -> GroupResource {
    GroupResource::new(GROUP, "globalcustomquotas")
}

impl Desk {
    pub fn new() -> Desk {
        Desk::with(Settings::default())
    }

    pub fn with(settings: Settings) -> Desk {
        let family = Arc::new(Capsule::new(settings));
        Desk {
            families: Families::new(vec![family.clone()]),
            family,
            rulebook: Rulebook::new(),
            ledger: Ledger::new(),
            objects: BTreeMap::new(),
            next_uid: 0,
        }
    }

    pub fn namespace(&mut self, name: &str, labels: &[(&str, &str)]) {
        let labels = labels.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
        let namespace = Namespace { name: name.into(), labels, annotations: BTreeMap::new() };
        self.rulebook.namespace_changed(&namespace, true);
        self.recount();
    }

    /// Creates or updates an object as a write through the API would.
    pub fn apply(&mut self, of: &GroupResource, namespace: &str, name: &str, object: Value) -> Result<(), String> {
        let key = (of.clone(), namespace.to_string(), name.to_string());
        let old = self.objects.get(&key).cloned();
        let mut object = object;
        if object.get("metadata").is_none() {
            object["metadata"] = json!({});
        }
        object["metadata"]["name"] = json!(name);
        if !namespace.is_empty() {
            object["metadata"]["namespace"] = json!(namespace);
        }
        let operation = if old.is_some() { Operation::Update } else { Operation::Create };
        let mut request = Admission {
            operation,
            resource: of,
            subresource: "",
            namespace,
            name,
            object: &mut object,
            old: old.as_ref().map(|(_, object)| object),
            origin: &crate::Origin::default(),
        };
        self.family.admit(&mut request, self)?;
        let errors = self.family.validate(&request, self);
        if !errors.is_empty() {
            return Err(kinds::field_error::join(&errors));
        }
        if let Some((_, old)) = &old {
            let change =
                Change { resource: of, namespace, name, old, new: Some(&object), origin: &crate::Origin::default() };
            self.family.check(&change, self).map_err(|refusal| refusal.message)?;
        }
        let uid = old.map_or_else(
            || {
                self.next_uid += 1;
                self.next_uid
            },
            |(uid, _)| uid,
        );
        object["metadata"]["uid"] = json!(crate::capsule::status::uid(SubjectId(uid)));
        self.decide(uid, &key, &object, operation)?;
        self.objects.insert(key.clone(), (uid, object));
        if crate::holds(self.family.manifest().policies, of) {
            self.install(&key);
        }
        if crate::holds(self.family.manifest().meaning, of) {
            let policies = self.family.manifest().policies;
            let keys: Vec<_> = self.objects.keys().filter(|key| crate::holds(policies, &key.0)).cloned().collect();
            keys.iter().for_each(|key| self.install(key));
        }
        self.ledger.audit().unwrap();
        Ok(())
    }

    pub fn delete(&mut self, of: &GroupResource, namespace: &str, name: &str) -> Result<(), String> {
        let key = (of.clone(), namespace.to_string(), name.to_string());
        let (uid, old) = self.objects[&key].clone();
        let change = Change { resource: of, namespace, name, old: &old, new: None, origin: &crate::Origin::default() };
        self.family.check(&change, self).map_err(|refusal| refusal.message)?;
        let _ = self.ledger.release(SubjectId(uid));
        self.objects.remove(&key);
        let policy = policy_name(of, namespace, name);
        if self.rulebook.remove(&policy).is_some() {
            let open: Vec<_> =
                self.ledger.balances().filter(|(key, _)| key.policy == policy).map(|(_, b)| b.account).collect();
            open.into_iter().for_each(|account| drop(self.ledger.close(account).unwrap()));
        }
        Ok(())
    }

    fn decide(
        &mut self,
        uid: u128,
        key: &(GroupResource, String, String),
        object: &Value,
        operation: Operation,
    ) -> Result<(), String> {
        let verdict = self.measure(uid, key, object);
        let charges = self.charges(&verdict, Terms::Enforced);
        let before = self.ledger.subject(SubjectId(uid));
        let grows = |charge: &Charge| {
            let had = before.iter().flat_map(|view| &view.charges).find(|had| had.account == charge.account);
            had.is_none_or(|had| charge.amount > had.amount)
        };
        if let Some(refusal) = verdict.refusals.first().filter(|_| charges.iter().any(grows)) {
            let policy = self.rulebook.name(refusal.policy).unwrap().clone();
            let mut denial = self.denial(&policy, operation);
            denial.message = Some(refusal.message.clone());
            return Err(self.family.words(&denial));
        }
        let standing = verdict.wait.clone().map_or(Standing::Stored, Standing::MayWait);
        match self.ledger.charge(SubjectId(uid), &charges, &standing) {
            Ok(_) => Ok(()),
            Err(denied) => Err(self.words(denied, &charges, operation)),
        }
    }

    fn install(&mut self, key: &(GroupResource, String, String)) {
        let (resource, namespace, name) = key;
        let policy = PolicyObject { resource, namespace, name, object: &self.objects[key].1.clone() };
        let compiled = self.family.compile(&policy, self).unwrap();
        let full_name = policy_name(resource, namespace, name);
        for account in &compiled.accounts {
            let key = AccountKey::new(&full_name, &account.resource, "");
            match self.ledger.account(&key) {
                Some(id) => drop(self.ledger.set_limit(id, account.limit).unwrap()),
                None => {
                    let id = self.ledger.open(key, account.limit).unwrap();
                    if account.discounts {
                        self.ledger.allow_discounts(id).unwrap();
                    }
                }
            }
        }
        self.rulebook.install(full_name, compiled);
        self.recount();
    }

    fn measure(&self, uid: u128, key: &(GroupResource, String, String), object: &Value) -> Verdict {
        self.rulebook.measure(&Subject::new(SubjectId(uid), &key.0, &key.1, &key.2, object)).unwrap()
    }

    fn recount(&mut self) {
        let objects: Vec<_> = self.objects.clone().into_iter().collect();
        for (key, (uid, object)) in objects {
            let verdict = self.measure(uid, &key, &object);
            let charges = self.charges(&verdict, Terms::Adopted);
            let standing = verdict.wait.clone().map_or(Standing::Stored, Standing::MayWait);
            let _ = self.ledger.charge(SubjectId(uid), &charges, &standing).unwrap();
        }
    }

    fn charges(&mut self, verdict: &Verdict, terms: Terms) -> Vec<Charge> {
        let mut charges = Vec::new();
        for line in &verdict.lines {
            let policy = self.rulebook.name(line.policy).unwrap().clone();
            let resource = self.rulebook.compiled(line.policy).unwrap().accounts[line.account].resource.clone();
            let key = AccountKey { policy, resource, bucket: line.bucket.clone().unwrap_or_default() };
            let account = match self.ledger.account(&key) {
                Some(account) => account,
                None => self.ledger.open(key, Limit::Unlimited).unwrap(),
            };
            let terms = if line.in_line { Terms::InLine } else { terms };
            charges.push(Charge { account, amount: line.amount, format: line.format, terms });
        }
        charges
    }

    fn denial(&self, policy: &Arc<str>, operation: Operation) -> Denial {
        let parts: Vec<&str> = policy.splitn(3, '/').collect();
        Denial {
            policy: policy.clone(),
            resource: resource(parts[0]),
            namespace: parts[1].into(),
            name: parts[2].into(),
            operation,
            lines: Vec::new(),
            message: None,
            reason: crate::DenialReason::Full,
        }
    }

    /// The words of the policy that speaks first.
    fn words(&self, denied: ledger::Denied, charges: &[Charge], operation: Operation) -> String {
        let mut denials: Vec<Denial> = Vec::new();
        for line in denied.lines {
            let id = self.rulebook.id(&line.key.policy).unwrap();
            let accounts = &self.rulebook.compiled(id).unwrap().accounts;
            let mut denial = self.denial(&line.key.policy, operation);
            denial.lines.push(DenialLine {
                account: line.key.resource.clone(),
                requested: line.requested,
                requested_format: charges.iter().find(|charge| charge.account == line.account).unwrap().format,
                used: line.used,
                held: line.held,
                used_format: line.format,
                limit: line.limit.amount().unwrap(),
                limit_text: accounts.iter().find(|one| one.resource == line.key.resource).unwrap().limit_text.clone(),
                reason: crate::DenialReason::Full,
            });
            denials.push(denial);
        }
        self.families.arrange(&mut denials);
        self.family.words(&denials[0])
    }

    pub fn status(&self, of: &GroupResource, namespace: &str, name: &str) -> Value {
        let (_, object) = &self.objects[&(of.clone(), namespace.to_string(), name.to_string())];
        let mut object = object.clone();
        self.family.project(of, &mut object, self);
        object["status"].clone()
    }

    /// The object as it is shown.
    pub fn projected(&self, of: &GroupResource, namespace: &str, name: &str) -> Value {
        let (_, object) = &self.objects[&(of.clone(), namespace.to_string(), name.to_string())];
        let mut object = object.clone();
        self.family.project(of, &mut object, self);
        object
    }

    /// Lets something use this much of a ResourceQuota.
    pub fn charge(&mut self, quota: &str, resource: &str, amount: &str) {
        let key = AccountKey::new(quota, resource, "");
        let account = self.ledger.account(&key).unwrap_or_else(|| self.ledger.open(key, Limit::Unlimited).unwrap());
        let amount = quantity::Quantity::parse(amount).unwrap();
        let charge = Charge::new(account, amount.amount(), amount.format()).on(Terms::Adopted);
        let _ = self.ledger.charge(SubjectId(u128::MAX), &[charge], &Standing::Stored).unwrap();
    }

    /// `used/available`.
    pub fn usage(&self, of: &GroupResource, namespace: &str, name: &str) -> String {
        let usage = &self.status(of, namespace, name)["usage"];
        format!("{}/{}", usage["used"].as_str().unwrap(), usage["available"].as_str().unwrap())
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

    fn view(&self) -> Option<&dyn View> {
        Some(self)
    }
}

impl Survey for Desk {
    fn each(&self, resource: &GroupResource, look: &mut dyn FnMut(&Value)) {
        for (of, namespace, name) in self.objects.keys().filter(|key| key.0 == *resource) {
            look(&self.projected(of, namespace, name));
        }
    }
}

impl World for Desk {
    fn list(&self, resource: &GroupResource, namespace: &str) -> Vec<Arc<Value>> {
        let all = self.objects.iter().filter(|(key, _)| key.0 == *resource && key.1 == namespace);
        all.map(|(_, (_, object))| Arc::new(object.clone())).collect()
    }

    fn get(&self, resource: &GroupResource, namespace: &str, name: &str) -> Option<Arc<Value>> {
        let key = (resource.clone(), namespace.to_string(), name.to_string());
        self.objects.get(&key).map(|(_, object)| Arc::new(object.clone()))
    }
}

impl View for Desk {
    fn charged(&self, policy: &str, max: usize) -> Vec<SubjectLine> {
        let mut found = Vec::new();
        for ((resource, namespace, name), (uid, _)) in &self.objects {
            let Some(view) = self.ledger.subject(SubjectId(*uid)) else { continue };
            for charge in view.into_charged() {
                let key = self.ledger.key(charge.account).unwrap();
                if &*key.policy == policy && key.bucket.is_empty() {
                    found.push(SubjectLine {
                        uid: SubjectId(*uid),
                        resource: resource.clone(),
                        namespace: namespace.as_str().into(),
                        name: name.as_str().into(),
                        born: 0,
                        account: key.resource.clone(),
                        amount: charge.amount,
                        format: charge.format,
                    });
                }
            }
        }
        found.truncate(max);
        found
    }

    fn holders(&self, policy: &str, account: &str, bucket: &str, max: usize) -> Vec<SubjectLine> {
        let key = AccountKey::new(policy, account, bucket);
        let Some(account) = self.ledger.account(&key) else { return Vec::new() };
        let holders: Vec<_> = self.ledger.subjects_of(account).into_iter().take(max).collect();
        let all = self.charged(policy, usize::MAX);
        holders.iter().flat_map(|uid| all.iter().filter(move |line| line.uid == *uid).cloned()).collect()
    }

    fn part(&self, policy: &str, bucket: &str) -> Vec<BalanceLine> {
        self.of(policy).into_iter().filter(|line| &*line.bucket == bucket).collect()
    }

    fn waits(&self, subject: SubjectId) -> bool {
        self.ledger.is_waiting(subject)
    }

    fn waiting(&self, policy: &str, _max: usize) -> Vec<SubjectLine> {
        let mut found = Vec::new();
        for ((resource, namespace, name), (uid, _)) in &self.objects {
            let Some(view) = self.ledger.subject(SubjectId(*uid)) else { continue };
            for charge in view.charges.iter().filter(|charge| charge.terms == Terms::InLine) {
                let key = self.ledger.key(charge.account).unwrap();
                if &*key.policy == policy && key.bucket.is_empty() {
                    found.push(SubjectLine {
                        uid: SubjectId(*uid),
                        resource: resource.clone(),
                        namespace: namespace.as_str().into(),
                        name: name.as_str().into(),
                        born: 0,
                        account: key.resource.clone(),
                        amount: charge.amount,
                        format: charge.format,
                    });
                }
            }
        }
        found
    }

    fn namespaces(&self, policy: &str) -> Vec<Arc<str>> {
        let Some(id) = self.rulebook.id(policy) else { return Vec::new() };
        let mut names = self.rulebook.namespaces_of(id);
        names.retain(|name| !name.is_empty());
        names.sort();
        names.dedup();
        names
    }

    fn lives(&self, _: SubjectId) -> bool {
        true
    }

    fn explain(&self, subject: SubjectId) -> Explanation {
        self.ledger.explain(subject)
    }
}
