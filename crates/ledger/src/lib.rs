//! The ledger: accounts with limits, subjects with charges, and the decision whether a subject may have more.
//!
//! Start reading at [`Ledger`]. A change is two calls, of which only the first can say no:
//!
//! ```text
//! charges ── decide ──▶ Denied: every account that says no, with its numbers
//!              │
//!              ▼
//!            Plan ──── apply ──▶ Receipt: sequence, outcome, who was woken
//!                        │
//!                        ▼
//!                 drain_changes ──▶ rows ──▶ (a store) ──▶ load ──▶ the same ledger
//! ```
//!
//! A step of several parts is planned first and is one transaction: [`Ledger::plan`] takes charges, releases, accounts and
//! limits in any order, [`Planner::decide`] says yes to all or names every account that refuses, and [`Ledger::apply_all`]
//! carries it out as one step.
//!
//! What always holds, and what [`Ledger::audit`] counts again from scratch:
//!
//! 1. `used` of an account is the sum of the charges of live subjects. Sums move in one place only, by the
//!    difference between a subject's old lines and its new ones.
//! 2. A subject's charges are replaced as a whole, so create, update, delete and retry are one operation.
//! 3. No decision lets `used + held` rise above an enforced limit. Only growth on an account can be refused by it.
//! 4. All accounts or none, in one step; a denial changes nothing and names every account that refuses.
//! 5. Lowering a limit evicts nobody; raising it, releasing and closing wake who waits, in the order of service.
//! 6. What changed can be drained as rows, and rows make the same ledger again.
//! 7. No clock, no randomness, no I/O: time and ids come in as arguments, and the same calls make the same bytes.
//!
//! A subject without charges is no subject: charging nothing releases, and an account that closes takes the
//! subjects with it that had nothing else.

mod account;
mod answer;
mod apply;
mod audit;
mod books;
mod changes;
mod charge;
mod closing;
mod decide;
mod decide_all;
mod error;
mod explain;
mod greedy;
mod holds;
mod in_line;
mod ledger;
mod load;
mod planner;
mod queue;
mod rows;
mod snapshot;
mod subjects;
mod terms;
mod wake;
mod wanted;
mod wide;

pub use account::{ACCOUNTS_MAX, AccountId, AccountKey, Balance, CHARGE_MAX, KEY_TEXT_BYTES_MAX, Limit};
pub use answer::{Denied, Outcome, Reason, Receipt, Refusal};
pub use charge::{CHARGES_MAX, Charge, SubjectId};
pub use decide::Plan;
pub use decide_all::StepPlan;
pub use error::{AuditError, LedgerError, LoadError};
pub use explain::{AHEAD_NAMED_MAX, ExplainedLine, Explanation};
pub use ledger::{Ledger, State, SubjectView};
pub use load::Loader;
pub use planner::{Planner, STEP_PARTS_MAX};
pub use queue::WAITERS_MAX;
pub use rows::{ROW_VERSION, Row, RowKind};
pub use snapshot::Snapshot;
pub use subjects::SUBJECTS_MAX;
pub use terms::{Discipline, Position, Standing, Terms, Wait};
