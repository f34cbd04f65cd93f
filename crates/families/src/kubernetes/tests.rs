//! Quotas over the real rulebook and ledger.

mod desk;
mod flow;
mod scoped;
mod validation;
