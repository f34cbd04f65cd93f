//! Bounded runs of the simulator: fixed seeds, fresh seeds, and broken engines that must be caught.

mod api;
mod blackbox;
mod checker;
mod companions;
mod disk;
mod estate;
mod fleet;
mod journals;
mod seeds;
