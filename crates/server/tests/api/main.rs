//! The API over HTTP, in process: every verb, refusal and form, as tables of requests and answers.

mod admission;
mod backup;
mod bad_input;
mod clients;
mod custom;
mod definitions;
mod evasion;
mod evictions;
mod forging;
mod forms;
mod hang_ups;
mod harness;
mod hostile;
mod loops;
mod metrics;
mod moves;
mod orgs;
mod quotas;
mod reads;
mod rights;
mod room;
mod scopes;
mod turns;
mod verbs;
mod watches;

#[allow(dead_code)]
#[path = "../../src/admission/webhooks/tests/server.rs"]
mod hook_server;
