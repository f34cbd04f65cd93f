//! The API over HTTP, in process: every verb, refusal and form, as tables of requests and answers.

mod bad_input;
mod custom;
mod forms;
mod harness;
mod quotas;
mod rights;
mod verbs;
mod watches;
