//! `bursar serve`: a Kubernetes-compatible API over objects and the ledger.
//!
//! Start reading at [`core`], which decides and stores, then at [`registry`], which says what is served.

pub mod authn;
pub mod authz;
pub mod body;
pub mod certs;
pub mod core;
pub mod identity;
pub mod inflight;
pub mod listen;
pub mod registry;
pub mod request;
pub mod strategies;
pub mod tls;
