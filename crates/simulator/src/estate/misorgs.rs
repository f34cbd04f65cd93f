//! Mistakes with organizations: what counts is not charged, what has passed still is, and what happened is not told.

use families::orgs::names::*;
use rules::{Compiled, GroupResource, Line, Subject};
use serde_json::{Value, json};

use super::request::Request;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrgsMistake {
    /// What was accepted and is not allocated yet takes nothing.
    ChargesNoSlot,
    /// What drains counts no more, although it still runs.
    FreesWhatDrains,
    /// A stream or session counts after its lease has ended.
    KeepsTheLease,
    /// Grants are not counted by the hour.
    ForgetsTheHour,
    /// A limit of an operator is in force after its time.
    KeepsTheOverride,
    /// Public ports are charged to no route.
    ForgetsBindings,
    /// A command is carried out without its events.
    TellsNothing,
    /// Events tell how things were, and not how they became.
    TellsTheOldState,
}

impl OrgsMistake {
    /// What an object is charged, with the mistake in it.
    pub fn charge(self, subject: &Subject<'_>, said: &mut Vec<Line>) {
        let is = |plural: families::Plural| plural.is(subject.resource);
        let account = |line: &Line, dimension: families::orgs::Dimension| line.account == dimension.at();
        match self {
            OrgsMistake::ChargesNoSlot if is(ENVS) => {
                said.retain(|line| !families::orgs::Dimension::COMPUTE.iter().any(|one| account(line, *one)));
            }
            OrgsMistake::FreesWhatDrains if is(INSTANCES) && subject.object["spec"]["desired_state"] == "draining" => {
                said.clear();
            }
            OrgsMistake::ForgetsTheHour if is(EXEC_SESSIONS) => {
                said.retain(|line| !account(line, families::orgs::Dimension::ExecSessionsPerHour));
            }
            _ => {}
        }
    }

    /// Whether it is forgotten when this object has to be measured again.
    pub fn forgets_the_moment(self, subject: &Subject<'_>) -> bool {
        self == OrgsMistake::KeepsTheLease && (LOG_STREAMS.is(subject.resource) || EXEC_SESSIONS.is(subject.resource))
    }

    /// A policy as it is compiled.
    pub fn policy(self, object: &mut Value) {
        let overrides = object["spec"]["overrides"].as_object_mut();
        if self == OrgsMistake::KeepsTheOverride {
            for own in overrides.into_iter().flatten().filter_map(|(_, own)| own.as_object_mut()) {
                own.remove("expires_at");
            }
        }
    }

    pub fn compiled(self, resource: &GroupResource, compiled: &mut Compiled) {
        if self == OrgsMistake::KeepsTheOverride && ORGS.is(resource) {
            compiled.until_ms = None;
        }
    }

    /// Whether nobody says what this object must be.
    pub fn leaves_as_it_is(self, resource: &GroupResource) -> bool {
        self == OrgsMistake::ForgetsBindings && ROUTES.is(resource)
    }

    /// A command as it is asked for.
    pub fn request(self, request: &mut Request) {
        let Some(together) = &mut request.together else { return };
        match self {
            OrgsMistake::TellsNothing => together.entries.clear(),
            OrgsMistake::TellsTheOldState => {
                for entry in &mut together.entries {
                    let Ok(mut event) = serde_json::from_str::<Value>(entry) else { continue };
                    if !event["old"].is_null() && !event["new"].is_null() {
                        event["new"] = event["old"].clone();
                        *entry = json!(event).to_string();
                    }
                }
            }
            _ => {}
        }
    }
}
