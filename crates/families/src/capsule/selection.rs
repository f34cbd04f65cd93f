//! Which objects a source means: label selectors, field selectors and CEL conditions. Entries are alternatives; within
//! an entry everything has to hold.

use kinds::field_error::{FieldError, Path};
use rules::cel::Program;
use rules::jsonpath::{self, JsonPath, MissingKeys};
use rules::selector::LabelSelector;
use serde_json::Value;

use super::source::{compile_condition, compile_path};
use super::{Reading, at, items};

/// Alternatives in one list of selectors. Each may be evaluated for every write of the kind.
pub const SELECTORS_MAX: usize = 64;
/// Conditions in one selector; Capsule's own bound for the CEL ones.
pub const CONDITIONS_MAX: usize = 64;

/// How many expressions and paths the selectors of a source have, and how many bytes of them.
pub fn conditions(source: &Value) -> (usize, usize) {
    let selectors = items(source, &["selectors"]).iter();
    let lists = selectors.flat_map(|one| ["fieldSelectors", "celExpressions"].map(|list| items(one, &[list])));
    let bytes = |text: &Value| text.as_str().map_or(0, str::len);
    lists.flatten().fold((0, 0), |(count, sum), text| (count + 1, sum + bytes(text)))
}

/// One alternative of a source's `selectors`.
pub struct Selector {
    labels: LabelSelector,
    fields: Vec<FieldCondition>,
    conditions: Vec<Program>,
}

/// `path`, `path=value`, `path==value` or `path!=value`.
struct FieldCondition {
    path: JsonPath,
    compared: Option<(Comparison, String)>,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Comparison {
    Equal,
    NotEqual,
}

/// Plain label selectors, one of which has to match. An empty list matches everything.
pub fn read_labels(list: &[Value], path: &Path<'_>, errors: &mut Vec<FieldError>) -> Vec<LabelSelector> {
    if list.len() > SELECTORS_MAX {
        errors.push(FieldError::too_many(path, list.len(), SELECTORS_MAX));
        return Vec::new();
    }
    let mut selectors = Vec::with_capacity(list.len());
    for (number, entry) in list.iter().enumerate() {
        match LabelSelector::from_object(entry) {
            Ok(selector) => selectors.push(selector),
            Err(error) => errors.push(FieldError::invalid(path.index(number), entry.clone(), error.to_string())),
        }
    }
    selectors
}

pub fn any_matches(selectors: &[LabelSelector], labels: Option<&Value>) -> bool {
    selectors.is_empty() || selectors.iter().any(|selector| selector.matches(&labels))
}

impl Selector {
    pub fn read(entry: &Value, path: &Path<'_>, errors: &mut Vec<FieldError>) -> Option<Selector> {
        let before = errors.len();
        let labels = LabelSelector::from_object(entry).unwrap_or_else(|error| {
            errors.push(FieldError::invalid(path, entry.clone(), error.to_string()));
            LabelSelector::NOTHING
        });
        let (fields, conditions) = (items(entry, &["fieldSelectors"]), items(entry, &["celExpressions"]));
        let (fields_path, conditions_path) = (path.child("fieldSelectors"), path.child("celExpressions"));
        if fields.len() > CONDITIONS_MAX {
            errors.push(FieldError::too_many(fields_path, fields.len(), CONDITIONS_MAX));
            return None;
        }
        if conditions.len() > CONDITIONS_MAX {
            errors.push(FieldError::too_many(conditions_path, conditions.len(), CONDITIONS_MAX));
            return None;
        }
        let fields = fields.iter().enumerate().filter_map(|(number, text)| {
            let (text, path) = (text.as_str().unwrap_or(""), fields_path.index(number));
            FieldCondition::read(text).map_err(|why| errors.push(FieldError::invalid(path, text, why))).ok()
        });
        let fields: Vec<_> = fields.collect();
        let conditions = conditions.iter().enumerate().filter_map(|(number, text)| {
            let (text, path) = (text.as_str().unwrap_or(""), conditions_path.index(number));
            compile_condition(text).map_err(|why| errors.push(FieldError::invalid(path, text, why))).ok()
        });
        let conditions: Vec<_> = conditions.collect();
        (errors.len() == before).then_some(Selector { labels, fields, conditions })
    }

    /// Whether it has CEL expressions.
    pub fn evaluates(&self) -> bool {
        !self.conditions.is_empty()
    }

