//! The production ledger, sequencer and store against a fake disk, clock and network, all from one seed.

pub mod naive;
