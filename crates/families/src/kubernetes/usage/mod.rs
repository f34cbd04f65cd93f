//! How much one object uses, kind by kind. Everything else that can be counted counts as one.

pub mod device;
pub mod pod;
pub mod service;
pub mod volume;

#[cfg(test)]
mod tests;
