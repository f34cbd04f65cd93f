//! All rules, indexed by resource and namespace, changed one policy at a time.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use ledger::Limit;

use crate::GroupResource;
use crate::verdict::{Measure, MeasureError, Subject, Verdict};

/// A policy's place in the rulebook; stable while the policy is installed.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct PolicyId(pub u32);

/// One account a policy limits: `resource` (or dimension) and how much of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    pub resource: Arc<str>,
    pub limit: Limit,
    /// The limit as its policy writes it: a refusal repeats `1Gi`, not 1073741824.
    pub limit_text: Arc<str>,
}

/// What a policy object compiles to.
#[derive(Clone)]
pub struct Compiled {
    pub accounts: Vec<Account>,
    pub rules: Vec<Rule>,
    /// Everything of the policy that decides *what* is charged, and nothing that only decides how much is allowed.
    /// While it stays equal, a changed policy needs no recount.
    pub fingerprint: Vec<u8>,
}

/// Which objects are measured, and how.
#[derive(Clone)]
pub struct Rule {
    pub resources: Vec<GroupResource>,
    pub reach: Reach,
    pub measure: Arc<dyn Measure>,
}

/// Where a rule looks.
#[derive(Clone)]
pub enum Reach {
    Namespace(Arc<str>),
    /// Every namespace the predicate accepts, asked again whenever a namespace changes.
    Selected(Arc<dyn Fn(&Namespace) -> bool + Send + Sync>),
    /// Objects that live in no namespace.
    Cluster,
}

/// A namespace as selectors see it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Namespace {
    pub name: Arc<str>,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
}

struct Policy {
    name: Arc<str>,
    compiled: Compiled,
    /// For each rule, the namespaces it reaches now.
    reached: Vec<Vec<Arc<str>>>,
}

#[derive(Copy, Clone, PartialEq, Eq)]
struct RuleRef {
    policy: PolicyId,
    rule: u32,
}

/// The rules of every installed policy.
#[derive(Default)]
pub struct Rulebook {
    policies: Vec<Option<Policy>>,
    free: Vec<u32>,
    by_name: HashMap<Arc<str>, PolicyId>,
    /// The policies with a rule that selects namespaces: the only ones a changed namespace has to be shown to.
    selecting: BTreeSet<PolicyId>,
    /// resource → namespace ("" for cluster-scoped objects) → the rules that look there.
    index: HashMap<GroupResource, HashMap<Arc<str>, Vec<RuleRef>>>,
}

impl Rulebook {
    pub fn new() -> Self {
        Self::default()
    }

    /// Everything the rules say of `subject`. Rules are asked in the order of their policies' names, so that the
    /// same state always gives the same verdict, word for word.
    pub fn measure(&self, subject: &Subject<'_>) -> Result<Verdict, MeasureError> {
        let mut verdict = Verdict::default();
        for rule in self.rules_for(subject.resource, subject.namespace) {
            let Some(policy) = self.policy(rule.policy) else { continue };
            verdict.policy = rule.policy;
            policy.compiled.rules[rule.rule as usize].measure.measure(subject, &mut verdict)?;
        }
        Ok(verdict)
    }

    /// Whether any rule looks at objects of this resource in this namespace; lets a write that nothing limits skip
    /// the ledger.
    pub fn concerns(&self, resource: &GroupResource, namespace: &str) -> bool {
        !self.rules_for(resource, namespace).is_empty()
    }

    pub fn id(&self, policy: &str) -> Option<PolicyId> {
        self.by_name.get(policy).copied()
    }

    pub fn name(&self, id: PolicyId) -> Option<&Arc<str>> {
        self.policy(id).map(|policy| &policy.name)
    }

    pub fn compiled(&self, id: PolicyId) -> Option<&Compiled> {
        self.policy(id).map(|policy| &policy.compiled)
    }

    pub fn policies(&self) -> impl Iterator<Item = (PolicyId, &Arc<str>, &Compiled)> {
        self.policies
            .iter()
            .enumerate()
            .filter_map(|(at, slot)| slot.as_ref().map(|policy| (PolicyId(at as u32), &policy.name, &policy.compiled)))
    }

    /// The (resource, namespace) pairs a policy looks at now: what a recount has to visit.
    pub fn places(&self, id: PolicyId) -> Vec<(GroupResource, Arc<str>)> {
        let Some(policy) = self.policy(id) else { return Vec::new() };
        let mut places: Vec<_> = policy
            .compiled
            .rules
            .iter()
            .zip(&policy.reached)
            .flat_map(|(rule, reached)| {
                rule.resources.iter().flat_map(|resource| reached.iter().map(|at| (resource.clone(), at.clone())))
            })
            .collect();
        places.sort();
        places.dedup();
        places
    }

    /// Whether a policy looks into a namespace now.
    pub fn looks_into(&self, id: PolicyId, namespace: &str) -> bool {
        self.policy(id).is_some_and(|policy| policy.reached.iter().flatten().any(|at| &**at == namespace))
    }

