//! The way in, from the socket to an authorized request, over real TLS on loopback, and its parts as tables.

mod bootstrap;
mod certificates;
mod escalation;
mod fairness;
mod guard;
mod rbac;
mod reviews;
mod support;
mod tokens;
mod wire;
