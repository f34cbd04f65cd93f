//! Which objects a scoped quota looks at.

use kinds::fields::{at, items, text};
use kinds::resources::{QosClass, UsageError, qos_class};
use rules::Subject;
use serde_json::Value;

use super::usage::volume;

/// The scopes of a quota, all of which must match. Objects that are neither pods nor volume claims match no scope at
/// all, so a scoped quota never counts them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scopes {
    requirements: Vec<Requirement>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    pub scope: Scope,
    pub operator: Operator,
}

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    Terminating,
    NotTerminating,
    BestEffort,
    NotBestEffort,
    PriorityClass,
    CrossNamespacePodAffinity,
    VolumeAttributesClass,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operator {
    Exists,
    DoesNotExist,
    In(Vec<Box<str>>),
    NotIn(Vec<Box<str>>),
}

impl Scope {
    pub fn of(name: &str) -> Option<Scope> {
        Some(match name {
            "Terminating" => Scope::Terminating,
            "NotTerminating" => Scope::NotTerminating,
            "BestEffort" => Scope::BestEffort,
            "NotBestEffort" => Scope::NotBestEffort,
            "PriorityClass" => Scope::PriorityClass,
            "CrossNamespacePodAffinity" => Scope::CrossNamespacePodAffinity,
            "VolumeAttributesClass" => Scope::VolumeAttributesClass,
            _ => return None,
        })
    }

    pub fn name(self) -> &'static str {
        match self {
            Scope::Terminating => "Terminating",
            Scope::NotTerminating => "NotTerminating",
            Scope::BestEffort => "BestEffort",
            Scope::NotBestEffort => "NotBestEffort",
            Scope::PriorityClass => "PriorityClass",
            Scope::CrossNamespacePodAffinity => "CrossNamespacePodAffinity",
            Scope::VolumeAttributesClass => "VolumeAttributesClass",
        }
    }

    /// Whether the scope is about a class with a name, and so takes every operator; the others only exist or not.
    pub fn has_values(self) -> bool {
        matches!(self, Scope::PriorityClass | Scope::VolumeAttributesClass)
    }
}

impl Operator {
    /// `values` is ignored where the operator takes none.
    pub fn of(name: &str, values: Vec<Box<str>>) -> Option<Operator> {
        Some(match name {
            "Exists" => Operator::Exists,
            "DoesNotExist" => Operator::DoesNotExist,
            "In" => Operator::In(values),
            "NotIn" => Operator::NotIn(values),
            _ => return None,
        })
    }

    /// A label selector's answer about one label. An absent label satisfies the two negative operators.
    fn accepts(&self, value: Option<&str>) -> bool {
        let listed = |values: &[Box<str>]| value.is_some_and(|value| values.iter().any(|one| &**one == value));
        match self {
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::In(values) => listed(values),
            Operator::NotIn(values) => !listed(values),
        }
    }
}

/// Whether a pod is best effort, remembered for all quotas that ask.
struct IsBestEffort(Result<bool, UsageError>);

impl Scopes {
    /// Reads `scopes` and `scopeSelector` of a quota spec. Unknown scopes and operators (which validation refuses) are
    /// reported by name, since a quota that silently matched everything, or nothing, would be worse.
    pub fn read(spec: &Value) -> Result<Scopes, String> {
        let mut requirements = Vec::new();
        for name in items(spec, &["scopes"]) {
            let name = name.as_str().unwrap_or("");
            let scope = Scope::of(name).ok_or_else(|| name.to_string())?;
            requirements.push(Requirement { scope, operator: Operator::Exists });
        }
        for expression in items(spec, &["scopeSelector", "matchExpressions"]) {
            requirements.push(Requirement::read(expression)?);
        }
        Ok(Scopes { requirements })
    }

    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    pub fn requirements(&self) -> &[Requirement] {
        &self.requirements
    }

    pub fn match_pod(&self, subject: &Subject<'_>) -> Result<bool, UsageError> {
        for requirement in &self.requirements {
            if !requirement.matches_pod(subject)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    pub fn match_volume_claim(&self, claim: &Value) -> bool {
        self.requirements.iter().all(|requirement| requirement.matches_volume_claim(claim))
    }
}

impl Requirement {
    pub fn read(expression: &Value) -> Result<Requirement, String> {
        let name = text(expression, &["scopeName"]);
        let scope = Scope::of(name).ok_or_else(|| name.to_string())?;
        let values = items(expression, &["values"]).iter().filter_map(Value::as_str).map(Box::from).collect();
        let operator = text(expression, &["operator"]);
        let operator = Operator::of(operator, values).ok_or_else(|| operator.to_string())?;
        Ok(Requirement { scope, operator })
    }

    pub fn matches_pod(&self, subject: &Subject<'_>) -> Result<bool, UsageError> {
        let pod = subject.object;
        Ok(match self.scope {
            Scope::Terminating => is_terminating(pod),
            Scope::NotTerminating => !is_terminating(pod),
            Scope::BestEffort => is_best_effort(subject)?,
            Scope::NotBestEffort => !is_best_effort(subject)?,
            Scope::PriorityClass => {
                let class = Some(text(pod, &["spec", "priorityClassName"])).filter(|class| !class.is_empty());
                self.operator.accepts(class)
            }
            Scope::CrossNamespacePodAffinity => crosses_namespaces(pod),
            Scope::VolumeAttributesClass => false,
        })
    }

    /// A claim may refer to several classes at once while it moves from one to another: any of them matches.
    pub fn matches_volume_claim(&self, claim: &Value) -> bool {
        if self.scope != Scope::VolumeAttributesClass {
            return false;
        }
        let mut classes = volume::attributes_classes(claim).peekable();
        if classes.peek().is_none() {
            return self.operator.accepts(None);
        }
        classes.any(|class| self.operator.accepts(Some(class)))
    }
}

/// A pod with a deadline ends by itself.
fn is_terminating(pod: &Value) -> bool {
    at(pod, &["spec", "activeDeadlineSeconds"]).and_then(Value::as_i64).is_some_and(|seconds| seconds >= 0)
}

fn is_best_effort(subject: &Subject<'_>) -> Result<bool, UsageError> {
    let known = subject.memo(|subject| IsBestEffort(qos_class(subject.object).map(|qos| qos == QosClass::BestEffort)));
    known.0.clone()
}

/// Whether an affinity or anti-affinity term names other namespaces; an empty selector names all of them.
fn crosses_namespaces(pod: &Value) -> bool {
    let Some(affinity) = at(pod, &["spec", "affinity"]) else { return false };
    let leaves = |term: &Value| {
        !items(term, &["namespaces"]).is_empty() || term.get("namespaceSelector").is_some_and(|one| !one.is_null())
    };
    ["podAffinity", "podAntiAffinity"].into_iter().any(|kind| {
        let required = items(affinity, &[kind, "requiredDuringSchedulingIgnoredDuringExecution"]);
        let preferred = items(affinity, &[kind, "preferredDuringSchedulingIgnoredDuringExecution"]);
        required.iter().any(leaves) || preferred.iter().filter_map(|term| term.get("podAffinityTerm")).any(leaves)
    })
}
