//! Ranges of sizes and costs. Costs are counted in units of about 50 ns, as Kubernetes does.

/// From so much to so much.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Range {
    pub min: u64,
    pub max: u64,
}

/// Reading a text once costs a tenth of a unit a character.
pub(super) const TEXT_FACTOR: f64 = 0.1;

/// A pattern is taken to have a state for four of its characters.
pub(super) const PATTERN_FACTOR: f64 = 0.25;

impl Range {
    pub const ZERO: Range = Range::exactly(0);
    pub const ONE: Range = Range::exactly(1);
    pub const UNKNOWN: Range = Range { min: 0, max: u64::MAX };

    pub const fn exactly(size: u64) -> Range {
        Range { min: size, max: size }
    }

    pub fn plus(self, other: Range) -> Range {
        Range { min: self.min.saturating_add(other.min), max: self.max.saturating_add(other.max) }
    }

    pub fn times(self, other: Range) -> Range {
        Range { min: self.min.saturating_mul(other.min), max: self.max.saturating_mul(other.max) }
    }

    pub fn scaled(self, factor: f64) -> Range {
        Range { min: scale(self.min, factor), max: scale(self.max, factor) }
    }

    /// The range both lie in.
    pub fn or(self, other: Range) -> Range {
        Range { min: self.min.min(other.min), max: self.max.max(other.max) }
    }
}

/// Rounded up. Through doubles, as in Kubernetes: rounding the same way makes the same verdict at the limit.
fn scale(size: u64, factor: f64) -> u64 {
    // A cast from a double stops at the ends of the integer's range.
    (size as f64 * factor).ceil() as u64
}

/// What is known of the items of a list or the entries of a map.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub is_list: bool,
    pub key: Range,
    pub value: Range,
}

impl Entry {
    pub fn or(self, other: Entry) -> Entry {
        Entry { is_list: self.is_list, key: self.key.or(other.key), value: self.value.or(other.value) }
    }
}
