//! Nodes that are not heard of any more, and those that are heard of again.

use std::collections::BTreeMap;

use kinds::fields::{given, text};
use serde_json::Value;

use super::state::{HEARTBEAT_MS, Seen};

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

/// Which heartbeat of each node was seen last, and when, by a clock that nobody sets: right after a start, and where the clock was
/// set forward, nobody has been silent for long.
#[derive(Debug, Default)]
pub struct Silence {
    seen: BTreeMap<String, (i64, i64)>,
}

impl Silence {
    /// Looks at all nodes, so long after the start.
    pub fn look<'a>(&mut self, nodes: impl Iterator<Item = &'a Seen>, uptime_ms: i64) -> Vec<Turn> {
        let before = std::mem::take(&mut self.seen);
        let mut turns = Vec::new();
        for node in nodes {
            // Who never said anything has nothing that could be lost.
            let Some(heard_ms) = given(&node.status, &["heartbeat_at_ms"]).and_then(Value::as_i64) else { continue };
            let known = before.get(&node.name).copied();
            let is_new = known.is_none_or(|(heartbeat, _)| heartbeat != heard_ms);
            let at_ms = known.filter(|_| !is_new).map_or(uptime_ms, |(_, at_ms)| at_ms);
            self.seen.insert(node.name.clone(), (heard_ms, at_ms));
            let state = match (text(&node.spec, &["state"]), text(&node.spec, &["reason"])) {
                ("active", _) if uptime_ms.saturating_sub(at_ms) > HEARTBEAT_MS => "offline",
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

    /// What becomes of a node that is seen as these say, each so many seconds after the start.
    fn turns(seen: &[(i64, Seen)]) -> Vec<&'static str> {
        let mut silence = Silence::default();
        let mut look = |(seconds, node): &(i64, Seen)| silence.look(std::iter::once(node), seconds * 1000);
        seen.iter().map(|one| look(one).first().map_or("", |turn| turn.state)).collect()
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
