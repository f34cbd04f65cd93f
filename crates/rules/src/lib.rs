//! How policies say which objects they mean, and how much of what: selectors, JSONPath, CEL.
//!
//! Everything here is compiled once, when a policy is stored, and then evaluated many times, without I/O, clock or
//! randomness. Every expression comes from a user, so every compile and every evaluation is bounded, and a bad one is a
//! typed error in the words of the system it comes from.

pub mod selector;
