//! The budget of a schema's rules: each alone and all together, as Kubernetes counts.

use crate::field_error::FieldError;

/// The most one rule may be estimated to cost on the largest object its schema admits.
pub const RULE_COST_MAX: u64 = 10_000_000;

/// The most all rules of a schema may be estimated to cost.
pub const SCHEMA_COST_MAX: u64 = 100_000_000;

/// How many of the most expensive rules are named when all together are too expensive.
const NAMED_MAX: usize = 4;

#[derive(Default)]
pub(super) struct Costs {
    total: u64,
    most_expensive: Vec<(String, u64)>,
}

impl Costs {
    /// Counts a rule; says so when it alone is too expensive.
    pub fn count(&mut self, at: String, name: &str, cost: u64) -> Option<FieldError> {
        self.total = self.total.saturating_add(cost);
        let error =
            (cost > RULE_COST_MAX).then(|| FieldError::forbidden(&at, too_expensive(name, cost, RULE_COST_MAX)));
        if cost >= SCHEMA_COST_MAX / 100 {
            self.most_expensive.push((at, cost));
            self.most_expensive.sort_by_key(|(_, cost)| std::cmp::Reverse(*cost));
            self.most_expensive.truncate(NAMED_MAX);
        }
        error
    }

    /// What is said when all rules together are too expensive; `at` is where the schema stands.
    pub fn close(self, at: impl std::fmt::Display) -> Vec<FieldError> {
        if self.total <= SCHEMA_COST_MAX {
            return Vec::new();
        }
        let detail = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
        let named = self.most_expensive.iter().map(|(at, _)| FieldError::forbidden(at, detail));
        let name = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
        let total = FieldError::forbidden(at, too_expensive(name, self.total, SCHEMA_COST_MAX));
        named.chain(std::iter::once(total)).collect()
    }
}

fn too_expensive(name: &str, cost: u64, limit: u64) -> String {
    let factor = cost as f64 / limit as f64;
    let factor = if factor > 100.0 {
        "more than 100x".to_owned()
    } else if factor < 1.5 {
        format!("{factor:.6}x")
    } else {
        format!("{factor:.1}x")
    };
    format!(
        "{name} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, and \
         maxLength where arrays, maps, and strings are declared)"
    )
}
