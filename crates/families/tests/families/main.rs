//! The families at work in the engine: each story is told with all of them, as in production.

mod capsule;
mod datum;
mod desk;
mod karmada;
mod kubernetes;
mod names;
mod orgs;
