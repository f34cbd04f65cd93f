//! Every test of the crate in one binary: linking is what costs.

mod cel_harness;
mod cels;
mod jsonpath_harness;
mod jsonpaths;
mod peer;
mod random;
mod rulebooks;
mod selector_harness;
mod selectors;
