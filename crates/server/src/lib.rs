//! `bursar serve`: a Kubernetes-compatible API over objects and the ledger.
//!
//! Start reading at [`core`], which decides and stores, then at [`registry`], which says what is served. [`front`] is the
//! way in from a socket: TLS, who, may they, is there room.

pub mod admission;
pub mod api;
pub mod authn;
pub mod authz;
pub mod body;
pub mod certs;
pub mod config;
pub mod core;
pub mod files;
pub mod front;
pub mod inflight;
pub mod listen;
pub mod metrics;
pub mod orgs;
pub mod registry;
pub mod request;
pub mod serve;
pub mod tls;

pub use families::identity;
