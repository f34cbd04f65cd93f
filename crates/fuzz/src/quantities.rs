//! The harness of the quantities and the model it compares with, which name each other.

#[path = "../../quantity/tests/all/harness.rs"]
pub mod harness;
#[path = "../../quantity/tests/all/model.rs"]
mod model;
