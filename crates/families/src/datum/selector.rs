//! Selectors over dimensions: which requests a bucket is about, and which of two buckets is about fewer.
//!
//! They are written like label selectors and match like them, but values are those of dimensions: `datumcloud/d1-standard-2` is no
//! label value and a good instance type.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use kinds::field_error::{FieldError, Path};
use kinds::fields::{at, items, text};
use rules::selector::label_key_problems;
use serde_json::Value;

/// Requirements of one selector, and values of one requirement: each is asked of every claim.
const ITEMS_MAX: usize = 64;
/// The longest value of a dimension.
pub const VALUE_BYTES_MAX: usize = 253;

pub type Dimensions = BTreeMap<String, String>;

/// What must be so of one dimension.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Asks {
    In(BTreeSet<String>),
    Exists,
    NotIn(BTreeSet<String>),
    DoesNotExist,
}

/// All of these must hold; none holds always. What is written in two ways is the same selector.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Selector {
    requirements: BTreeSet<(String, Asks)>,
}

/// How narrow a selector is; the narrowest is the least.
pub type Breadth = (Reverse<usize>, Vec<(u8, usize)>);

impl Selector {
    /// Reads one; what is wrong with it is told with its place.
    pub fn read(object: Option<&Value>, path: &Path<'_>, errors: &mut Vec<FieldError>) -> Selector {
        let mut selector = Selector::default();
        let Some(object) = object.filter(|object| !object.is_null()) else { return selector };
        let labels = path.child("matchLabels");
        for (key, value) in at(object, &["matchLabels"]).and_then(Value::as_object).into_iter().flatten() {
            let place = labels.key(key);
            check_key(key, &place, errors);
            let value = value.as_str().unwrap_or_default();
            check_value(value, &place, errors);
            selector.requirements.insert((key.clone(), Asks::In([value.to_owned()].into())));
        }
        let expressions = items(object, &["matchExpressions"]);
        let place = path.child("matchExpressions");
        for (index, expression) in expressions.iter().enumerate() {
            let place = place.index(index);
            let key = text(expression, &["key"]);
            check_key(key, &place.child("key"), errors);
            let values = items(expression, &["values"]);
            if values.len() > ITEMS_MAX {
                errors.push(FieldError::too_many(place.child("values"), values.len(), ITEMS_MAX));
            }
            let values: BTreeSet<String> =
                values.iter().take(ITEMS_MAX).map(|value| value.as_str().unwrap_or_default().to_owned()).collect();
            values.iter().for_each(|value| check_value(value, &place.child("values"), errors));
            let requirement = match text(expression, &["operator"]) {
                "In" => Asks::In(values.clone()),
                "NotIn" => Asks::NotIn(values.clone()),
                "Exists" => Asks::Exists,
                "DoesNotExist" => Asks::DoesNotExist,
                other => {
                    let known = ["DoesNotExist", "Exists", "In", "NotIn"];
                    errors.push(FieldError::not_supported(place.child("operator"), other, &known));
                    continue;
                }
            };
            let wants = matches!(requirement, Asks::In(_) | Asks::NotIn(_));
            if wants && values.is_empty() {
                errors.push(FieldError::required(place.child("values"), "In and NotIn need at least one value"));
            }
            if !wants && !values.is_empty() {
                errors.push(FieldError::forbidden(place.child("values"), "Exists and DoesNotExist have no values"));
            }
            selector.requirements.insert((key.to_owned(), requirement));
        }
        if selector.requirements.len() > ITEMS_MAX {
            errors.push(FieldError::too_many(path, selector.requirements.len(), ITEMS_MAX));
        }
        selector
    }

    pub fn matches(&self, dimensions: &Dimensions) -> bool {
        self.requirements.iter().all(|(key, asks)| asks.holds(dimensions.get(key).map(String::as_str)))
    }

    pub fn is_everything(&self) -> bool {
        self.requirements.is_empty()
    }

    /// All requirements, by dimension.
    pub fn asks(&self) -> impl Iterator<Item = (&str, &Asks)> {
        self.requirements.iter().map(|(key, asks)| (key.as_str(), asks))
    }

    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.requirements.iter().map(|(key, _)| key.as_str())
    }

    /// More dimensions are narrower than fewer; then one value than several, several than any, and what is left out is widest.
    pub fn breadth(&self) -> Breadth {
        let keys: BTreeSet<&str> = self.keys().collect();
        let mut strengths: Vec<(u8, usize)> = self.requirements.iter().map(|(_, one)| one.strength()).collect();
        strengths.sort_unstable();
        (Reverse(keys.len()), strengths)
    }

    /// As a person reads it, the same for the same selector.
    pub fn text(&self) -> String {
        let show = |(key, requirement): &(String, Asks)| {
            let list =
                |values: &BTreeSet<String>| values.iter().map(|value| plain(value)).collect::<Vec<_>>().join(",");
            match requirement {
                Asks::In(values) if values.len() == 1 => format!("{key}={}", list(values)),
                Asks::In(values) => format!("{key} in ({})", list(values)),
                Asks::NotIn(values) => format!("{key} notin ({})", list(values)),
                Asks::Exists => key.clone(),
                Asks::DoesNotExist => format!("!{key}"),
            }
        };
        self.requirements.iter().map(show).collect::<Vec<_>>().join(",")
    }
}

