//! Every test of the crate in one binary: linking is what costs.

mod decimals;
mod harness;
mod model;
mod peer;
mod properties;
mod random;
mod tables;
