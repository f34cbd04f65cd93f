//! server
pub mod authn;
pub mod authz;
pub mod body;
pub mod certs;
pub mod identity;
pub mod inflight;
pub mod listen;
pub mod request;
pub mod tls;
