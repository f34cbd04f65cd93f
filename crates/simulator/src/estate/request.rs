//! What clients ask for, in a form that can be lost, doubled and sent again.

use families::Origin;
use rules::GroupResource;
use rules::cel::Foresight;
use serde_json::{Value, json};
use server::core::{Command, Draft, Expect, ObjectKey, Write, WriteKind};
use uuid::Uuid;

#[derive(Clone, Debug)]
pub enum Verb {
    /// The object without a uid, which it gets where the request arrives.
    Create(Value),
    Update {
        value: Value,
        expect: Expect,
        status: bool,
    },
    Delete {
        expect: Expect,
    },
}

#[derive(Clone, Debug)]
pub struct Request {
    pub key: ObjectKey,
    pub verb: Verb,
    pub dry_run: bool,
    pub now_ms: i64,
}

impl Request {
    /// As the engine is asked; a new object gets this uid.
    pub fn command(&self, uid: u128) -> Result<Command, String> {
        let draft = |value: Value| Draft::new(value).map_err(|error| error.to_string());
        let kind = match self.verb.clone() {
            Verb::Create(mut value) => {
                value["metadata"]["uid"] = json!(Uuid::from_u128(uid).to_string());
                WriteKind::Create(draft(value)?)
            }
            Verb::Update { value, expect, status } => WriteKind::Update { draft: draft(value)?, expect, status },
            Verb::Delete { expect } => WriteKind::Delete { expect, last: None },
        };
        let Request { key, dry_run, now_ms, .. } = self.clone();
        Ok(Command::Write(Box::new(Write {
            key,
            kind,
            dry_run,
            now_ms,
            foresight: Foresight::None,
            origin: Origin::default(),
        })))
    }

    /// What is asked for, in one line.
    pub fn told(&self) -> String {
        let Request { key, verb, dry_run, now_ms } = self;
        let what = match verb {
            Verb::Create(value) => format!("create {key} {}", told(value)),
            Verb::Update { value, status: true, .. } => format!("status {key} {}", told(value)),
            Verb::Update { value, expect, .. } => format!("update {key} {} {expect:?}", told(value)),
            Verb::Delete { expect } => format!("delete {key} {expect:?}"),
        };
        let dry = if *dry_run { "dry " } else { "" };
        format!("{now_ms} {dry}{what}")
    }
}

fn told(value: &Value) -> String {
    let metadata = &value["metadata"];
    let marks = format!("{} {} {}", metadata["labels"], metadata["annotations"], metadata["deletionTimestamp"]);
    format!("{marks} {} {}", value["spec"], value["status"]["phase"])
}

/// A write of nothing, which tells the time.
pub fn nothing(now_ms: i64) -> Request {
    let key = ObjectKey::new(GroupResource::core("configmaps"), "nowhere", "nothing");
    Request { key, verb: Verb::Delete { expect: Expect::default() }, dry_run: false, now_ms }
}
