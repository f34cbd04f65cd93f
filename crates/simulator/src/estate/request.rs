//! What clients ask for, in a form that can be lost, doubled and sent again.

use families::Origin;
use rules::GroupResource;
use rules::cel::Foresight;
use serde_json::{Value, json};
use server::core::{Command, Draft, Expect, Hold, ObjectKey, Write, WriteAll, WriteKind, Writes};
use uuid::Uuid;

use super::durable::JOURNAL;

#[derive(Clone, Debug)]
pub enum Verb {
    /// The object without a uid, which it gets where the request arrives; one that was held has it.
    Create(Value),
    Update {
        value: Value,
        expect: Expect,
        status: bool,
    },
    Delete {
        expect: Expect,
    },
    /// It is decided here, and stored by others within this time.
    Hold {
        value: Value,
        lasts_ms: i64,
    },
    /// It will not be.
    Drop {
        uid: u128,
    },
}

#[derive(Clone, Debug)]
pub struct Request {
    pub key: ObjectKey,
    pub verb: Verb,
    /// What is written in the same step, if it is asked for so.
    pub together: Option<Together>,
    pub dry_run: bool,
    /// Whether nobody goes on with it if it is put off: then it is not.
    pub at_once: bool,
    pub now_ms: i64,
    /// Whether it is the service of organizations that writes.
    pub is_service: bool,
}

/// Further writes, all of them or none, and what is appended to the journal with them.
#[derive(Clone, Debug)]
pub struct Together {
    pub others: Vec<(ObjectKey, Verb)>,
    pub entries: Vec<String>,
}

impl Verb {
    /// The object as it is to be stored.
    pub fn value(&self) -> Option<&Value> {
        match self {
            Verb::Create(value) | Verb::Update { value, .. } | Verb::Hold { value, .. } => Some(value),
            Verb::Delete { .. } | Verb::Drop { .. } => None,
        }
    }

    pub fn is_status(&self) -> bool {
        matches!(self, Verb::Update { status: true, .. })
    }

    fn kind(&self, uids: &mut u128) -> Result<WriteKind, String> {
        let draft = |value: Value| Draft::new(value).map_err(|error| error.to_string());
        Ok(match self.clone() {
            Verb::Create(value) => WriteKind::Create(draft(named(value, uids))?),
            Verb::Update { value, expect, status } => WriteKind::Update { draft: draft(value)?, expect, status },
            Verb::Delete { expect } => WriteKind::Delete { expect, last: None },
            Verb::Hold { .. } | Verb::Drop { .. } => return Err("what is held is not written".into()),
        })
    }

    fn told(&self, key: &ObjectKey) -> String {
        match self {
            Verb::Create(value) => format!("create {key} {}", told(value)),
            Verb::Update { value, status: true, .. } => format!("status {key} {}", told(value)),
            Verb::Update { value, expect, .. } => format!("update {key} {} {expect:?}", told(value)),
            Verb::Delete { expect } => format!("delete {key} {expect:?}"),
            Verb::Hold { value, lasts_ms } => format!("hold {key} for {lasts_ms} {}", told(value)),
            Verb::Drop { uid } => format!("drop {key} {uid:x}"),
        }
    }
}

impl Request {
    /// All that is written, in order.
    pub fn parts(&self) -> impl Iterator<Item = (&ObjectKey, &Verb)> {
        let others = self.together.iter().flat_map(|together| &together.others);
        std::iter::once((&self.key, &self.verb)).chain(others.map(|(key, verb)| (key, verb)))
    }

    /// As the engine is asked; new objects get uids from `uids` on.
    pub fn command(&self, uids: &mut u128) -> Result<Command, String> {
        match &self.verb {
            Verb::Hold { value, lasts_ms } => return Ok(Command::Hold(Box::new(self.hold(value, *lasts_ms, uids)?))),
            Verb::Drop { uid } => {
                return Ok(Command::DropHold { subject: ledger::SubjectId(*uid), now_ms: self.now_ms });
            }
            Verb::Create(_) | Verb::Update { .. } | Verb::Delete { .. } => {}
        }
        let Some(together) = &self.together else {
            let foresight = if self.at_once { Foresight::None } else { Foresight::Asked };
            return Ok(Command::Write(Box::new(self.write(self.verb.kind(uids)?, foresight))));
        };
        let mut writes = Vec::new();
        for (key, verb) in self.parts() {
            writes.push((key.clone(), verb.kind(uids)?));
        }
        let entries = together.entries.iter().map(|entry| (JOURNAL, entry.clone().into_bytes())).collect();
        let Request { dry_run, now_ms, .. } = *self;
        let origin = if self.is_service { Origin::internal("orgs") } else { Origin::default() };
        let writes = Writes { writes, dry_run, now_ms, origin };
        Ok(Command::WriteAll(Box::new(WriteAll { writes, entries })))
    }

    /// The write of one that is not several, as it is known by now.
    pub fn write(&self, kind: WriteKind, foresight: Foresight) -> Write {
        let Request { key, dry_run, now_ms, .. } = self;
        Write { key: key.clone(), kind, dry_run: *dry_run, now_ms: *now_ms, foresight, origin: Origin::default() }
    }

    fn hold(&self, value: &Value, lasts_ms: i64, uids: &mut u128) -> Result<Hold, String> {
        let draft = Draft::new(named(value.clone(), uids)).map_err(|error| error.to_string())?;
        let (key, dry_run, now_ms) = (self.key.clone(), self.dry_run, self.now_ms);
        let expires_at_ms = now_ms.saturating_add(lasts_ms);
        let (foresight, origin) = (Foresight::None, Origin::default());
        Ok(Hold { key, draft, expires_at_ms, dry_run, now_ms, foresight, origin })
    }

    /// What is asked for, in one line.
    pub fn told(&self) -> String {
        let what: Vec<String> = self.parts().map(|(key, verb)| verb.told(key)).collect();
        let dry = if self.dry_run { "dry " } else { "" };
        let together = if self.together.is_some() { "together " } else { "" };
        format!("{} {dry}{together}{}", self.now_ms, what.join(" + "))
    }
}

/// An object that has no uid yet gets one.
fn named(mut value: Value, uids: &mut u128) -> Value {
    if value["metadata"]["uid"].is_null() {
        *uids += 1;
        value["metadata"]["uid"] = json!(Uuid::from_u128(*uids).to_string());
    }
    value
}

fn told(value: &Value) -> String {
    let metadata = &value["metadata"];
    let marks = format!("{} {} {}", metadata["labels"], metadata["annotations"], metadata["deletionTimestamp"]);
    format!("{marks} {} {}", value["spec"], value["status"]["phase"])
}

/// A deletion of this, whatever it is by then.
pub fn removal(key: ObjectKey, now_ms: i64) -> Request {
    let verb = Verb::Delete { expect: Expect::default() };
    Request { key, verb, together: None, dry_run: false, at_once: true, now_ms, is_service: false }
}

/// A write of nothing, which tells the time.
pub fn nothing(now_ms: i64) -> Request {
    removal(ObjectKey::new(GroupResource::core("configmaps"), "nowhere", "nothing"), now_ms)
}
