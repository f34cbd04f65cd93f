//! YAML bodies. They are rare (kubectl sends JSON even under a YAML content type), so a general reader does, held to
//! the same bounds as JSON; anchors and aliases work as long as what they repeat is no longer than the text itself.

use serde_json::Value;
use serde_saphyr::options::{DuplicateKeyPolicy, Options};
use serde_saphyr::{Error, budget::Budget};

use super::{DEPTH_MAX, DecodeError, Parsed, VALUES_MAX, json::json};
use crate::schema::{Catalogue, TypeId};

/// Aliases a body may use. People write a handful; bombs need few too, but those are stopped by the count of values that
/// replaying them produces, which is bounded by the length of the text: a short body is little work, whatever it says.
const ALIASES_MAX: usize = 1_000;

/// How often what stands below an anchor may be kept for its aliases: once for each anchor around it, and anchors are
/// rarely nested.
const NESTED_ANCHORS_MAX: usize = 4;

/// Reads one YAML document. Text that begins like a JSON object is read as JSON, which it is by YAML's own rules.
pub fn yaml(bytes: &[u8], schema: Option<(&Catalogue, TypeId)>) -> Result<Parsed, DecodeError> {
    let text = std::str::from_utf8(bytes).map_err(|_| DecodeError::Utf8)?;
    if text.trim_start().starts_with('{')
        && let Ok(parsed) = json(bytes, schema)
    {
        return Ok(parsed);
    }
    let mut problems = Vec::new();
    let read = |duplicates| serde_saphyr::from_str_with_options::<Value>(text, options(duplicates, text.len()));
    let mut value = read(DuplicateKeyPolicy::Error);
    // Two values for one key are a problem to report, not a reason to refuse: the last one counts.
    if let Err(Error::DuplicateMappingKey { key, location }) = value.as_ref().map_err(Error::without_snippet) {
        let key = crate::field_error::quote(key.as_deref().unwrap_or_default());
        problems.push(format!("yaml: unmarshal errors:\n  line {}: key {key} already set in map", location.line()));
        value = read(DuplicateKeyPolicy::LastWins);
    }
    Ok(Parsed { value: value.map_err(|error| refusal(&error))?, problems })
}

fn options(duplicates: DuplicateKeyPolicy, length: usize) -> Options {
    let mut budget = Budget::default();
    budget.max_depth = DEPTH_MAX;
    budget.max_nodes = VALUES_MAX;
    budget.max_events = 4 * VALUES_MAX;
    budget.max_aliases = ALIASES_MAX;
    budget.max_anchors = ALIASES_MAX;
    budget.max_documents = 1;
    // What the text says once, and as much again by aliases.
    budget.max_total_scalar_bytes = 2 * length;
    budget.max_recorded_anchor_events = NESTED_ANCHORS_MAX * length;
    budget.max_recorded_anchor_bytes = NESTED_ANCHORS_MAX * length;
    budget.max_merge_keys = ALIASES_MAX;
    let mut options = Options::default();
    options.alias_limits.max_total_replayed_events = length.min(VALUES_MAX);
    options.budget = Some(budget);
    options.duplicate_keys = duplicates;
    // `defaultMode: 0644` is octal to everyone who writes manifests.
    options.legacy_octal_numbers = true;
    options.with_snippet = false;
    options
}

fn refusal(error: &Error) -> DecodeError {
    // Long input must not come back as a long message.
    let words: String = error.to_string().chars().take(300).collect();
    DecodeError::Syntax(format!("yaml: {words}"))
}
