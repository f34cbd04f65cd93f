//! All rules, indexed by resource and namespace, changed one policy at a time.
//!
//! Which namespaces a rule that selects them reaches is never written down: six hundred policies over five thousand
//! namespaces would be three million entries. It is asked when an object of a namespace is first measured, and the
//! answer is kept with that namespace until it or the rules change.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use ledger::Limit;

use crate::GroupResource;
use crate::jsonpath;
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
    /// Whether an object may take less than nothing, and so discount what others take.
    pub discounts: bool,
}

/// What a policy object compiles to.
#[derive(Clone)]
pub struct Compiled {
    pub accounts: Vec<Account>,
    pub rules: Vec<Rule>,
    /// Everything of the policy that decides *what* is charged, and nothing that only decides how much is allowed.
    /// While it stays equal, a changed policy needs no recount.
    pub fingerprint: Vec<u8>,
    /// When the policy means something else although it did not change.
    pub until_ms: Option<i64>,
}

/// Which objects are measured, and how.
#[derive(Clone)]
pub struct Rule {
    pub resources: Vec<GroupResource>,
    pub reach: Reach,
    pub measure: Arc<dyn Measure>,
}

impl Rule {
    /// Whether it is this very rule, taken over, or made of the same.
    pub fn is(&self, other: &Rule) -> bool {
        let same_reach = match (&self.reach, &other.reach) {
            (Reach::Namespace(one), Reach::Namespace(other)) => one == other,
            (Reach::Selected(one), Reach::Selected(other)) => Arc::ptr_eq(one, other),
            (Reach::Cluster, Reach::Cluster) => true,
            _ => false,
        };
        let same_measure = || {
            let (one, other) = (self.measure.essence(), other.measure.essence());
            !one.is_empty() && one == other
        };
        same_reach
            && self.resources == other.resources
            && (Arc::ptr_eq(&self.measure, &other.measure) || same_measure())
    }
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
}

#[derive(Copy, Clone, PartialEq, Eq)]
struct RuleRef {
    policy: PolicyId,
    rule: u32,
}

/// The rules that look at one resource.
#[derive(Default)]
struct Looking {
    /// By the one namespace they look into; "" for objects in none.
    fixed: HashMap<Arc<str>, Vec<RuleRef>>,
    selecting: Vec<RuleRef>,
}

/// By resource and namespace, for namespaces that objects were measured in.
type Found = HashMap<GroupResource, HashMap<Arc<str>, Arc<[RuleRef]>>>;

/// The rules of every installed policy, and the namespaces they look into.
#[derive(Default)]
pub struct Rulebook {
    policies: Vec<Option<Policy>>,
    free: Vec<u32>,
    by_name: HashMap<Arc<str>, PolicyId>,
    namespaces: BTreeMap<Arc<str>, Namespace>,
    /// The policies with a rule that selects namespaces: the only ones a changed namespace has to be shown to.
    selecting: BTreeSet<PolicyId>,
    index: HashMap<GroupResource, Looking>,
    found: RefCell<Found>,
    changes: u64,
    /// Of these all objects are measured in one step wherever a policy changes, and by all rules.
    brief: HashSet<GroupResource>,
}

/// How many steps the paths of all rules together may take on an object that is measured briefly, whoever asks.
pub const BRIEF_STEPS_MAX: u64 = 5_000;

impl Rulebook {
    pub fn new() -> Self {
        Self::default()
    }

    /// A rulebook in which objects of some resources are measured briefly.
    pub fn brief_on(resources: impl IntoIterator<Item = GroupResource>) -> Self {
        Self { brief: resources.into_iter().collect(), ..Self::default() }
    }

    /// Everything the rules say of `subject`. Rules are asked in the order of their policies' names, so that the
    /// same state always gives the same verdict, word for word.
    pub fn measure(&self, subject: &Subject<'_>) -> Result<Verdict, MeasureError> {
        self.measure_where(subject, |_| true)
    }