    /// Installs a policy, or replaces it under the same id.
    pub fn install<'a>(
        &mut self,
        name: Arc<str>,
        compiled: Compiled,
        namespaces: impl Iterator<Item = &'a Namespace> + Clone,
    ) -> PolicyId {
        let id = match self.by_name.get(&name) {
            Some(&id) => {
                self.unindex(id);
                id
            }
            None => self.free.pop().map(PolicyId).unwrap_or_else(|| {
                self.policies.push(None);
                PolicyId(self.policies.len() as u32 - 1)
            }),
        };
        let reached = compiled.rules.iter().map(|rule| reached_now(&rule.reach, namespaces.clone())).collect();
        if compiled.rules.iter().any(|rule| matches!(rule.reach, Reach::Selected(_))) {
            self.selecting.insert(id);
        } else {
            self.selecting.remove(&id);
        }
        self.by_name.insert(name.clone(), id);
        self.policies[id.0 as usize] = Some(Policy { name, compiled, reached });
        self.index_policy(id);
        id
    }

    pub fn remove(&mut self, name: &str) -> Option<PolicyId> {
        let id = self.by_name.remove(name)?;
        self.unindex(id);
        self.selecting.remove(&id);
        self.policies[id.0 as usize] = None;
        self.free.push(id.0);
        Some(id)
    }

    /// Takes note of a namespace that appeared, changed or (with `present == false`) went away. Returns the policies
    /// that reach it now and did not, or did and no longer do: their objects in it must be measured again.
    pub fn namespace_changed(&mut self, namespace: &Namespace, present: bool) -> Vec<PolicyId> {
        let mut changed = Vec::new();
        for id in self.selecting.clone() {
            let Some(policy) = self.policies[id.0 as usize].as_mut() else { continue };
            let mut moved = Vec::new();
            for (number, rule) in policy.compiled.rules.iter().enumerate() {
                let Reach::Selected(accepts) = &rule.reach else { continue };
                let reaches = present && accepts(namespace);
                let before = policy.reached[number].iter().position(|known| *known == namespace.name);
                match (reaches, before) {
                    (true, None) => {
                        policy.reached[number].push(namespace.name.clone());
                        moved.push((number as u32, rule.resources.clone(), true));
                    }
                    (false, Some(position)) => {
                        policy.reached[number].swap_remove(position);
                        moved.push((number as u32, rule.resources.clone(), false));
                    }
                    _ => {}
                }
            }
            if moved.is_empty() {
                continue;
            }
            changed.push(id);
            for (rule, resources, added) in moved {
                let entry = RuleRef { policy: id, rule };
                for resource in resources {
                    if added {
                        self.insert(resource, namespace.name.clone(), entry);
                    } else {
                        self.delete(&resource, &namespace.name, entry);
                    }
                }
            }
        }
        changed
    }

    fn policy(&self, id: PolicyId) -> Option<&Policy> {
        self.policies.get(id.0 as usize).and_then(Option::as_ref)
    }

    fn rules_for(&self, resource: &GroupResource, namespace: &str) -> &[RuleRef] {
        self.index.get(resource).and_then(|places| places.get(namespace)).map_or(&[], Vec::as_slice)
    }

    fn index_policy(&mut self, id: PolicyId) {
        let Some(policy) = self.policy(id) else { return };
        let entries: Vec<_> = policy
            .compiled
            .rules
            .iter()
            .zip(&policy.reached)
            .enumerate()
            .flat_map(|(number, (rule, reached))| {
                let entry = RuleRef { policy: id, rule: number as u32 };
                rule.resources
                    .iter()
                    .flat_map(move |resource| reached.iter().map(move |at| (resource.clone(), at.clone(), entry)))
            })
            .collect();
        for (resource, place, entry) in entries {
            self.insert(resource, place, entry);
        }
    }

    fn unindex(&mut self, id: PolicyId) {
        for (resource, place) in self.places(id) {
            if let Some(places) = self.index.get_mut(&resource)
                && let Some(rules) = places.get_mut(&place)
            {
                rules.retain(|entry| entry.policy != id);
                if rules.is_empty() {
                    places.remove(&place);
                }
            }
        }
    }

    fn insert(&mut self, resource: GroupResource, place: Arc<str>, entry: RuleRef) {
        let policies = &self.policies;
        let name = |entry: &RuleRef| policies[entry.policy.0 as usize].as_ref().map(|policy| policy.name.clone());
        let rules = self.index.entry(resource).or_default().entry(place).or_default();
        let at = rules.partition_point(|known| (name(known), known.rule) < (name(&entry), entry.rule));
        if rules.get(at) != Some(&entry) {
            rules.insert(at, entry);
        }
    }

    fn delete(&mut self, resource: &GroupResource, place: &Arc<str>, entry: RuleRef) {
        if let Some(places) = self.index.get_mut(resource)
            && let Some(rules) = places.get_mut(place)
        {
            rules.retain(|known| *known != entry);
            if rules.is_empty() {
                places.remove(place);
            }
        }
    }
}

fn reached_now<'a>(reach: &Reach, namespaces: impl Iterator<Item = &'a Namespace>) -> Vec<Arc<str>> {
    match reach {
        Reach::Namespace(name) => vec![name.clone()],
        Reach::Selected(accepts) => namespaces.filter(|namespace| accepts(namespace)).map(|n| n.name.clone()).collect(),
        Reach::Cluster => vec!["".into()],
    }
}
