//! The family over a real rulebook and ledger.

mod custom_quotas;
mod desk;
mod metrics;
mod pools;
mod validation;