    /// What the rules of these policies alone say of it.
    pub fn measure_by(&self, subject: &Subject<'_>, policies: &[PolicyId]) -> Result<Verdict, MeasureError> {
        self.measure_where(subject, |policy| policies.contains(&policy))
    }

    fn measure_where(
        &self,
        subject: &Subject<'_>,
        is_asked: impl Fn(PolicyId) -> bool,
    ) -> Result<Verdict, MeasureError> {
        if self.brief.contains(subject.resource) {
            return jsonpath::within_steps(BRIEF_STEPS_MAX, || self.ask(subject, is_asked));
        }
        self.ask(subject, is_asked)
    }

    fn ask(&self, subject: &Subject<'_>, is_asked: impl Fn(PolicyId) -> bool) -> Result<Verdict, MeasureError> {
        let mut verdict = Verdict::default();
        let rules = self.rules_for(subject.resource, subject.namespace);
        for rule in rules.iter().flat_map(|rules| rules.iter()).filter(|rule| is_asked(rule.policy)) {
            let Some(policy) = self.policy(rule.policy) else { continue };
            verdict.by(rule.policy);
            policy.compiled.rules[rule.rule as usize].measure.measure(subject, &mut verdict)?;
        }
        Ok(verdict)
    }

    /// Whether any rule looks at objects of this resource in this namespace; lets a write that nothing limits skip
    /// the ledger.
    pub fn concerns(&self, resource: &GroupResource, namespace: &str) -> bool {
        self.rules_for(resource, namespace).is_some_and(|rules| !rules.is_empty())
    }

    /// The resources that rules look at, with the namespaces where they do ("" for objects in none); none of these where some rule
    /// picks namespaces by what is written on them.
    pub fn resources(&self) -> impl Iterator<Item = (&GroupResource, Option<BTreeSet<Arc<str>>>)> {
        self.index.iter().map(|(resource, looking)| {
            let fixed = || looking.fixed.keys().cloned().collect();
            (resource, looking.selecting.is_empty().then(fixed))
        })
    }

    /// The policies with such a rule, by name.
    pub fn looking_at(&self, resource: &GroupResource, namespace: &str) -> Vec<Arc<str>> {
        let rules = self.rules_for(resource, namespace);
        let policies: BTreeSet<PolicyId> =
            rules.iter().flat_map(|rules| rules.iter()).map(|rule| rule.policy).collect();
        policies.into_iter().filter_map(|id| self.name(id).cloned()).collect()
    }

    /// Whether the answer of some rule about an object with this text may be another at another time.
    pub fn may_change_with_time(&self, resource: &GroupResource, namespace: &str, text: &str) -> bool {
        let rules = self.rules_for(resource, namespace);
        rules.iter().flat_map(|rules| rules.iter()).any(|rule| self.changes_with_time(*rule, text))
    }

    /// The policies of which that is so, in their order.
    pub fn changing_with_time(&self, resource: &GroupResource, namespace: &str, text: &str) -> Vec<PolicyId> {
        let rules = self.rules_for(resource, namespace);
        let rules = rules.iter().flat_map(|rules| rules.iter()).filter(|rule| self.changes_with_time(**rule, text));
        let policies: BTreeSet<PolicyId> = rules.map(|rule| rule.policy).collect();
        policies.into_iter().collect()
    }

