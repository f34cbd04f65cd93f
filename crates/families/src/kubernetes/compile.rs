//! From a quota spec to accounts and rules.

use std::collections::BTreeMap;
use std::sync::Arc;

use kinds::resources::pod::Needs;
use ledger::Limit;
use rules::{Account, Compiled, GroupResource, Measure, Reach, Rule};

use super::device_classes::Classes;
use super::measures::{DeviceRule, ObjectRule, PodRule, Quota, ServiceRule, VolumeRule, asked_by};
use super::names::{Counted, DevicePart, PodPart, ServicePart, VolumePart, counted_from};
use super::spec::QuotaSpec;

/// What is not in the spec itself.
pub struct Frame {
    pub policy: Arc<str>,
    pub name: Arc<str>,
    pub reach: Reach,
    pub fingerprint: Vec<u8>,
    /// Device classes behind names of extended resources.
    pub classes: Classes,
    pub by_namespace: bool,
    pub observe_only: bool,
}

/// The accounts of a quota by what they are counted from.
#[derive(Default)]
struct Parts {
    pods: Vec<(PodPart, usize)>,
    services: Vec<(ServicePart, usize)>,
    volumes: Vec<(VolumePart, usize)>,
    devices: Vec<(DevicePart, usize)>,
    objects: BTreeMap<GroupResource, Vec<usize>>,
}

/// One account for each name that can be counted, and one rule for each kind of object that is charged. A name that
/// nothing counts gets no account: it is stored, shown, and limits nothing.
pub fn compile(spec: &QuotaSpec, frame: Frame) -> Compiled {
    let mut accounts = Vec::new();
    let mut parts = Parts::default();
    let mut asks = Vec::new();
    for (name, hard) in &spec.hard {
        let mut counted = counted_from(name);
        let classes = frame.classes.behind(name).filter(|_| !counted.is_empty());
        counted.extend(classes.map(|classes| Counted::Device(DevicePart::ExtendedClasses(classes.into()))));
        if counted.is_empty() {
            continue;
        }
        counted.into_iter().for_each(|counted| parts.put(counted, accounts.len()));
        asks.extend(asked_by(name).map(|need| (name.clone(), need)));
        let limit = if frame.observe_only { Limit::Observed(hard.amount()) } else { Limit::Enforced(hard.amount()) };
        accounts.push(Account { resource: name.clone(), limit, limit_text: hard.to_string().into(), discounts: false });
    }
    let quota = Arc::new(Quota {
        policy: frame.policy,
        name: frame.name,
        scopes: spec.scopes.clone(),
        names: accounts.iter().map(|account| account.resource.clone()).collect(),
        by_namespace: frame.by_namespace,
        observe_only: frame.observe_only,
    });
    let mut rules = parts.rules(&quota, asks, &frame.reach);
    if rules.is_empty() && frame.by_namespace {
        // What counts nothing selects namespaces all the same, and tells which.
        let measure = Arc::new(ObjectRule { quota, accounts: Vec::new() });
        rules.push(Rule { resources: Vec::new(), reach: frame.reach, measure });
    }
    Compiled { accounts, rules, fingerprint: frame.fingerprint, until_ms: None }
}

impl Parts {
    fn put(&mut self, counted: Counted, account: usize) {
        match counted {
            Counted::Pod(part) => self.pods.push((part, account)),
            Counted::Service(part) => self.services.push((part, account)),
            Counted::Volume(part) => self.volumes.push((part, account)),
            Counted::Device(part) => self.devices.push((part, account)),
            Counted::Object(resource) => self.objects.entry(resource).or_default().push(account),
        }
    }

    fn rules(self, quota: &Arc<Quota>, asks: Vec<(Arc<str>, Needs)>, reach: &Reach) -> Vec<Rule> {
        let mut rules = Vec::new();
        let mut rule = |resource: GroupResource, measure: Arc<dyn Measure>| {
            rules.push(Rule { resources: vec![resource], reach: reach.clone(), measure });
        };
        if !self.pods.is_empty() {
            let measure = PodRule { quota: quota.clone(), parts: self.pods, asks };
            rule(GroupResource::core("pods"), Arc::new(measure));
        }
        if !self.volumes.is_empty() {
            let measure = VolumeRule { quota: quota.clone(), parts: self.volumes };
            rule(GroupResource::core("persistentvolumeclaims"), Arc::new(measure));
        }
        // Nothing else has scopes, so a quota with scopes counts nothing else.
        if quota.scopes.is_empty() {
            if !self.services.is_empty() {
                let measure = ServiceRule { quota: quota.clone(), parts: self.services };
                rule(GroupResource::core("services"), Arc::new(measure));
            }
            if !self.devices.is_empty() {
                let measure = DeviceRule { quota: quota.clone(), parts: self.devices };
                rule(GroupResource::new("resource.k8s.io", "resourceclaims"), Arc::new(measure));
            }
            for (resource, accounts) in self.objects {
                rule(resource, Arc::new(ObjectRule { quota: quota.clone(), accounts }));
            }
        }
        rules
    }
}
