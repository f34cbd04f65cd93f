//! A world of many clusters: one quota on the production engine, bindings that are placed, evicted and placed anew, and members that are lent slices
//! of it, die, return, are cut off and lie, from one seed.
//!
//! Start reading at [`run`]. How much is lent is worked out by production code ([`families::karmada::lending`]); what is told arrives
//! late, twice or never; whoever lends may stop anywhere and begin again. After every step everything is counted again from
//! the stored objects alone.
//!
//! ```text
//! bindings ─▶ engine ◀─ leases ◀─ lender ⇄ network ⇄ members: pods that come and go, clocks that differ
//!                │                                       │
//!                ▼                                       ▼
//!        charged + lent ≤ overall               may use ≤ what is charged for it
//! ```
//!
//! There is no exception: a binding that leaves a member waits, evicted and charged once, until that gave its room back.

mod centre;
mod failover;
mod judge;
mod lender;
mod member;
mod world;

pub use failover::failover;

use world::World;

/// Everything is counted in whole CPUs.
pub const CLUSTERS: [&str; 3] = ["m0", "m1", "m2"];
pub const TICKS: u64 = 400;

/// Deliberate mistakes of whoever lends, or evicts. Each must be caught.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// A member is told of more before that is charged.
    TellsBeforeItCharges,
    /// What is taken from a member is let go of before that knows.
    LetsGoBeforeItTells,
    /// A word that was held up counts whenever it arrives.
    TellsWithoutVersion,
    /// A cluster that was given up has nothing any more, whether its time is over or not.
    ReclaimsEarly,
    /// Clocks are taken to agree.
    TrustsClocks,
    /// What stays charged of a smaller lease is what was wished, whatever the member uses.
    TrustsWishes,
    /// An eviction lets go of what was placed.
    EvictionLetsGo,
    /// The quota is not enforced.
    IsNotEnforced,
}

/// Every mistake, with words of which some tell it.
pub const ALL: [(Mutation, &[&str]); 8] = [
    (Mutation::TellsBeforeItCharges, &["may use"]),
    (Mutation::LetsGoBeforeItTells, &["may use", "runs"]),
    (Mutation::TellsWithoutVersion, &["may use"]),
    (Mutation::ReclaimsEarly, &["may use"]),
    (Mutation::TrustsClocks, &["may use"]),
    (Mutation::TrustsWishes, &["runs"]),
    (Mutation::EvictionLetsGo, &["a thief got in", "dips"]),
    (Mutation::IsNotEnforced, &["the quota says", "are charged and lent where there are"]),
];

#[derive(Clone, Copy, Debug)]
pub struct Config {
    pub seed: u64,
    pub mutation: Option<Mutation>,
}

/// How often what happened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    pub commands: u64,
    pub starts: u64,
    pub deaths: u64,
    pub cuts: u64,
    pub lies: u64,
    pub expired: u64,
    pub reclaimed: u64,
    pub grown: u64,
    pub shrunk: u64,
    pub late: u64,
    /// Moves, and those that had to wait until a member gave back what it was lent.
    pub moved: u64,
    pub kept_waiting: u64,
    pub refused: u64,
    /// Quotas that became more than what was used, and less.
    pub raised: u64,
    pub lowered: u64,
    /// Leases that ended because their quota lent no more.
    pub ended: u64,
    /// Looks at members where pods waited.
    pub waited: u64,
}

/// Lives through one seed. `Err` is the first promise that was broken.
pub fn run(config: Config) -> Result<Report, String> {
    let mut world = World::new(config);
    for _ in 0..TICKS {
        world.pass()?;
    }
    Ok(world.report)
}