    fn changes_with_time(&self, rule: RuleRef, text: &str) -> bool {
        let policy = self.policy(rule.policy);
        policy.is_some_and(|policy| policy.compiled.rules[rule.rule as usize].measure.may_change_with_time(text))
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

    /// The namespaces a policy looks into now, sorted.
    pub fn namespaces_of(&self, id: PolicyId) -> Vec<Arc<str>> {
        let Some(policy) = self.policy(id) else { return Vec::new() };
        let selecting: Vec<&Rule> =
            policy.compiled.rules.iter().filter(|rule| matches!(rule.reach, Reach::Selected(_))).collect();
        let fixed = policy.compiled.rules.iter().filter_map(|rule| match &rule.reach {
            Reach::Namespace(name) => Some(name.clone()),
            Reach::Selected(_) | Reach::Cluster => None,
        });
        let selected = self.namespaces.values().filter(|_| !selecting.is_empty());
        let selected = selected.filter(|one| selecting.iter().any(|rule| rule.reach.accepts(one)));
        let all: BTreeSet<Arc<str>> = selected.map(|one| one.name.clone()).chain(fixed).collect();
        all.into_iter().collect()
    }

    /// Whether a policy looks into a namespace now ("" for objects in none).
    pub fn looks_into(&self, id: PolicyId, namespace: &str) -> bool {
        self.policy(id).is_some_and(|policy| policy.compiled.rules.iter().any(|rule| self.reaches(rule, namespace)))
    }

    /// Whether a rule, installed or not, looks into a namespace now ("" for objects in none).
    pub fn reaches(&self, rule: &Rule, namespace: &str) -> bool {
        match &rule.reach {
            Reach::Namespace(name) => **name == *namespace,
            Reach::Selected(_) => self.namespaces.get(namespace).is_some_and(|one| rule.reach.accepts(one)),
            Reach::Cluster => namespace.is_empty(),
        }
    }

    /// A number that is another whenever what is said of an object may be.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Installs a policy, or replaces it under the same id.
    pub fn install(&mut self, name: Arc<str>, compiled: Compiled) -> PolicyId {
        self.changes += 1;
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
        if compiled.rules.iter().any(|rule| matches!(rule.reach, Reach::Selected(_))) {
            self.selecting.insert(id);
        } else {
            self.selecting.remove(&id);
        }
        self.by_name.insert(name.clone(), id);
        self.policies[id.0 as usize] = Some(Policy { name, compiled });
        self.index_policy(id);
        id
    }

    pub fn remove(&mut self, name: &str) -> Option<PolicyId> {
        let id = self.by_name.remove(name)?;
        self.changes += 1;
        self.unindex(id);
        self.selecting.remove(&id);
        self.policies[id.0 as usize] = None;
        self.free.push(id.0);
        Some(id)
    }

    /// Gives a policy another name. It keeps its place and its rules; whoever had that name must be gone.
    pub fn rename(&mut self, from: &str, to: Arc<str>) -> Option<PolicyId> {
        let id = self.by_name.remove(from)?;
        self.changes += 1;
        self.by_name.insert(to.clone(), id);
        if let Some(policy) = self.policies[id.0 as usize].as_mut() {
            policy.name = to;
            // Rules are asked in the order of names.
            for rule in &policy.compiled.rules {
                rule.resources.iter().for_each(|resource| forget(self.found.get_mut(), resource, &rule.reach));
            }
        }
        Some(id)
    }

    /// Takes note of a namespace that appeared, changed or (with `present == false`) went away. Returns the policies
    /// that reach it now and did not, or did and no longer do: their objects in it must be measured again.
    pub fn namespace_changed(&mut self, namespace: &Namespace, present: bool) -> Vec<PolicyId> {
        let moved = self.moved_by(namespace, present);
        self.changes += 1;
        match present {
            true => drop(self.namespaces.insert(namespace.name.clone(), namespace.clone())),
            false => drop(self.namespaces.remove(&namespace.name)),
        }
        self.found.get_mut().values_mut().for_each(|places| drop(places.remove(&namespace.name)));
        moved
    }

    /// The policies that [`Rulebook::namespace_changed`] would return.
    pub fn moved_by(&self, namespace: &Namespace, present: bool) -> Vec<PolicyId> {
        let before = self.namespaces.get(&namespace.name);
        let moved = |rule: &Rule| {
            let reached = before.is_some_and(|before| rule.reach.accepts(before));
            matches!(rule.reach, Reach::Selected(_)) && reached != (present && rule.reach.accepts(namespace))
        };
        let changed = self.selecting.iter().copied();
        changed.filter(|id| self.compiled(*id).is_some_and(|compiled| compiled.rules.iter().any(moved))).collect()
    }

    fn policy(&self, id: PolicyId) -> Option<&Policy> {
        self.policies.get(id.0 as usize).and_then(Option::as_ref)
    }

    fn rules_for(&self, resource: &GroupResource, namespace: &str) -> Option<Arc<[RuleRef]>> {
        let looking = self.index.get(resource)?;
        let mut found = self.found.borrow_mut();
        if let Some(known) = found.get(resource).and_then(|places| places.get(namespace)) {
            return Some(known.clone());
        }
        let mut rules = looking.fixed.get(namespace).cloned().unwrap_or_default();
        let seen = self.namespaces.get(namespace);
        if let Some(seen) = seen {
            let accepts = |entry: &&RuleRef| self.rule(**entry).is_some_and(|rule| rule.reach.accepts(seen));
            rules.extend(looking.selecting.iter().filter(accepts));
        }
        rules.sort_by(|a, b| self.order(a).cmp(&self.order(b)));
        let rules: Arc<[RuleRef]> = rules.into();
        // Only what exists is kept: a name that anybody may make up is not.
        if seen.is_some() || namespace.is_empty() {
            found.entry(resource.clone()).or_default().insert(namespace.into(), rules.clone());
        }
        Some(rules)
    }

    fn rule(&self, entry: RuleRef) -> Option<&Rule> {
        self.policy(entry.policy)?.compiled.rules.get(entry.rule as usize)
    }

    fn order(&self, entry: &RuleRef) -> (Option<&Arc<str>>, u32) {
        (self.name(entry.policy), entry.rule)
    }

    fn index_policy(&mut self, id: PolicyId) {
        let Some(policy) = self.policies.get(id.0 as usize).and_then(Option::as_ref) else { return };
        for (number, rule) in policy.compiled.rules.iter().enumerate() {
            let entry = RuleRef { policy: id, rule: number as u32 };
            for resource in &rule.resources {
                let looking = self.index.entry(resource.clone()).or_default();
                match &rule.reach {
                    Reach::Namespace(name) => looking.fixed.entry(name.clone()).or_default().push(entry),
                    Reach::Cluster => looking.fixed.entry("".into()).or_default().push(entry),
                    Reach::Selected(_) => looking.selecting.push(entry),
                }
                forget(self.found.get_mut(), resource, &rule.reach);
            }
        }
    }

    fn unindex(&mut self, id: PolicyId) {
        let Some(policy) = self.policies.get(id.0 as usize).and_then(Option::as_ref) else { return };
        for rule in &policy.compiled.rules {
            for resource in &rule.resources {
                let Some(looking) = self.index.get_mut(resource) else { continue };
                let place: Option<Arc<str>> = match &rule.reach {
                    Reach::Namespace(name) => Some(name.clone()),
                    Reach::Cluster => Some("".into()),
                    Reach::Selected(_) => None,
                };
                match place {
                    None => looking.selecting.retain(|entry| entry.policy != id),
                    Some(place) => {
                        if let Some(rules) = looking.fixed.get_mut(&place) {
                            rules.retain(|entry| entry.policy != id);
                            if rules.is_empty() {
                                looking.fixed.remove(&place);
                            }
                        }
                    }
                }
                if looking.fixed.is_empty() && looking.selecting.is_empty() {
                    self.index.remove(resource);
                }
                forget(self.found.get_mut(), resource, &rule.reach);
            }
        }
    }
}

/// What was found is looked for again where a rule came or went.
fn forget(found: &mut Found, resource: &GroupResource, reach: &Reach) {
    match reach {
        Reach::Selected(_) => drop(found.remove(resource)),
        Reach::Namespace(name) => drop(found.get_mut(resource).and_then(|places| places.remove(name))),
        Reach::Cluster => drop(found.get_mut(resource).and_then(|places| places.remove(""))),
    }
}

impl Reach {
    /// Whether it selects this namespace.
    fn accepts(&self, namespace: &Namespace) -> bool {
        match self {
            Reach::Selected(accepts) => accepts(namespace),
            Reach::Namespace(_) | Reach::Cluster => false,
        }
    }
}
