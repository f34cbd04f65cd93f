//! Saying that a field is somebody else's, in Kubernetes' words.

use std::fmt;

use serde_json::{Value, json};

use super::managed::{Entry, Operation};
use super::set::FieldSet;
use crate::field_error::quote;

/// One field another manager owns with another value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// The manager as shown: `"kubectl-edit" using v1`.
    pub manager: String,
    /// The field: `.spec.hard.pods`.
    pub path: String,
}

/// Why an apply was refused: 409, reason Conflict. Never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflicts(pub Vec<Conflict>);

impl Conflicts {
    /// `details.causes` of the `Status`.
    pub fn causes(&self) -> Vec<Value> {
        let cause = |conflict: &Conflict| {
            json!({
                "reason": "FieldManagerConflict",
                "message": format!("conflict with {}", conflict.manager),
                "field": conflict.path,
            })
        };
        self.0.iter().map(cause).collect()
    }

    /// Sorted by manager; within one, parents before what is below them.
    pub(super) fn of(sets: Vec<(&Entry, FieldSet)>) -> Self {
        let mut sets: Vec<(String, &Entry, FieldSet)> =
            sets.into_iter().map(|(entry, set)| (entry.sort_key(), entry, set)).collect();
        sets.sort_by(|a, b| a.0.cmp(&b.0));
        let each = |(_, entry, set): (String, &Entry, FieldSet)| {
            let manager = describe(entry);
            set.paths().into_iter().map(move |path| Conflict { manager: manager.clone(), path })
        };
        Self(sets.into_iter().flat_map(each).collect())
    }
}

impl fmt::Display for Conflicts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [only] = self.0.as_slice() {
            return write!(f, "Apply failed with 1 conflict: conflict with {}: {}", only.manager, only.path);
        }
        write!(f, "Apply failed with {} conflicts: ", self.0.len())?;
        let mut current = None;
        for (i, conflict) in self.0.iter().enumerate() {
            if current != Some(&conflict.manager) {
                let newline = if i == 0 { "" } else { "\n" };
                write!(f, "{newline}conflicts with {}:", conflict.manager)?;
                current = Some(&conflict.manager);
            }
            write!(f, "\n- {}", conflict.path)?;
        }
        Ok(())
    }
}

fn describe(entry: &Entry) -> String {
    let mut text = quote(&entry.manager);
    if !entry.subresource.is_empty() {
        text.push_str(&format!(" with subresource {}", quote(&entry.subresource)));
    }
    if entry.operation == Operation::Update {
        text.push_str(&format!(" using {}", entry.api_version));
    }
    text
}
