//! What follows from a change: other objects, which are written in the same commit.
//!
//! A family answers two pure questions. [`Family::affected`](crate::Family::affected): which objects does this cause concern?
//! [`Family::must_be`](crate::Family::must_be): what must this object be now? Whoever runs the family does the rest: it asks,
//! writes what is not as it must be, and asks again about what it has written, until nothing follows any more.

use std::sync::Arc;

use ledger::SubjectId;
use quantity::{Amount, Format};
use rules::GroupResource;
use serde_json::Value;

use crate::family::Change;
use crate::identity::Origin;
use crate::refusal::Denial;

/// Where an object is, or would be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub resource: GroupResource,
    pub namespace: Arc<str>,
    pub name: Arc<str>,
}

impl Place {
    pub fn new(resource: GroupResource, namespace: &str, name: &str) -> Place {
        Place { resource, namespace: namespace.into(), name: name.into() }
    }
}

/// What happened.
pub enum Cause<'a> {
    /// An object of a resource that the family watches ([`Manifest::watched`](crate::Manifest::watched)) was written or
    /// deleted.
    Written(&'a Change<'a>),
    /// What is charged on one part of a policy moved, or the policy came to look into that namespace.
    Moved { policy: &'a GroupResource, name: &'a str, part: &'a str },
    /// A write was refused for want of room.
    Refused(&'a RefusedWrite<'a>),
    /// An object's status says something else.
    Shown { resource: &'a GroupResource, object: &'a Value },
}

/// A write that quotas refused, before anybody was told.
pub struct RefusedWrite<'a> {
    pub resource: &'a GroupResource,
    pub namespace: &'a str,
    pub name: &'a str,
    pub object: &'a Value,
    /// Everything it would be charged. Most refusals stand, and whoever lets them stand does not ask.
    pub charges: &'a dyn Fn() -> Vec<ChargeLine>,
    pub denials: &'a [Denial],
}

/// A write that nobody has refused yet, asked about before it is decided.
#[derive(Clone, Copy)]
pub struct Writing<'a> {
    pub resource: &'a GroupResource,
    pub namespace: &'a str,
    pub name: &'a str,
    pub object: &'a Value,
    /// None for a new object.
    pub old: Option<&'a Value>,
    pub origin: &'a Origin,
}

/// How much one object takes, or would take, of one account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChargeLine {
    pub policy: Arc<str>,
    pub account: Arc<str>,
    pub amount: Amount,
    pub format: Format,
}

/// An object that a cause concerns.
#[derive(Clone, Debug, PartialEq)]
pub enum Affected {
    /// It may have to be something else, or to be made, or to go.
    Object(Place),
    /// Only what its status says.
    Status(Place),
    /// It is to be made with the refused write, which fails without it.
    Companion(Companion),
}

/// Companions one object may have. They are looked for whenever it changes, and few policies that make any share a namespace.
pub const COMPANIONS_MAX: usize = 4;

/// An object made for another, in the same namespace: to make the room it needs, or because it comes with it
/// ([`Family::accompany`](crate::Family::accompany)). It gets its uid and its time where it is stored. When the other object changes or goes, the family is asked what it must be then.
#[derive(Clone, Debug, PartialEq)]
pub struct Companion {
    pub resource: GroupResource,
    /// Which of the object's companions it is, below [`COMPANIONS_MAX`]; it stays that as long as it is there.
    pub number: usize,
    pub name: String,
    pub object: Value,
    /// The object of the policy whose limit it moves, if it does.
    pub quota: Option<(GroupResource, String)>,
}

/// Whom an object comes with from now on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Company {
    pub with: Vec<Companion>,
    /// Companions that it does not come with any more: what they have is let go of before anything is charged.
    pub without: Vec<Place>,
}

/// The uid of an object's n-th companion: found again without an index, and nobody else's.
pub fn companion_uid(of: SubjectId, number: usize) -> SubjectId {
    const SALT: u128 = 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c834;
    marked_uid(of.0.rotate_left(64) ^ SALT.wrapping_mul(number as u128 + 1))
}

/// Version 5 says that a uid was made from something and is not a random one.
pub fn marked_uid(bits: u128) -> SubjectId {
    const VERSION: u128 = 0xf << 76;
    const VARIANT: u128 = 0x3 << 62;
    SubjectId((bits & !VERSION & !VARIANT) | (0x5 << 76) | (0x2 << 62))
}

/// Whether a uid was made so.
pub fn is_marked(uid: SubjectId) -> bool {
    (uid.0 >> 76) & 0xf == 0x5
}

/// What an object must be.
#[derive(Clone, Debug, PartialEq)]
pub enum Must {
    /// It is as it must be; or nobody misses it.
    AsItIs,
    /// It must be this. One that is not there gets its uid and its time where it is stored.
    Be(Value),
    Gone,
}

impl Must {
    /// Of what differs from what is there.
    pub fn differ(is: &Value, must: Value) -> Must {
        if *is == must { Must::AsItIs } else { Must::Be(must) }
    }
}
