//! The quota systems, one folder each: kinds, compilation of policies into rules, status, words of refusal.
//!
//! Start reading at [`Family`]. The server knows families only through it; a further family is a folder here and one
//! line in [`all`].

mod allowance;
pub mod capsule;
mod consequence;
pub mod datum;
mod definition;
pub mod family;
pub mod identity;
pub mod instruments;
pub mod karmada;
pub mod kubernetes;
mod manifest;
pub mod metrics;
pub mod orgs;
mod record;
mod refusal;
mod view;
mod virtuals;

pub use allowance::Allowances;
pub use consequence::{
    Affected, COMPANIONS_MAX, Cause, ChargeLine, Companion, Company, Must, Place, RefusedWrite, Writing, companion_uid,
    is_marked, marked_uid,
};
pub(crate) use family::put_status;
pub use family::{
    Admission, Change, Families, Family, Operation, Picks, PolicyObject, Projected, Remarks, Right, Uncompiled, Words,
    picks,
};
pub use identity::{Identity, Origin};
pub use manifest::{Manifest, Plural, Plurals, holds};
pub use record::{Book, Noted, Outbox, Posted, PostedEntry, Record, RefusedNote};
pub use refusal::{Denial, DenialLine, DenialReason, Refusal, RefusalCause, RefusalKind};
pub use view::{BalanceLine, Balances, Nothing, Parsed, Sources, SubjectLine, View, World};
pub use virtuals::{VirtualResource, VirtualWrite};

use std::sync::Arc;

/// Every family of this build, in the order in which they refuse.
pub fn all(settings: &Settings) -> Families {
    Families::new(vec![
        Arc::new(kubernetes::Kubernetes::new(settings.kubernetes.clone())),
        Arc::new(capsule::Capsule::new(settings.capsule.clone())),
        Arc::new(karmada::Karmada::new(settings.karmada.clone())),
        Arc::new(datum::Datum::new(settings.datum.clone())),
        Arc::new(orgs::Orgs::new(settings.orgs.clone())),
    ])
}

/// What an operator may set about the families.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    pub kubernetes: kubernetes::Settings,
    pub capsule: capsule::Settings,
    pub karmada: karmada::Settings,
    pub datum: datum::Settings,
    pub orgs: orgs::Settings,
}

impl Settings {
    /// Leaves out the controllers that are not chosen.
    pub fn choose_controllers(&mut self, is_chosen: impl Fn(&str) -> bool) {
        self.capsule.loops.retain(|name| is_chosen(name));
        self.karmada.loops.retain(|name| is_chosen(name));
        self.datum.loops.retain(|name| is_chosen(name));
    }
}

/// The names of the families' controllers that an operator may choose among. One without a name always runs.
pub fn controller_names() -> Vec<&'static str> {
    [&capsule::loops::NAMES[..], &karmada::loops::NAMES, &datum::loops::NAMES].concat()
}
