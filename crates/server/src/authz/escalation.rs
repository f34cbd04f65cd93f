//! Nobody may grant what they do not hold. Writing a role needs its rules (or the verb `escalate`), writing a binding
//! needs the rules of the bound role (or the verb `bind` on it); otherwise whoever may edit roles owns everything.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::held::{Held, TooLong};
use super::rules::{PERMISSIONS_MAX, Rule, parse_rules, quoted};
use super::{Attributes, Kind, Rbac, forbidden_object};
use crate::identity::Identity;

/// A write of a Role, ClusterRole or binding: the object before (none on create) and after.
#[derive(Clone, Copy, Debug)]
pub struct RoleChange<'a> {
    pub kind: Kind,
    pub namespace: &'a str,
    pub name: &'a str,
    pub old: Option<&'a Value>,
    pub new: &'a Value,
}

/// Why a role or binding may not be written: a 403, or a 404 when a binding names a role that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denial {
    #[error("{0}")]
    Forbidden(String),
    #[error("{kind}.rbac.authorization.k8s.io {name:?} not found")]
    NoSuchRole { kind: &'static str, name: String },
}

impl RoleChange<'_> {
    /// Whether nothing changes but what garbage collection needs. Anything else grants: a label makes a role part of every
    /// role that aggregates by it.
    fn is_housekeeping(&self) -> bool {
        const HOUSEKEEPING: [&str; 5] =
            ["ownerReferences", "finalizers", "managedFields", "resourceVersion", "generation"];
        let bare = |object: &Value| {
            let mut object = object.clone();
            if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
                metadata.retain(|field, _| !HOUSEKEEPING.contains(&field.as_str()));
            }
            object
        };
        self.old.is_some_and(|old| bare(old) == bare(self.new))
    }

    fn refuse(&self, why: &str) -> Denial {
        Denial::Forbidden(forbidden_object(Kind::GROUP, self.kind.resource(), self.name, why))
    }
}

pub fn check_role(rbac: &Rbac, identity: &Identity, change: RoleChange<'_>) -> Result<(), Denial> {
    let aggregation = |role: Option<&Value>| {
        role.and_then(|role| role.get("aggregationRule")).filter(|rule| !rule.is_null()).cloned()
    };
    if change.is_housekeeping() || identity.is_master() {
        return Ok(());
    }
    let escalate = Attributes::object("escalate", Kind::GROUP, change.kind.resource(), change.namespace, change.name);
    if rbac.authorize(identity, &escalate).is_allowed() {
        return Ok(());
    }
    covered(rbac, identity, change.namespace, &parse_rules(change.new)).map_err(|why| change.refuse(&why))?;
    // An aggregation can gather anything, now or later, so only who holds everything may set or change one.
    let aggregates = aggregation(change.old).is_some() || aggregation(Some(change.new)).is_some();
    if aggregates && covered(rbac, identity, change.namespace, &everything()).is_err() {
        return Err(change.refuse("must have cluster-admin privileges to use the aggregationRule"));
    }
    Ok(())
}

pub fn check_binding(rbac: &Rbac, identity: &Identity, change: RoleChange<'_>) -> Result<(), Denial> {
    if identity.is_master() || change.is_housekeeping() {
        return Ok(());
    }
    let reference = change.new.get("roleRef").cloned().unwrap_or_default();
    let name = reference["name"].as_str().unwrap_or_default();
    let kind = match reference["kind"].as_str() {
        Some("Role") => Kind::Role,
        _ => Kind::ClusterRole,
    };
    let bind = Attributes::object("bind", Kind::GROUP, kind.resource(), change.namespace, name);
    if rbac.authorize(identity, &bind).is_allowed() {
        return Ok(());
    }
    let Some(rules) = rbac.role_rules(kind, change.namespace, name) else {
        return Err(Denial::NoSuchRole { kind: kind.resource(), name: name.to_owned() });
    };
    covered(rbac, identity, change.namespace, &rules).map_err(|why| change.refuse(&why))
}

fn everything() -> [Rule; 2] {
    let all = || vec!["*".to_owned()];
    [
        Rule { verbs: all(), groups: all(), resources: all(), ..Rule::default() },
        Rule { verbs: all(), non_resource_urls: all(), ..Rule::default() },
    ]
}

/// Missing rules that a refusal names.
pub(crate) const NAMED_MAX: usize = 200;

/// Whether the caller holds all of `rules` in `namespace`; if not, the message naming what is missing.
fn covered(rbac: &Rbac, identity: &Identity, namespace: &str, rules: &[Rule]) -> Result<(), String> {
    let (held, unresolved) = rbac.rules_for(identity, namespace);
    let missing = missing(&Held::new(&held), rules)?;
    if missing.is_empty() {
        return Ok(());
    }
    let lines: BTreeSet<String> = compact(missing).iter().map(Rule::describe).collect();
    let mut lines: Vec<String> = lines.into_iter().collect();
    if lines.len() > NAMED_MAX {
        let more = lines.split_off(NAMED_MAX).len();
        lines.push(format!("and {more} more"));
    }
    let mut message = format!(
        "user {:?} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}",
        identity.user,
        quoted(&identity.groups),
        lines.join("\n")
    );
    if !unresolved.is_empty() {
        message.push_str(&format!("; resolution errors: [{}]", unresolved.join(", ")));
    }
    Err(message)
}

/// The single permissions of `rules` that are not held.
fn missing(held: &Held<'_>, rules: &[Rule]) -> Result<Vec<Rule>, String> {
    let too_long = |_: TooLong| {
        "comparing the rules with those that you hold takes too long; use '*', fewer rules, or split the role"
            .to_owned()
    };
    let mut missing = Vec::new();
    let mut room = PERMISSIONS_MAX;
    for rule in rules {
        if held.covers(rule).map_err(too_long)? {
            continue;
        }
        let Some(single) = rule.permissions(room) else {
            return Err(format!(
                "the rules name more than {PERMISSIONS_MAX} single permissions; use '*' or split the role"
            ));
        };
        room -= single.len();
        for one in single {
            if !held.covers(&one).map_err(too_long)? {
                missing.push(one);
            }
        }
    }
    Ok(missing)
}

/// Puts the verbs of one resource (and name) together again, so that the message has one line for it.
fn compact(single: Vec<Rule>) -> Vec<Rule> {
    let mut merged = BTreeMap::new();
    let mut rules: Vec<Rule> = Vec::new();
    for mut rule in single {
        if !rule.non_resource_urls.is_empty() {
            rules.push(rule);
            continue;
        }
        let key = (rule.groups.clone(), rule.resources.clone(), rule.resource_names.clone());
        let at = *merged.entry(key).or_insert(rules.len());
        match rules.get_mut(at) {
            Some(known) => known.verbs.append(&mut rule.verbs),
            None => rules.push(rule),
        }
    }
    rules
}
