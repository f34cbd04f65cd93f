//! Quotas over the real rulebook and ledger.

mod anything;
mod desk;
mod flow;
mod limit_ranges;
mod peer;
mod relatives;
mod scoped;
mod validation;
