//! The ledger at its border: one table language, a naive model, damaged rows.

mod cases;
mod table;
