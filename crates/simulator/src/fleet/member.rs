//! A member: what it was told, what runs there, and its own clock.

use super::super::rng::Rng;

/// What a member may use, until when; and which word of the control plane that is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    pub hard: u64,
    pub until_ms: i64,
}

#[derive(Clone, Debug, Default)]
pub struct Member {
    pub told: Option<Terms>,
    /// Changes with every word that is taken.
    pub version: u64,
    pub pods: u64,
    /// Pods at the gate, where pods that do not fit wait instead of being refused.
    pub waiting: u64,
    pub gates: bool,
    /// How far its clock is from the control plane's.
    pub skew_ms: i64,
    pub is_dead: bool,
    pub is_cut_off: bool,
    /// It was given up with what it ran, and has not yet come down to what it was lent since.
    pub is_excused: bool,
    /// Says of itself what it likes. What it does is its own affair then.
    pub lies: bool,
}

/// A word on its way to a member.
#[derive(Clone, Copy, Debug)]
pub struct Word {
    pub to: usize,
    pub terms: Terms,
    /// What was there when it was sent.
    pub version: u64,
}

impl Member {
    pub fn new(rng: &mut Rng, skew_max_ms: i64, lies: bool) -> Member {
        let span = u64::try_from(2 * skew_max_ms + 1).unwrap_or(1);
        let skew_ms = i64::try_from(rng.below(span)).unwrap_or(0) - skew_max_ms;
        let gates = rng.one_in(2);
        Member { skew_ms, lies, gates, ..Member::default() }
    }

    /// What may run there at this moment. Before it was told anything nothing is lent there, and nothing appears.
    pub fn may_use(&self, now_ms: i64) -> u64 {
        self.told.filter(|terms| now_ms + self.skew_ms < terms.until_ms).map_or(0, |terms| terms.hard)
    }

    /// One pod more wants to run.
    pub fn admit(&mut self, now_ms: i64) {
        self.waiting += 1;
        self.open(now_ms);
        if !self.gates {
            self.waiting = 0;
        }
    }

    /// Whoever waits and fits now is let in.
    pub fn open(&mut self, now_ms: i64) {
        if !self.is_dead {
            let fit = self.waiting.min(self.may_use(now_ms).saturating_sub(self.pods));
            (self.pods, self.waiting) = (self.pods + fit, self.waiting - fit);
        }
    }

    pub fn answers(&self) -> bool {
        !self.is_dead && !self.is_cut_off
    }

    /// What it says it uses.
    pub fn says_used(&self, rng: &mut Rng) -> u64 {
        if self.lies { rng.below(40) } else { self.pods }
    }

    /// What it says waits there.
    pub fn says_waiting(&self, rng: &mut Rng) -> u64 {
        if self.lies { rng.below(40) } else { self.waiting }
    }

    /// What it was told is taken away again; words that are still on their way come too late.
    pub fn withdraw(&mut self) {
        (self.told, self.version) = (None, self.version + 1);
    }

    /// Takes a word, unless another one was taken since it was sent.
    pub fn take(&mut self, word: &Word, any_version: bool, now_ms: i64) -> bool {
        let is_taken = !self.is_dead && (word.version == self.version || any_version);
        if is_taken {
            (self.told, self.version) = (Some(word.terms), self.version + 1);
            self.open(now_ms);
        }
        is_taken
    }
}
