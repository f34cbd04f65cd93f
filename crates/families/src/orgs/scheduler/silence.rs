//! Nodes that are not heard of any more, and those that are heard of again.

use std::collections::BTreeMap;

use kinds::fields::{given, text};
use serde_json::Value;

use super::state::{HEARTBEAT_MS, Seen};

/// So much of the time between two looks is silence at the most. Beyond it nobody listened: a server that stood still, or waited for its
/// disk, has heard of nobody, and nobody is put out of service for that.
const LISTENED_MAX_MS: i64 = 10 * 1000;

/// Why the scheduler puts a node out of service. Who is put out of it for any other reason is not put back by a heartbeat.
pub const NO_HEARTBEAT: &str = "no_heartbeat";

/// A node that is to be put in another state, as it was when that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    pub node: String,
    pub state: &'static str,
    pub version: i64,
    /// Its last heartbeat.
    pub heard_ms: i64,
}

/// Which heartbeat of each node was seen last, and when, by a clock that nobody sets and that stands while nobody listens: right after
/// a start, after the server stood still, and where the clock was set forward, nobody has been silent for long.
#[derive(Debug, Default)]
pub struct Silence {
    seen: BTreeMap<String, (i64, i64)>,
    looked_ms: i64,
    listened_ms: i64,
}

impl Silence {
    /// What was heard could not be written down: all begin anew.
    pub fn forgive(&mut self) {
        let listened_ms = self.listened_ms;
        self.seen.values_mut().for_each(|(_, at_ms)| *at_ms = listened_ms);
    }

    /// Looks at all nodes, so long after the start.
    pub fn look<'a>(&mut self, nodes: impl Iterator<Item = &'a Seen>, uptime_ms: i64) -> Vec<Turn> {
        let since_ms = uptime_ms.saturating_sub(self.looked_ms).clamp(0, LISTENED_MAX_MS);
        self.looked_ms = uptime_ms;
        self.listened_ms = self.listened_ms.saturating_add(since_ms);
        let listened_ms = self.listened_ms;
        let before = std::mem::take(&mut self.seen);
        let mut turns = Vec::new();
        for node in nodes {
            // Who never said anything has nothing that could be lost.
            let Some(heard_ms) = given(&node.status, &["heartbeat_at_ms"]).and_then(Value::as_i64) else { continue };
            let known = before.get(&node.name).copied();
            let is_new = known.is_none_or(|(heartbeat, _)| heartbeat != heard_ms);
            let at_ms = known.filter(|_| !is_new).map_or(listened_ms, |(_, at_ms)| at_ms);
            self.seen.insert(node.name.clone(), (heard_ms, at_ms));
            let state = match (text(&node.spec, &["state"]), text(&node.spec, &["reason"])) {
                ("active", _) if listened_ms.saturating_sub(at_ms) > HEARTBEAT_MS => "offline",
                ("offline", NO_HEARTBEAT) if is_new && known.is_some() => "active",
                _ => continue,
            };
            let version = given(&node.spec, &["version"]).and_then(Value::as_i64).unwrap_or(0);
            turns.push(Turn { node: node.name.clone(), state, version, heard_ms });
        }
        turns
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(state: &str, reason: &str, heard_ms: i64) -> Seen {
        Seen {
            org: String::new(),
            name: "n1".into(),
            spec: json!({"state": state, "reason": reason, "version": 3}),
            status: if heard_ms < 0 { Value::Null } else { json!({"heartbeat_at_ms": heard_ms}) },
        }
    }

    /// What becomes of a node that is seen as these say, each so many seconds after the start, and until the next of them each second.
    fn turns(seen: &[(i64, Seen)]) -> Vec<&'static str> {
        let mut silence = Silence::default();
        let mut look = |second: i64, node: &Seen| {
            silence.look(std::iter::once(node), second * 1000).first().map_or("", |turn| turn.state)
        };
        let turn = |at: usize| {
            let (second, node) = &seen[at];
            let turn = look(*second, node);
            let next = seen.get(at + 1).map_or(*second, |(next, _)| *next);
            let between = (second + 1..next).filter(|second| !look(*second, node).is_empty()).count();
            assert!(between == 0 || turn == "offline", "{between} turns were not seen");
            turn
        };
        (0..seen.len()).map(turn).collect()
    }

    #[test]
    fn nobody_is_silent_while_nobody_listens() {
        let mut silence = Silence::default();
        let mut state = |uptime_ms: i64| {
            let node = node("active", "", 5);
            silence.look(std::iter::once(&node), uptime_ms).first().map(|turn| turn.state)
        };
        assert_eq!((0..20).find_map(|second| state(second * 1000)), None);
        // It stands still for an hour, as a process that is stopped does, and for two minutes as one whose disk does.
        let begun_ms = 3_600_000;
        assert_eq!([state(begun_ms), state(begun_ms + 120_000)], [None; 2]);
        let later = (1..100).find(|second| state(begun_ms + 120_000 + second * 1000) == Some("offline"));
        assert!(later.is_some_and(|second| (21..=31).contains(&second)), "{later:?}: what it listened to counts");
    }

    #[test]
    fn what_could_not_be_written_down_is_nobodys_silence() {
        let mut silence = Silence::default();
        let node = node("active", "", 5);
        let state = |silence: &mut Silence, second: i64| {
            silence.look(std::iter::once(&node), second * 1000).first().map(|turn| turn.state)
        };
        assert_eq!((0..=61).filter_map(|second| state(&mut silence, second)).collect::<Vec<_>>(), ["offline"]);
        silence.forgive();
        assert_eq!((62..=121).find_map(|second| state(&mut silence, second)), None);
        assert_eq!(state(&mut silence, 122), Some("offline"));
    }

    #[test]
    fn who_is_silent_for_a_minute_is_offline_until_heard_of_again() {
        let active = |at| node("active", "", at);
        assert_eq!(turns(&[(0, active(5)), (60, active(5)), (61, active(5))]), ["", "", "offline"]);
        assert_eq!(
            turns(&[(0, active(5)), (50, active(6)), (61, active(6)), (111, active(6))]),
            ["", "", "", "offline"]
        );
        let lost = |at| node("offline", NO_HEARTBEAT, at);
        assert_eq!(turns(&[(0, lost(5)), (100, lost(5)), (101, lost(6))]), ["", "", "active"]);
    }

    #[test]
    fn a_start_a_clock_and_an_operator_make_nobody_silent_or_heard() {
        // The heartbeats are of long ago, as of before a stop of a day, or of a clock that was set.
        assert_eq!(turns(&[(0, node("active", "", 0))]), [""]);
        let other = |state: &str, reason: &str, at| node(state, reason, at);
        for (state, reason) in [("offline", "repair"), ("offline", ""), ("disabled", ""), ("draining", "")] {
            assert_eq!(
                turns(&[(0, other(state, reason, 5)), (99, other(state, reason, 5)), (100, other(state, reason, 6))]),
                [""; 3]
            );
        }
        // It was never heard of.
        assert_eq!(turns(&[(0, node("active", "", -1)), (99, node("active", "", -1))]), [""; 2]);
    }
}
