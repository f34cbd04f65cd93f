//! Organizations with the real binary: over HTTP, on the command line, with an agent for each node, and with kills in between.

mod command_line;
mod compliance;
mod fairness;
mod keeping;
mod lasting;
mod leaving;
mod platform;
mod races;
mod rights;
mod schema;
