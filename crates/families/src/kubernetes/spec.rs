//! A quota spec as it is written, shared by every kind that has one: names with limits, and scopes.

use std::sync::Arc;

use kinds::field_error::{FieldError, Path};
use kinds::resources::quantity_of;
use quantity::Quantity;
use serde_json::Value;

use super::scopes::Scopes;

/// `spec` of a ResourceQuota, or `spec.quota` of a ClusterResourceQuota.
#[derive(Clone, Debug)]
pub struct QuotaSpec {
    /// In the order of the names, which is the order of accounts, statuses and refusals.
    pub hard: Vec<(Arc<str>, Quantity)>,
    pub scopes: Scopes,
}

impl QuotaSpec {
    /// Reads what validation has seen; what it would have refused is refused again instead of being guessed at.
    pub fn read(spec: &Value, path: &Path<'_>) -> Result<QuotaSpec, Vec<FieldError>> {
        let mut errors = Vec::new();
        let mut hard = Vec::new();
        let list = path.child("hard");
        for (name, value) in spec.get("hard").and_then(Value::as_object).into_iter().flatten() {
            match quantity_of(name, value) {
                Ok(quantity) => hard.push((Arc::from(&**name), quantity.round_up_milli())),
                Err(error) => errors.push(FieldError::invalid(list.key(name), value.clone(), error.to_string())),
            }
        }
        hard.sort_by(|(a, _): &(Arc<str>, _), (b, _)| a.cmp(b));
        let scopes = Scopes::read(spec).unwrap_or_else(|unknown| {
            errors.push(FieldError::invalid(path.child("scopes"), unknown, "unsupported scope"));
            Scopes::default()
        });
        if errors.is_empty() { Ok(QuotaSpec { hard, scopes }) } else { Err(errors) }
    }
}

/// What of a quota spec decides which charges it gets: the names and the scopes, not the numbers.
pub fn fingerprint(spec: &Value, spec_of_quota: &QuotaSpec) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, _) in &spec_of_quota.hard {
        bytes.extend_from_slice(name.as_bytes());
        bytes.push(0);
    }
    for field in ["scopes", "scopeSelector"] {
        bytes.push(1);
        if let Some(value) = spec.get(field) {
            bytes.extend_from_slice(value.to_string().as_bytes());
        }
    }
    bytes
}
