//! Every test of the crate in one binary: linking is what costs.

mod tables;