/// A value as it is where nothing in it could be taken for the selector's own signs, else in quotes: accounts are told apart by this.
fn plain(value: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:".contains(&byte);
    if value.bytes().all(is_plain) { value.to_owned() } else { format!("{value:?}") }
}

impl Asks {
    /// Whether it is so of a dimension with this value, or without.
    pub fn holds(&self, value: Option<&str>) -> bool {
        match self {
            Asks::In(values) => value.is_some_and(|value| values.contains(value)),
            Asks::NotIn(values) => value.is_none_or(|value| !values.contains(value)),
            Asks::Exists => value.is_some(),
            Asks::DoesNotExist => value.is_none(),
        }
    }

    fn strength(&self) -> (u8, usize) {
        match self {
            Asks::In(values) => (0, values.len()),
            Asks::Exists => (1, 0),
            Asks::NotIn(_) => (2, 0),
            Asks::DoesNotExist => (3, 0),
        }
    }
}

pub fn check_key(key: &str, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    errors.extend(label_key_problems(key).into_iter().map(|problem| FieldError::invalid(path, key, problem)));
}

pub fn check_value(value: &str, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    if value.is_empty() || value.len() > VALUE_BYTES_MAX || value.chars().any(char::is_control) {
        let why = format!("must be 1 to {VALUE_BYTES_MAX} bytes without control characters");
        errors.push(FieldError::invalid(path, value, why));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(object: Value) -> Selector {
        let mut errors = Vec::new();
        let selector = Selector::read(Some(&object), &Path::new("selector"), &mut errors);
        assert!(errors.is_empty(), "{errors:?}");
        selector
    }

    #[test]
    fn they_match_like_label_selectors() {
        let expression = |operator: &str, values: Value| json!({"matchExpressions": [{"key": "a/loc", "operator": operator, "values": values}]});
        let dims =
            |value: Option<&str>| value.map(|value| ("a/loc".to_owned(), value.to_owned())).into_iter().collect();
        for (selector, dfw, lhr, none) in [
            (json!({}), true, true, true),
            (json!({"matchLabels": {"a/loc": "dfw"}}), true, false, false),
            (expression("In", json!(["dfw", "x"])), true, false, false),
            (expression("NotIn", json!(["dfw"])), false, true, true),
            (expression("Exists", json!([])), true, true, false),
            (expression("DoesNotExist", json!([])), false, false, true),
        ] {
            let selector = read(selector);
            let matched = [Some("dfw"), Some("lhr"), None].map(|value| selector.matches(&dims(value)));
            assert_eq!(matched, [dfw, lhr, none], "{}", selector.text());
        }
    }

    #[test]
    fn the_narrower_comes_first_and_two_spellings_are_one() {
        let narrow_to_wide = [
            json!({"matchLabels": {"a/loc": "dfw", "a/type": "x/d1"}}),
            json!({"matchLabels": {"a/loc": "dfw"}}),
            json!({"matchExpressions": [{"key": "a/loc", "operator": "In", "values": ["dfw", "lhr"]}]}),
            json!({"matchExpressions": [{"key": "a/loc", "operator": "Exists"}]}),
            json!({"matchExpressions": [{"key": "a/loc", "operator": "NotIn", "values": ["dfw"]}]}),
            json!({"matchExpressions": [{"key": "a/loc", "operator": "DoesNotExist"}]}),
            json!({}),
        ]
        .map(read);
        assert!(narrow_to_wide.windows(2).all(|pair| pair[0].breadth() < pair[1].breadth()));
        let other = read(json!({"matchExpressions": [{"key": "a/loc", "operator": "In", "values": ["dfw"]}]}));
        assert_eq!(other, narrow_to_wide[1]);
        assert_eq!(narrow_to_wide[2].text(), "a/loc in (dfw,lhr)");
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        let mut errors = Vec::new();
        let odd = json!({"matchLabels": {"a b": ""}, "matchExpressions": [
            {"key": "a/loc", "operator": "In"}, {"key": "a/loc", "operator": "Gt", "values": ["1"]},
            {"key": "a/loc", "operator": "Exists", "values": ["1"]}, {"operator": "Exists"},
        ]});
        Selector::read(Some(&odd), &Path::new("spec").child("selector"), &mut errors);
        let paths: Vec<&str> = errors.iter().map(|error| error.path.as_str()).collect();
        for path in [
            "spec.selector.matchLabels[a b]",
            "spec.selector.matchExpressions[0].values",
            "spec.selector.matchExpressions[1].operator",
            "spec.selector.matchExpressions[2].values",
            "spec.selector.matchExpressions[3].key",
        ] {
            assert!(paths.contains(&path), "{path} of {paths:?}");
        }
    }
}