    pub fn matches(&self, object: &Value, reading: Reading) -> Result<bool, String> {
        if !self.labels.is_everything() && !self.labels.matches(&at(object, &["metadata", "labels"])) {
            return Ok(false);
        }
        for field in &self.fields {
            if !field.holds(object, reading)? {
                return Ok(false);
            }
        }
        for condition in &self.conditions {
            let holds = condition.eval_bool(&[("object", object)]);
            if !holds.map_err(|error| format!("CEL selector {:?}: {error}", condition.source()))? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl FieldCondition {
    fn read(text: &str) -> Result<FieldCondition, String> {
        let (path, compared) = match operator(text) {
            None => (text, None),
            Some((at, length, comparison)) => {
                let value = unquoted(text[at + length..].trim());
                (&text[..at], Some((comparison, value.to_string())))
            }
        };
        Ok(FieldCondition { path: compile_path(path)?, compared })
    }

    fn holds(&self, object: &Value, reading: Reading) -> Result<bool, String> {
        let found = match reading {
            Reading::Documentation => self.path.find_forgiving(object),
            Reading::Releases => self.path.find(object, MissingKeys::Allow),
        };
        let failed = |why: &dyn std::fmt::Display| format!("field selector {:?}: {why}", self.path.source());
        let found = found.map_err(|error| failed(&error))?;
        let shown = jsonpath::text(&found).ok_or_else(|| failed(&"selects too much text"))?;
        let shown = shown.trim();
        Ok(match &self.compared {
            Some((Comparison::Equal, value)) => shown == value,
            Some((Comparison::NotEqual, value)) => shown != value,
            None => !(shown.is_empty() || shown.eq_ignore_ascii_case("false") || shown == "0"),
        })
    }
}

/// The first comparison outside brackets and quotes: where, how long, which. `!=` anywhere goes before `=`.
fn operator(text: &str) -> Option<(usize, usize, Comparison)> {
    let bytes = text.as_bytes();
    let (mut depth, mut quote, mut escaped) = (0usize, None, false);
    let mut equal = None;
    for (at, byte) in bytes.iter().copied().enumerate() {
        if let Some(open) = quote {
            (quote, escaped) = match byte {
                _ if escaped => (quote, false),
                b'\\' => (quote, true),
                _ if byte == open => (None, false),
                _ => (quote, false),
            };
            continue;
        }
        match byte {
            b'\'' | b'"' => quote = Some(byte),
            b'[' | b'{' | b'(' => depth += 1,
            b']' | b'}' | b')' => depth = depth.saturating_sub(1),
            b'!' if depth == 0 && bytes.get(at + 1) == Some(&b'=') => return Some((at, 2, Comparison::NotEqual)),
            b'=' if depth == 0 && equal.is_none() => {
                let length = if bytes.get(at + 1) == Some(&b'=') { 2 } else { 1 };
                equal = Some((at, length, Comparison::Equal));
            }
            _ => {}
        }
    }
    equal
}

fn unquoted(text: &str) -> &str {
    let inner = |quote: char| text.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote));
    inner('"').or_else(|| inner('\'')).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn holds(condition: &str) -> Result<bool, String> {
        let object = json!({
            "spec": {"type": "LoadBalancer", "suspend": false, "on": true, "zero": 0, "modes": ["ReadWriteOnce"]},
            "status": {"phase": "Running"},
        });
        FieldCondition::read(condition)?.holds(&object, Reading::Documentation)
    }

    #[test]
    fn field_selectors_ask_for_truth_equality_or_its_opposite() {
        for yes in [
            ".spec.on",
            ".spec.type",
            r#".spec.modes[?(@=="ReadWriteOnce")]"#,
            r#".spec.type[?(@=="LoadBalancer")]"#,
            ".spec.type=LoadBalancer",
            r#".spec.type=="LoadBalancer""#,
            ".status.phase!=Succeeded",
            ".spec.absent!=anything",
            ".spec.type == 'LoadBalancer'",
        ] {
            assert_eq!(holds(yes), Ok(true), "{yes}");
        }
        for no in [
            ".spec.suspend",
            ".spec.absent",
            ".spec.zero",
            r#".spec.modes[?(@=="ReadWriteMany")]"#,
            ".spec.type=ClusterIP",
            ".status.phase!=Running",
        ] {
            assert_eq!(holds(no), Ok(false), "{no}");
        }
        assert!(holds("spec.type").is_err());
        assert!(holds(".spec.modes[?(@==").is_err());
    }
}
