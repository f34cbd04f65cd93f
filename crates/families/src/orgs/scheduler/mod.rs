//! The scheduler: it allocates what organizations were granted, replaces what a rollout replaces, and stops at every limit, whatever
//! was promised before. [`plan`] says what to do, [`place`] where, [`state`] reads what there is; all three are pure.

pub mod place;
pub mod plan;
pub mod run;
pub mod state;
