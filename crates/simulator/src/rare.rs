//! Rare states, by name. A set of runs that never met one of them proves nothing about it, so the tests fail then.

use std::collections::BTreeMap;

/// How often each was met.
#[derive(Clone, Debug, Default)]
pub struct Rare(BTreeMap<&'static str, u64>);

/// Names states, each by its words, and lists them.
macro_rules! rare_states {
    ($($name:ident = $words:literal,)*) => {
        $(pub const $name: &str = $words;)*
        /// Every name there is.
        pub const ALL: &[&str] = &[$($name),*];
    };
}

pub(crate) use rare_states;

rare_states! {
    DENIED_BY_ONE = "a claim is denied by one account",
    DENIED_BY_SEVERAL = "a claim is denied by several accounts",
    DENIED_BY_HOLD = "a claim is denied because of held room",
    DENIED_OVERFLOW = "a claim leaves the number type",
    DENIED_NEGATIVE = "a charge is below zero",
    DENIED_UNKNOWN = "a charge names an account that is not open",
    DENIED_WAITER = "a waiter asks at once and is denied, and still waits",
    REPEATED_CONTENT = "the same charges again change nothing",
    SHRUNK_OVER_LIMIT = "a claim shrinks while its account is over a lowered limit",
    LOWERED_BELOW_USE = "a limit is lowered below what is used",
    RAISE_WOKE = "a raised limit wakes",
    WOKE_SEVERAL = "one step wakes several",
    RELEASE_WOKE = "a release wakes",
    CLOSE_WOKE = "closing an account wakes",
    EXPIRY_WOKE = "an expiry wakes",
    RESIZE_WOKE = "a resize wakes",
    QUEUED_ORDERED = "an ordered claim queues",
    QUEUED_THOUGH_IT_FITS = "an ordered claim queues behind another although it fits",
    QUEUED_AGAIN = "a granted claim grows too much and queues again",
    WAITER_RELEASED = "a waiter is deleted",
    WAITER_CHANGED = "a waiter asks for something else and still waits",
    HOLD_SETTLED = "a hold settles",
    HOLD_EXPIRED = "a hold expires",
    HOLDS_EXPIRED = "several holds expire in one step",
    HOLD_OVER_CHARGE = "a hold stands over a charge",
    HOLD_FELL_BACK = "a hold over a charge expires and the charge stays",
    ADOPTED_OVER_LIMIT = "an adopted subject lifts an account over its limit",
    MOVED = "a subject moves from one pool to another",
    EMPTIED = "a subject is charged with nothing",
    CLOSED_WITH_SUBJECTS = "an account closes under its subjects",
    REOPENED = "an account opens again under its old name",
    RENAMED_WITH_SUBJECTS = "an account under its subjects gets another name",
    RENAMED_WITH_LINE = "an account with a line gets another name",
    SWEPT_IN_PARTS = "some let go of an account, and others not yet",
    SWEPT_ALONG = "whoever lets go of an account lets go of others",
    SWEPT_WHOLE = "the last let go of an account, and it is closed",
    SWEEP_WOKE = "letting go of an account wakes",
    STEP_REFUSED = "a step of several parts with an account is refused",
    STEP_REFUSED_WAITER = "a step of several parts is refused, and who waits or holds stays so",
    STEP_OPENED = "a step of several parts opens an account",
    STEP_RELEASED = "a step gives back and takes",
    STEP_QUEUED = "a step puts some of its subjects in line",
    STEP_QUEUED_AGAIN = "a step puts in line who keeps what it has",
    STEP_WOKE = "a step of several parts wakes",
    TWICE_IN_ONE_GROUP = "one subject changes twice in one group",
    RELEASE_BEFORE_DURABLE = "a release is decided before its claim is durable",
    LIMIT_IN_HALF_BUILT_GROUP = "a limit changes while a group is half built",
    TWO_GROUPS_IN_FLIGHT = "a group is decided while another is being written",
    FULL_GROUP = "a group is full and more waits",
    GROUP_WITHOUT_ROWS = "a group has nothing to write",
    CRASH_WITH_GROUP = "a crash takes a decided group that was not written",
    CRASH_IN_COMMIT = "a crash in the middle of a commit",
    CRASH_IN_RECOVERY = "a crash in the middle of a recovery",
    UNKNOWN_FOUND = "a group whose commit failed is there after the restart",
    UNKNOWN_LOST = "a group whose commit failed is gone after the restart",
    RESTART_WITH_WAITERS = "a restart with subjects in line",
    RESTART_WITH_HOLDS = "a restart with holds",
    RESTART_OF_PROCESS = "the process ends and the machine goes on",
    ENTRIES_RETIRED = "a start finds a journal whose first entries are retired",
    SYNC_FAILED = "a sync fails",
    WRITE_FAILED = "a write fails",
    RENAME_FAILED = "a rename fails",
    DISK_FULL = "the disk is full",
    FLIP_REFUSED = "a flipped bit is refused at the start",
    FLIP_HARMLESS = "a flipped bit hits nothing that counts",
    REQUEST_LOST = "a request is lost",
    ANSWER_LOST = "an answer is lost",
    DUPLICATE_ANSWERED = "a repeated request is answered from memory",
    LATE_REQUEST = "a request arrives after its client went on",
    GAVE_UP_AND_HAPPENED = "a client gave up and its request happened",
    OUT_OF_ORDER = "packets overtake each other",
    CLOCK_BACK = "the clock jumps back",
    CLOCK_FORWARD = "the clock jumps far ahead",
    LEADER_CHANGED = "another replica takes over",
    OLD_LEADER_FENCED = "an old leader is refused by the store",
    OLD_LEADER_HAD_GROUP = "a leader is replaced with a decided group in hand",
    COMMIT_ANSWER_LOST = "the shared store takes a group and its answer is lost",
}

impl Rare {
    pub fn met(&mut self, name: &'static str) {
        *self.0.entry(name).or_default() += 1;
    }

    pub fn met_if(&mut self, condition: bool, name: &'static str) {
        if condition {
            self.met(name);
        }
    }

    pub fn add(&mut self, other: &Rare) {
        for (name, count) in &other.0 {
            *self.0.entry(name).or_default() += count;
        }
    }

    pub fn count(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or_default()
    }

    pub fn never_met(&self) -> Vec<&'static str> {
        self.never_met_of(ALL)
    }

    pub fn never_met_of(&self, all: &[&'static str]) -> Vec<&'static str> {
        all.iter().copied().filter(|name| self.count(name) == 0).collect()
    }
}
