//! What an organization shows: its usage, its limits, and where it comes near to them.

use kinds::fields::{given, text};
use ledger::Limit;
use quantity::Amount;
use rules::{GroupResource, policy_name};
use serde_json::{Map, Value, json};

use super::dimensions::{Dimension, counted_name};
use super::limits::Source;
use super::numbers;
use crate::{BalanceLine, Balances, Projected, put_status};

/// One row of `org_usage_view`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub dimension: Dimension,
    /// What is allocated.
    pub counted: Amount,
    /// What was accepted and is not allocated yet.
    pub reserved: Amount,
    /// Both together.
    pub usage: Amount,
    /// None where nothing is enforced.
    pub limit: Option<Amount>,
    pub source: Source,
}

impl Row {
    pub fn is_over(&self) -> bool {
        self.limit.is_some_and(|limit| self.usage > limit)
    }

    pub fn headroom(&self) -> Option<Amount> {
        let left = self.limit?.checked_sub(self.usage)?;
        Some(left.max(Amount::ZERO))
    }

    /// The parts of a usage that something was decided by, where this row may be of a later moment: what is counted, what is reserved.
    pub fn parts_of(&self, usage: Amount) -> (Amount, Amount) {
        let counted = self.counted.min(usage);
        (counted, usage.checked_sub(counted).unwrap_or(Amount::ZERO))
    }

    pub fn shown(&self, tier: &str) -> Value {
        let source = match self.source {
            Source::Override => "override".to_owned(),
            Source::Tier => format!("tier:{tier}"),
        };
        json!({
            "dimension": self.dimension.name(),
            "counted": numbers::shown(self.counted),
            "reserved": numbers::shown(self.reserved),
            "usage": numbers::shown(self.usage),
            "limit": self.limit.map(numbers::shown),
            "limit_source": source,
            "headroom": self.headroom().map(numbers::shown),
            "over_limit": self.is_over(),
        })
    }
}

/// The usage of an organization, from its accounts. Snapshots are counted for each volume apart.
pub fn rows(org: &Value, lines: &[BalanceLine]) -> Vec<Row> {
    let line = |name: &str| lines.iter().find(|line| line.bucket.is_empty() && &*line.resource == name);
    let mut rows = Vec::with_capacity(Dimension::ALL.len());
    for dimension in Dimension::ALL.into_iter().filter(|one| *one != Dimension::SnapshotsPerVolume) {
        let Some(found) = line(dimension.name()) else { continue };
        let usage = found.balance.used.checked_add(found.balance.held).unwrap_or(found.balance.used);
        let counted = match Dimension::COMPUTE.contains(&dimension) {
            true => line(counted_name(dimension)).map_or(Amount::ZERO, |line| line.balance.used),
            false => usage,
        };
        let limit = match found.balance.limit {
            Limit::Enforced(amount) | Limit::Observed(amount) => Some(amount),
            Limit::Unlimited => None,
        };
        let reserved = usage.checked_sub(counted).filter(|left| !left.is_negative()).unwrap_or(Amount::ZERO);
        // Which override is in force is what the limit tells: one that has ended has no part in it.
        let own = given(org, &["spec", "overrides", dimension.name(), "limit"]);
        let own = own.and_then(|value| super::limits::read_cap(dimension, value).ok());
        let source =
            if own.is_some_and(|cap| cap.limit() == found.balance.limit) { Source::Override } else { Source::Tier };
        rows.push(Row { dimension, counted, reserved, usage, limit, source });
    }
    rows
}

/// Where a warning begins and where it ends, in hundredths of the limit: it does not come and go with every write.
const LEVELS: [(i128, i128); 2] = [(95, 90), (80, 75)];

/// How near usage is to the limit: 95, 80 or nothing.
pub fn level(row: &Row, before: i64) -> i64 {
    let Some(limit) = row.limit.filter(|limit| !limit.is_zero()) else { return 0 };
    let reaches = |percent: i128| {
        let (usage, limit) = (row.usage.nanos().checked_mul(100), limit.nanos().checked_mul(percent));
        usage.zip(limit).is_some_and(|(usage, limit)| usage >= limit)
    };
    for (begins, ends) in LEVELS {
        let told = i128::from(before) >= begins;
        if reaches(if told { ends } else { begins }) {
            return i64::try_from(begins).unwrap_or(0);
        }
    }
    0
}

pub fn project(resource: &GroupResource, org: &mut Value, balances: &dyn Balances) -> Projected {
    let name = text(org, &["metadata", "name"]);
    let lines = balances.of(&policy_name(resource, text(org, &["metadata", "namespace"]), name));
    if lines.is_empty() {
        return Projected::Unchanged;
    }
    let tier = text(org, &["spec", "tier"]);
    let rows = rows(org, &lines);
    let mut warnings = Map::new();
    for row in &rows {
        let before = given(org, &["status", "warnings", row.dimension.name()]).and_then(Value::as_i64).unwrap_or(0);
        let level = level(row, before);
        if level > 0 {
            warnings.insert(row.dimension.name().into(), json!(level));
        }
    }
    let shown: Vec<Value> = rows.iter().map(|row| row.shown(tier)).collect();
    let over: Vec<&str> = rows.iter().filter(|row| row.is_over()).map(|row| row.dimension.name()).collect();
    let mut status = Map::new();
    status.insert("usage".into(), Value::Array(shown));
    status.insert("over_limit".into(), json!(over));
    status.insert("warnings".into(), Value::Object(warnings));
    put_status(org, status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_add_up_to_what_was_decided_by() {
        let units = Amount::from_units;
        let row = |counted: i64, reserved: i64| Row {
            dimension: Dimension::Instances,
            counted: units(counted),
            reserved: units(reserved),
            usage: units(counted + reserved),
            limit: None,
            source: Source::Tier,
        };
        // Of the same moment, of a later one with more, and of one with less.
        for (row, parts) in [(row(3, 2), (3, 2)), (row(9, 4), (5, 0)), (row(1, 1), (1, 4))] {
            assert_eq!(row.parts_of(units(5)), (units(parts.0), units(parts.1)));
        }
    }

    #[test]
    fn a_warning_does_not_flutter() {
        let row = |usage: i64, limit: Option<i64>| Row {
            dimension: Dimension::Instances,
            counted: Amount::ZERO,
            reserved: Amount::ZERO,
            usage: Amount::from_units(usage),
            limit: limit.map(Amount::from_units),
            source: Source::Tier,
        };
        let mut before = 0;
        let mut told = Vec::new();
        for usage in [79, 80, 79, 76, 75, 74, 79, 95, 94, 90, 89, 76, 74] {
            before = level(&row(usage, Some(100)), before);
            told.push(before);
        }
        assert_eq!(told, [0, 80, 80, 80, 80, 0, 0, 95, 95, 95, 80, 80, 0]);
        assert_eq!(level(&row(5, Some(0)), 0), 0);
        assert_eq!(level(&row(5, None), 95), 0);
        assert_eq!(level(&row(200, Some(100)), 0), 95);
    }
}
