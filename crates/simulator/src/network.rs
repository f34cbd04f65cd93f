//! Packets on their way: lost, doubled, delayed, out of order.

use crate::engine::{Answer, Command, From};
use crate::rng::Rng;

#[derive(Clone, Debug)]
pub enum Packet {
    Request { to: usize, command: Command },
    Reply { from: From, answer: Answer },
}

/// How bad the network is, each as "one in so many".
#[derive(Clone, Copy, Debug)]
pub struct Weather {
    pub lost: u64,
    pub doubled: u64,
    pub delay_max: u64,
}

#[derive(Debug)]
pub struct Network<P = Packet> {
    rng: Rng,
    pub weather: Weather,
    sent: u64,
    flying: Vec<(u64, u64, P)>,
}

impl<P: Clone> Network<P> {
    pub fn new(rng: Rng, weather: Weather) -> Network<P> {
        Network { rng, weather, sent: 0, flying: Vec::new() }
    }

    /// Sends a packet; `false` when it got lost.
    pub fn send(&mut self, now: u64, packet: P) -> bool {
        if self.weather.lost > 0 && self.rng.one_in(self.weather.lost) {
            return false;
        }
        if self.weather.doubled > 0 && self.rng.one_in(self.weather.doubled) {
            self.fly(now, packet.clone());
        }
        self.fly(now, packet);
        true
    }

    fn fly(&mut self, now: u64, packet: P) {
        self.sent += 1;
        self.flying.push((now + 1 + self.rng.below(self.weather.delay_max), self.sent, packet));
    }

    /// Takes what arrives now, in any order; `true` beside it when something overtook something else.
    pub fn arriving(&mut self, now: u64) -> (Vec<P>, bool) {
        let mut arriving: Vec<(u64, P)> = Vec::new();
        let mut oldest_left = u64::MAX;
        for (due, sent, packet) in std::mem::take(&mut self.flying) {
            if due <= now {
                arriving.push((sent, packet));
            } else {
                oldest_left = oldest_left.min(sent);
                self.flying.push((due, sent, packet));
            }
        }
        self.rng.shuffle(&mut arriving);
        let overtaken = arriving.iter().any(|(sent, _)| *sent > oldest_left);
        (arriving.into_iter().map(|(_, packet)| packet).collect(), overtaken)
    }

    pub fn is_quiet(&self) -> bool {
        self.flying.is_empty()
    }
}
