//! Benchmarks: one command each, ending in plain `figure` lines.

pub mod decision;
pub mod engine;
