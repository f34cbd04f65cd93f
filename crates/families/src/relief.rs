//! Help for an object that a quota refuses: another object, made with it in the same commit, which makes the room it needs
//! and goes when it goes.

use std::sync::Arc;

use quantity::{Amount, Format};
use rules::GroupResource;
use serde_json::Value;

use crate::family::Denial;

/// How much one object takes, or would take, of one account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChargeLine {
    pub policy: Arc<str>,
    pub account: Arc<str>,
    pub amount: Amount,
    pub format: Format,
}

/// An object that was refused.
pub struct Plea<'a> {
    pub resource: &'a GroupResource,
    pub namespace: &'a str,
    pub name: &'a str,
    pub object: &'a Value,
    /// Everything it would be charged. Most refusals stand, and whoever lets them stand does not ask.
    pub charges: &'a dyn Fn() -> Vec<ChargeLine>,
    pub denials: &'a [Denial],
}

/// Companions one object may have. They are looked for whenever it changes, and few pools share a namespace.
pub const COMPANIONS_MAX: usize = 4;

/// An object made for another, in the same namespace. It gets its uid and its time where it is stored.
#[derive(Clone, Debug, PartialEq)]
pub struct Companion {
    pub resource: GroupResource,
    /// Which of the object's companions it is, below [`COMPANIONS_MAX`]; it stays that as long as it is there.
    pub number: usize,
    pub name: String,
    pub object: Value,
    /// The object of the policy whose limit it moves.
    pub quota: (GroupResource, String),
}

/// What becomes of a companion after a change of the object it was made for.
#[derive(Clone, Debug, PartialEq)]
pub enum Upkeep {
    AsItIs,
    Changed(Value),
    Gone,
}
