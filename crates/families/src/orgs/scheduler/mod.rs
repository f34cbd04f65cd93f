//! The scheduler: it allocates what organizations were granted, replaces what a rollout replaces, and stops at every limit, whatever
//! was promised before. [`plan`] says what to do, [`place`] where, [`progress`] what is told of it, [`board`] knows what there is, [`state`] reads it from
//! objects, [`silence`] which nodes are not heard of; all of them are pure. [`thresholds`] tells who comes
//! near to a limit.

pub mod board;
pub mod counts;
pub mod place;
pub mod plan;
mod progress;
pub mod run;
mod silence;
pub mod state;
pub mod thresholds;
