//! How a custom quota refuses, in Capsule's own words. As there, `currentUsed` is what would be used if the request were
//! granted, and the rest is of the moment before: `available` as it stands, `requested` what the request would add.

use quantity::{Amount, Quantity};

use super::{Kind, Reading};
use crate::{Denial, DenialLine, Operation};

pub fn words(denial: &Denial) -> String {
    let verb = if denial.operation == Operation::Create { "creating" } else { "updating" };
    if let Some(message) = &denial.message {
        // A rule that could not be evaluated does not know what the request is; the others say it all themselves.
        return match message.strip_prefix("resource ") {
            Some(_) => format!("{verb} {message}"),
            None => message.clone(),
        };
    }
    let kind = Kind::of(&denial.resource).map_or("quota", Kind::name);
    let Some(line) = denial.lines.first() else { return format!("{verb} resource exceeds limit for {kind}") };
    let show = |amount: Amount| Quantity::new(amount, line.used_format).to_string();
    format!(
        "{verb} resource exceeds limit for {kind} \"{}\" (requested={}, currentUsed={}, available={}, limit={}, \
         inflightReserved={})",
        denial.name,
        Quantity::new(line.requested, line.requested_format),
        show(line.used.checked_add(line.requested).unwrap_or(line.used).max(Amount::ZERO)),
        show(available(line)),
        line.limit_text,
        show(line.held),
    )
}

/// The smallest wins: by what is left, or (in Capsule's releases) by the limit.
pub fn rank(denial: &Denial, reading: Reading) -> Amount {
    let Some(line) = denial.lines.first() else { return Amount::ZERO };
    match reading {
        Reading::Documentation => available(line),
        Reading::Releases => line.limit,
    }
}

fn available(line: &DenialLine) -> Amount {
    let taken = line.used.checked_add(line.held).unwrap_or(line.used);
    line.limit.checked_sub(taken.max(Amount::ZERO)).filter(|left| !left.is_negative()).unwrap_or(Amount::ZERO)
}
