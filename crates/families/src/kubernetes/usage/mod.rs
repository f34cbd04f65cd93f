//! How much one object uses, kind by kind; a pod is added up by [`kinds::resources::pod`]. Everything else that can be
//! counted counts as one.

pub mod device;
pub mod service;
pub mod volume;

#[cfg(test)]
mod tests;
