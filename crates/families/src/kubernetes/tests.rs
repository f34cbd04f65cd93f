//! What the family says by itself. What becomes of it in the engine is told in `tests/families`.

mod anything;
mod limit_ranges;
mod peer;
mod relatives;
mod validation;
