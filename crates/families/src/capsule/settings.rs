//! What an operator may set.

use serde::Deserialize;

use super::loops;

/// Where Capsule's documentation and its releases disagree, whose word counts.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Reading {
    /// A missing value is zero; a filter may look at a single value; the quota with the least left speaks first; a
    /// limit may be zero and a quota may be changed at any time. A claim that has its resources is not resized, and
    /// usage binds the oldest claims.
    #[default]
    Documentation,
    /// A missing value cannot be evaluated; filters want lists; the quota with the lowest limit speaks first; a limit
    /// is above zero, is not lowered below what is used, and sources do not change while something is used. A claim is
    /// fixed only while it is in use, and usage binds the claims that cover most of it.
    Releases,
}

/// What an operator may set about this family, as the section `capsule` of the configuration has it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Settings {
    pub reading: Reading,
    /// Usage is counted and shown, nothing is refused: Capsule without its calculation webhook.
    pub observe_only: bool,
    /// Where the QuantityLedgers of GlobalCustomQuotas are shown.
    pub namespace: String,
    /// The loops that run, by name. Which of them do is said with all other controllers.
    #[serde(skip)]
    pub loops: Vec<&'static str>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            reading: Reading::default(),
            observe_only: false,
            namespace: "capsule-system".into(),
            loops: loops::NAMES.to_vec(),
        }
    }
}
