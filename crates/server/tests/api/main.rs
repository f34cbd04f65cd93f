//! The API over HTTP, in process: every verb, refusal and form, as tables of requests and answers.

mod bad_input;
mod forms;
mod harness;
mod verbs;
mod watches;
