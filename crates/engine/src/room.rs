//! Which updates are accepted on a disk that is almost full.

use serde_json::Value;

use crate::object::{Draft, Object, ObjectKey};

/// What there is room for, as whoever stores objects says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Any write at all.
    pub writes: bool,
    /// More than what gets smaller, or goes.
    pub growth: bool,
    /// Signs of life.
    pub renewals: bool,
}

impl Default for Room {
    fn default() -> Room {
        Room { writes: true, growth: true, renewals: true }
    }
}

/// What a Lease may grow to on a disk that is almost full: names of holders have different lengths.
const LEASE_BYTES_MAX: usize = 4 * 1024;

/// Whether an update is worth the room it takes on a disk that is almost full: the object gets smaller, or it is on its way out.
pub(crate) fn makes_room(stored: &Object, draft: &Draft) -> bool {
    let leaves = |value: &Value| value.pointer("/metadata/deletionTimestamp").is_some_and(|at| !at.is_null());
    draft.bytes() < stored.json.len() - digits(stored.revision) || (leaves(&draft.value) && !leaves(&stored.value()))
}

/// Whether an update is a sign of life. Whoever cannot renew its Lease stops working, and that makes no room: on a disk that is
/// almost full it may go on, as long as the object stays as small as a Lease is.
pub(crate) fn is_renewal(key: &ObjectKey, stored: &Object, draft: &Draft) -> bool {
    let bytes = draft.bytes();
    key.resource.is("coordination.k8s.io", "leases") && (bytes <= LEASE_BYTES_MAX || bytes <= stored.json.len())
}

/// How long a number is in the object's text.
fn digits(number: u64) -> usize {
    number.checked_ilog10().map_or(1, |log| log as usize + 1)
}
