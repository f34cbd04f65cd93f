//! Exact Kubernetes quantities: parse, print, add, compare.
//!
//! Start reading at [`Quantity`]: a number, the way it wants to be written, and, where Kubernetes keeps it, the text
//! it was sent as. The number itself is an [`Amount`], a whole count of nano-units; every sum in the ledger is one of
//! those. No float is involved anywhere, nothing wraps, and every refusal is a value.
//!
//! ```text
//!   "1.5Gi" --parse--> Quantity { amount: 1610612736 units, format: BinarySi } --print--> "1536Mi"
//!                          |  add, subtract, multiply: exact, or None
//!                          +-> Amount (Copy, 16 bytes): what accounts count in
//! ```
//!
//! The behaviour is that of k8s.io/apimachinery's `resource.Quantity`, except where that one loses a value or does
//! not return; docs/quantities.md lists those places.

mod amount;
mod decimal;
mod parse;
mod print;
mod quantity;

pub use amount::Amount;
pub use decimal::{Decimal, Percent};
pub use parse::{EXPONENT_MAX, ParseError, TEXT_BYTES_MAX};
pub use quantity::{Format, Quantity};
