//! How an organization's limit refuses.

use quantity::Amount;

use super::dimensions::{Dimension, of_account};
use super::numbers;
use crate::{Denial, DenialLine};

/// One dimension that said no.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub dimension: Dimension,
    pub limit: Amount,
    pub current: Amount,
    pub requested: Amount,
    /// Set when only what is allocated was asked about.
    pub counted_only: bool,
    /// What it is counted for apart: a volume, of which there may be so many snapshots.
    pub key: Option<String>,
}

impl Violation {
    fn of(denial: &Denial, line: &DenialLine) -> Option<Violation> {
        let (dimension, counted_only) = of_account(&line.account)?;
        // Policies are named after their object: `volumes.orgs.bursar.dev/acme/v-1`.
        let name = || denial.policy.rsplit('/').next().unwrap_or_default().to_owned();
        let key = (dimension == Dimension::SnapshotsPerVolume).then(name);
        let current = line.used.checked_add(line.held).unwrap_or(line.used);
        Some(Violation { dimension, limit: line.limit, current, requested: line.requested, counted_only, key })
    }

    pub fn text(&self) -> String {
        let Violation { dimension, limit, current, requested, .. } = self;
        let [limit, current, requested] = [limit, current, requested].map(|amount| numbers::text(*amount));
        format!("{dimension}: limit {limit}, current usage {current}, requested {requested}")
    }
}

/// Everything that said no, in the order of the dimensions.
pub fn violations<'a>(denials: impl IntoIterator<Item = &'a Denial>) -> Vec<Violation> {
    let of = |denial: &'a Denial| denial.lines.iter().filter_map(|line| Violation::of(denial, line));
    let mut all: Vec<Violation> = denials.into_iter().flat_map(of).collect();
    all.sort_by_key(|one| (one.dimension, one.counted_only));
    all.dedup_by_key(|one| one.dimension);
    all
}

pub fn words(denial: &Denial) -> String {
    if let Some(message) = &denial.message {
        return message.clone();
    }
    let all: Vec<String> = violations([denial]).iter().map(Violation::text).collect();
    format!("organization {:?} exceeds its quota: {}", denial.namespace, all.join("; "))
}
