//! Pools as large as selected nodes (`spec.nodes`): each resource is a share of the sum of what those nodes can allocate,
//! exactly, from the commit of the node on. A pool that shrinks below what is claimed of it evicts nobody: it says so, and
//! grants nothing more until there is room again.

use std::collections::BTreeMap;
use std::sync::Arc;

use kinds::field_error::{FieldError, Path};
use quantity::{Amount, Format, Quantity};
use rules::GroupResource;
use rules::selector::LabelSelector;
use serde_json::{Map, Value, json};

use super::claim::pools;
use super::pool::RESOURCES_MAX;
use super::{at, text};
use crate::{BalanceLine, Change, Must, Parsed, Place, View};

/// Digits in one part of a share. More would only serve to overflow.
const SHARE_DIGITS_MAX: usize = 9;

pub fn nodes() -> GroupResource {
    GroupResource::core("nodes")
}

/// Which nodes, and how much of each resource.
struct Sizing {
    selector: LabelSelector,
    shares: BTreeMap<String, Share>,
}

/// A part of the whole, or a multiple of it.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct Share {
    numerator: i64,
    denominator: i64,
}

impl Sizing {
    /// `None` for a pool of a fixed size.
    fn read(pool: &Value, errors: &mut Vec<FieldError>) -> Option<Sizing> {
        let written = at(pool, &["spec", "nodes"])?;
        let spec = Path::new("spec");
        let path = spec.child("nodes");
        let selector = written.get("selector").unwrap_or(&Value::Null);
        let selector = LabelSelector::from_object(selector).unwrap_or_else(|error| {
            errors.push(FieldError::invalid(path.child("selector"), selector.clone(), error.to_string()));
            LabelSelector::NOTHING
        });
        let entries = at(written, &["shares"]).and_then(Value::as_object);
        let list = path.child("shares");
        if let Some(many) = entries.filter(|entries| entries.len() > RESOURCES_MAX) {
            errors.push(FieldError::too_many(list, many.len(), RESOURCES_MAX));
            return None;
        }
        let mut shares = BTreeMap::new();
        for (name, value) in entries.into_iter().flatten() {
            match value.as_str().and_then(Share::parse) {
                Some(share) => drop(shares.insert(name.clone(), share)),
                None => {
                    let detail = "must be a percentage (\"80%\"), a fraction (\"4/5\") or a whole number (\"2\")";
                    errors.push(FieldError::invalid(list.key(name), value.clone(), detail));
                }
            }
        }
        Some(Sizing { selector, shares })
    }
}

impl Share {
    fn parse(text: &str) -> Option<Share> {
        let whole = |digits: &str| -> Option<i64> {
            let good = !digits.is_empty()
                && digits.len() <= SHARE_DIGITS_MAX
                && digits.bytes().all(|byte| byte.is_ascii_digit());
            good.then(|| digits.parse().ok()).flatten()
        };
        let (numerator, denominator) = if let Some(percent) = text.strip_suffix('%') {
            match percent.split_once('.') {
                None => (whole(percent)?, 100),
                Some((units, places)) => {
                    let scale = 10i64.checked_pow(u32::try_from(places.len()).ok()?)?;
                    (whole(&format!("{units}{places}"))?, scale.checked_mul(100)?)
                }
            }
        } else if let Some((numerator, denominator)) = text.split_once('/') {
            (whole(numerator)?, whole(denominator)?)
        } else {
            (whole(text)?, 1)
        };
        (denominator > 0).then_some(Share { numerator, denominator })
    }

    /// Rounded down to what can be claimed: thousandths of a cpu, whole units of anything else.
    fn of(self, sum: Amount, step: Amount) -> Option<Amount> {
        let nanos = sum.checked_mul(self.numerator)?.nanos().div_euclid(i128::from(self.denominator));
        Some(Amount::from_nanos(nanos - nanos.rem_euclid(step.nanos())))
    }
}

/// What a pool is sized by, as one node states it.
struct Node {
    labels: BTreeMap<String, String>,
    allocatable: Map<String, Value>,
}

impl Node {
    fn read(node: &Value) -> Node {
        let labels = at(node, &["metadata", "labels"]).and_then(Value::as_object);
        let pairs = labels.into_iter().flatten();
        Node {
            labels: pairs.filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_string()))).collect(),
            allocatable: at(node, &["status", "allocatable"]).and_then(Value::as_object).cloned().unwrap_or_default(),
        }
    }
}

pub fn validate(pool: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    Sizing::read(pool, &mut errors);
    errors
}

/// Whether the pool's amount of this resource is the nodes' to say.
pub fn sizes(pool: &Value, resource: &str) -> bool {
    at(pool, &["spec", "nodes", "shares", resource]).is_some()
}

