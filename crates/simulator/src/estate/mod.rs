//! A world of the production engine: all families, on the embedded store or on a shared one, with clients behind a bad
//! network, from one seed.
//!
//! Start reading at [`run`]. A run fails with the first promise that was not kept; the same seed fails the same way again.
//!
//! ```text
//! clients ⇄ network ⇄ replica: sequencer core ▸ engine (families, rules, ledger) ▸ store ▸ disk
//!    │ lost, doubled,    │ crashes, is replaced, other settings,    │ rows           │ torn, cut, full
//!    ▼ hung up           ▼ clocks that jump                        ▼                ▼
//!  told ──────────▶ answers are right (answers) ◀── a count of its own of all objects (naive, judge)
//! ```

mod answers;
mod apart;
pub mod datum;
mod durable;
mod errand;
mod ground;
mod holds;
mod judge;
mod judge_karmada;
pub mod karmada;
mod liar;
mod misfortune;
mod miskarmada;
mod misorgs;
mod misstep;
mod misstep_staged;
pub mod mutation;
mod naive;
mod naive_datum;
mod naive_karmada;
mod naive_orgs;
mod notice;
pub mod orgs;
mod policies;
pub mod rare;
mod recorder;
mod replica;
mod request;
mod season;
mod start;
mod tampered;
mod weather;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

use mutation::Mutation;
use world::World;

use crate::rare::Rare;

/// Ticks of a run, in which some forty commands are decided, and the faults among them.
pub const TICKS: u64 = 140;
/// Ticks after that without any.
const TICKS_CALM: u64 = 30;
pub const FAULTS: u64 = 20;
/// What was done before something went wrong, for whoever reads of it.
const TOLD_MAX: usize = 30;

#[derive(Clone, Copy, Debug)]
pub struct Config {
    pub seed: u64,
    pub mutation: Option<Mutation>,
}

#[derive(Clone, Debug, Default)]
pub struct Report {
    pub commands: u64,
    pub groups: u64,
    pub starts: u64,
    pub faults: u64,
    pub rare: Rare,
}

/// Lives through one seed. `Err` is the first promise that was broken.
pub fn run(config: Config) -> Result<Report, String> {
    let mut world = World::new(config);
    let lived = catch_unwind(AssertUnwindSafe(|| world.live()));
    let trouble = match lived {
        Ok(Ok(())) => return Ok(world.report),
        Ok(Err(trouble)) => trouble,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            format!("it panicked: {}", text.unwrap_or_default())
        }
    };
    let told = &world.told[world.told.len().saturating_sub(TOLD_MAX)..];
    Err(format!("{trouble}\nafter:\n  {}", told.join("\n  ")))
}
