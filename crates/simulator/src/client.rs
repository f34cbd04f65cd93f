//! Clients: each asks one thing at a time, asks again when it hears nothing, and gives up at some point.

use crate::engine::{Answer, Command};
use crate::history::{Call, Returned};
use crate::naive::generate::World as Requests;
use crate::rng::Rng;

/// Ticks after which a client asks again.
const PATIENCE: u64 = 24;

pub struct Client {
    pub id: u32,
    rng: Rng,
    requests: Requests,
    next_number: u64,
    /// The call that is out: its place in the history, when it was last sent, how often.
    out: Option<(usize, u64, u32)>,
}

impl Client {
    pub fn new(id: u32, rng: Rng, requests: Requests) -> Client {
        Client { id, rng, requests, next_number: 1, out: None }
    }

    pub fn is_idle(&self) -> bool {
        self.out.is_none()
    }

    /// What the client sends now, if anything.
    pub fn act(&mut self, now: u64, clock: i64, starts_new: bool, calls: &mut Vec<Call>) -> Option<Command> {
        if let Some((index, sent, times)) = self.out {
            if now < sent + PATIENCE {
                return None;
            }
            if starts_new && times >= 2 && self.rng.one_in(3) {
                // Gives up without ever knowing.
                self.out = None;
                return None;
            }
            self.out = Some((index, now, times + 1));
            let call = &calls[index];
            return Some(Command { from: Some((self.id, call.number)), op: call.op.clone() });
        }
        if !starts_new {
            return None;
        }
        let op = self.requests.op(&mut self.rng, clock);
        Some(self.call(now, op, calls))
    }

    /// Begins a call.
    pub fn call(&mut self, now: u64, op: crate::naive::ops::Op, calls: &mut Vec<Call>) -> Command {
        let number = self.next_number;
        self.next_number += 1;
        self.out = Some((calls.len(), now, 1));
        calls.push(Call { client: self.id, number, op: op.clone(), called: now, returned: None });
        Command { from: Some((self.id, number)), op }
    }

    /// Hears an answer. Only the first one to the call that is out counts.
    pub fn hear(&mut self, now: u64, number: u64, answer: Answer, calls: &mut [Call]) {
        if let Some((index, ..)) = self.out
            && calls[index].number == number
            && answer != Answer::Stale
        {
            calls[index].returned = Some(Returned { at: now, answer });
            self.out = None;
        }
    }
}