/// The pool with the amounts that its nodes give it, when they differ from what it has.
pub fn must_be(pool: &Value, view: &dyn View) -> Result<Must, String> {
    let mut errors = Vec::new();
    let Some(sizing) = Sizing::read(pool, &mut errors).filter(|_| errors.is_empty()) else {
        return Ok(Must::AsItIs);
    };
    let made = view.parsed(&nodes(), "", &|node| -> Parsed { Arc::new(Node::read(node)) });
    let nodes = made.iter().filter_map(|made| made.downcast_ref::<Node>());
    let selected: Vec<&Node> = nodes.filter(|node| sizing.selector.matches(&node.labels)).collect();
    let mut sized = pool.clone();
    let mut hard = at(pool, &["spec", "quota", "hard"]).and_then(Value::as_object).cloned().unwrap_or_default();
    let zeroes = at(pool, &["spec", "config", "defaultsZero"]) == Some(&Value::Bool(true));
    for (name, share) in &sizing.shares {
        let amount = amount_of(name, *share, &selected)?;
        hard.insert(name.clone(), json!(amount.to_string()));
        if zeroes && at(pool, &["spec", "defaults", name]).is_none() {
            let spec = &mut sized["spec"];
            if !spec["defaults"].is_object() {
                spec["defaults"] = json!({});
            }
            spec["defaults"][name.as_str()] = json!("0");
        }
    }
    sized["spec"]["quota"]["hard"] = Value::Object(hard);
    Ok(Must::differ(pool, sized))
}

fn amount_of(name: &str, share: Share, nodes: &[&Node]) -> Result<Quantity, String> {
    let allocated = name.strip_prefix("requests.").or_else(|| name.strip_prefix("limits.")).unwrap_or(name);
    let too_large = || format!("the nodes have more {allocated} than can be counted");
    let (mut sum, mut format) = (Amount::ZERO, Format::DecimalSi);
    for stated in nodes.iter().filter_map(|node| node.allocatable.get(allocated)) {
        let written = stated.as_str().map_or_else(|| stated.to_string(), str::to_string);
        let amount =
            Quantity::parse(&written).map_err(|error| format!("a node's {allocated} is {written:?}: {error}"))?;
        if sum.is_zero() {
            format = amount.format();
        }
        // A node that has less than nothing takes nothing from what others have.
        sum = sum.checked_add(amount.amount().max(Amount::ZERO)).ok_or_else(too_large)?;
    }
    let step = if allocated == "cpu" { Amount::from_millis(1) } else { Amount::from_units(1) };
    share.of(sum, step).map(|amount| Quantity::new(amount, format).canonical()).ok_or_else(too_large)
}

/// The pools that a change of a node may resize. A heartbeat resizes none.
pub fn sized_by(change: &Change<'_>, view: &dyn View) -> Vec<Place> {
    let new = change.new.unwrap_or(&Value::Null);
    let same = |path: &[&str]| at(change.old, path) == at(new, path);
    if change.new.is_some() && same(&["metadata", "labels"]) && same(&["status", "allocatable"]) {
        return Vec::new();
    }
    let sized = view.list(&pools(), "").into_iter().filter(|pool| at(pool, &["spec", "nodes"]).is_some());
    sized.map(|pool| Place::new(pools(), "", text(&pool, &["metadata", "name"]))).collect()
}

/// Of a pool that nodes size: what is claimed beyond what they give. `None` for other pools.
pub fn oversubscribed(pool: &Value, lines: &[BalanceLine]) -> Option<Vec<String>> {
    at(pool, &["spec", "nodes"])?;
    let over = lines.iter().filter(|line| line.bucket.is_empty() && sizes(pool, &line.resource));
    let over = over.filter(|line| line.balance.limit.amount().is_some_and(|limit| limit < line.balance.used));
    let show = |line: &BalanceLine, amount| format!("{}={}", line.resource, Quantity::new(amount, line.balance.format));
    Some(
        over.map(|line| {
            let limit = line.balance.limit.amount().unwrap_or(Amount::ZERO);
            format!("claimed: {}, nodes give: {}", show(line, line.balance.used), show(line, limit))
        })
        .collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_exact_fractions() {
        let share = |text: &str| Share::parse(text).map(|share| (share.numerator, share.denominator));
        assert_eq!(share("80%"), Some((80, 100)));
        assert_eq!(share("33.3%"), Some((333, 1000)));
        assert_eq!(share("2/3"), Some((2, 3)));
        assert_eq!(share("2"), Some((2, 1)));
        for bad in ["", "%", "-1", "1/0", "1/", "/3", "x", "1.5", "1e9", "99999999999", "1/2/3", "3.%."] {
            assert_eq!(share(bad), None, "{bad}");
        }
        let node = |cpu: &str, memory: &str| {
            Node::read(&json!({"status": {"allocatable": {"cpu": cpu, "memory": memory, "pods": "110"}}}))
        };
        let (one, two) = (node("3920m", "7935184Ki"), node("1", "1Gi"));
        let nodes = [&one, &two];
        let amount = |name: &str, text: &str| amount_of(name, Share::parse(text).unwrap(), &nodes).unwrap().to_string();
        assert_eq!(amount("requests.cpu", "100%"), "4920m");
        assert_eq!(amount("limits.cpu", "1/3"), "1640m");
        assert_eq!(amount("cpu", "1/7"), "702m");
        assert_eq!(amount("requests.memory", "100%"), "8983760Ki");
        assert_eq!(amount("requests.memory", "1/7"), "1314195748");
        assert_eq!(amount("pods", "33.3%"), "73");
        assert_eq!(amount("example.com/gpu", "1"), "0");
        assert!(amount_of("cpu", Share::parse("2").unwrap(), &[&node("x", "1")]).is_err());
    }
}
