//! The production ledger, sequencer and store against a fake disk, clock and network, all from one seed.
//!
//! Start reading at [`world::run`]: one seed, one run, one thread. A run fails with the first promise that was not
//! kept, and the same seed fails the same way again.
//!
//! ```text
//! clients ⇄ network ⇄ replica: sequencer core ▸ engine (ledger + objects) ▸ store ▸ disk
//!    │  lost, doubled, late      │ crashes          │ compared with          │ torn, full, flipped, lying
//!    ▼                           ▼                  ▼ the naive model         ▼
//! history ────────────────▶ checker ◀───────── the steps that are durable
//! ```

pub mod blackbox;
pub mod checker;
mod client;
pub mod disk;
mod engine;
pub mod estate;
pub mod fleet;
pub mod history;
mod home;
mod journal;
mod misfortune;
pub mod mutation;
pub mod naive;
mod network;
pub mod rare;
pub mod rng;
pub mod world;

pub use engine::{Answer, Logged};
