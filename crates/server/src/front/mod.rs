//! The way in: from a socket to an authenticated, authorized request with a seat, and the start of the whole server.
//!
//! ```text
//! TCP → TLS (client certificate?) → HTTP → RequestInfo → who (401) → as whom (403) → may they (403)
//!     → seat in flight (429) → the API, with Arc<Identity> and RequestInfo in the request's extensions
//! ```
//!
//! [`Guard`] is everything after HTTP, around any service; [`prepare`] and [`Prepared::serve`] are the rest, from a
//! configuration to a clean end.

mod doubt;
mod guard;
mod refusal;
mod start;
mod watch_body;

pub use doubt::Watches;
pub use guard::{Gate, Guard, REQUEST_TIME_MAX};
pub use refusal::Refusal;
pub use start::{Built, Prepared, StartError, now_seconds, prepare, until_signal};
