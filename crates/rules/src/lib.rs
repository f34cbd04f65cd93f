//! What a policy object means: which objects it limits, and how much each of them takes.
//!
//! Start reading at [`Rulebook`]. A family compiles each of its policy objects into a [`Compiled`]: the accounts it
//! limits and the rules that charge them. The rulebook indexes the rules by resource and namespace and answers, for
//! one object, with the lines it is charged:
//!
//! ```text
//! policy ── family.compile ──▶ Compiled { accounts, rules } ──▶ Rulebook
//! object ── rulebook.measure ──▶ Verdict { lines, refusals } ──▶ ledger.decide
//! ```
//!
//! Policies say which objects they mean, and how much of what, by [`selector`]s, [`jsonpath`]s and [`cel`] expressions.
//! Those come from users: each is compiled once, when its policy is stored, every compile and every evaluation is bounded,
//! and a bad one is a typed error in the words of the system it comes from.
//!
//! Everything here is pure: no clock, no randomness, no I/O.

pub mod cel;
pub mod jsonpath;
pub mod names;
pub mod rulebook;
pub mod selector;
pub mod verdict;

pub use names::{GroupResource, policy_name};
pub use rulebook::{Account, BRIEF_STEPS_MAX, Compiled, Namespace, PolicyId, Reach, Rule, Rulebook};
pub use verdict::{Line, Measure, MeasureError, Refusal, Subject, Verdict};
