//! Mistakes in the steps that an engine is given.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use families::Origin;
use rules::GroupResource;
use sequencer::Engine as _;
use serde_json::{Value, json};
use server::core::{Answer, Command, Draft, Engine, Expect, Hold, ObjectKey, Publication, Refused, Write, WriteKind};
use store::Batch;

use super::holds::with_uid;
use super::liar::Lies;
use super::mutation::Mutation;
use super::request::nothing;

/// What the engine is asked for beside, or instead of, one command.
pub struct Misstep<'a> {
    pub engine: &'a mut Engine,
    pub batch: &'a mut Batch,
    pub publication: &'a mut Publication,
    pub turn: u64,
    pub staged: &'a mut Staged,
}

/// What is known outside of the engine of a write that is put off.
pub struct Staged {
    pub lies: Arc<Lies>,
    /// Under which number something is counted, and for which object.
    pub under_way: Option<(u64, ObjectKey)>,
    /// Whether something took its place once.
    pub took_over: bool,
}

impl Staged {
    pub fn new(lies: &Arc<Lies>) -> Staged {
        lies.staging.store(0, Ordering::Relaxed);
        Staged { lies: lies.clone(), under_way: None, took_over: false }
    }
}

impl Misstep<'_> {
    pub fn step(&mut self, mutation: Mutation, command: Command) -> Answer {
        let write = match command {
            Command::Write(write) => write,
            Command::Stage(write) => return self.stage(write),
            Command::Hold(hold) => return self.hold(mutation, *hold),
            Command::WriteAll(all) => return self.write_all(mutation, *all),
            Command::PublishStatus { now_ms } => return self.publish(mutation, now_ms),
            command => return self.ask(command),
        };
        if mutation == Mutation::ShadowRefuses
            && let Some(refused) = self.refuse_by_shadow(&write)
        {
            return refused;
        }
        self.staged.lies.is_writing.store(true, Ordering::Relaxed);
        let answer = self.step_of_one(mutation, write);
        self.staged.lies.is_writing.store(false, Ordering::Relaxed);
        answer
    }

    fn step_of_one(&mut self, mutation: Mutation, mut write: Box<Write>) -> Answer {
        let (key, now_ms, wanted) = (write.key.clone(), write.now_ms, wanted(&write));
        match mutation {
            Mutation::DryRunLeavesATrace => write.dry_run = false,
            Mutation::WaiterLosesWhatItHad if !write.dry_run => self.let_go(&mut write),
            _ => {}
        }
        let answer = self.ask(Command::Write(write));
        let Answer::Written(Err(refused)) = &answer else { return answer };
        match (mutation, refused, wanted) {
            (Mutation::WritesWhatItDenied, Refused::Denied(_), Some(value)) => {
                self.write_all_the_same(key, now_ms, value)
            }
            (Mutation::UndoneStepLeavesATrace, Refused::Denied(_), Some(_)) => {
                let name = format!("undone-{}", self.turn);
                let uid = uuid::Uuid::from_u128((1 << 100) + u128::from(self.turn)).to_string();
                let metadata = json!({"name": name, "namespace": &*key.namespace, "uid": uid});
                let key = ObjectKey::new(GroupResource::core("secrets"), &key.namespace, &name);
                self.create(key, now_ms, json!({"metadata": metadata}));
            }
            _ => {}
        }
        answer
    }

    fn hold(&mut self, mutation: Mutation, mut hold: Hold) -> Answer {
        if mutation == Mutation::ForgetsTheExpiry {
            hold.expires_at_ms = i64::MAX / 2;
        }
        let twin = with_uid(&hold.draft.tree(), (1 << 99) + u128::from(self.turn));
        if mutation == Mutation::DoublesAHold
            && let Ok(draft) = Draft::new(twin)
        {
            let Hold { key, expires_at_ms, dry_run, now_ms, .. } = &hold;
            let (foresight, origin) = (rules::cel::Foresight::None, Origin::default());
            let (key, expires_at_ms, dry_run, now_ms) = (key.clone(), *expires_at_ms, *dry_run, *now_ms);
            let twin = Hold { key, draft, expires_at_ms, dry_run, now_ms, foresight, origin };
            self.ask(Command::Hold(Box::new(twin)));
        }
        self.ask(Command::Hold(Box::new(hold)))
    }

    pub(super) fn ask(&mut self, command: Command) -> Answer {
        self.engine.step(command, self.batch, self.publication)
    }

    /// Tells the time, and nothing else.
    pub(super) fn tell_time(&mut self, now_ms: i64) {
        if let Ok(command) = nothing(now_ms).command(&mut 0) {
            self.ask(command);
        }
    }

    fn write(&mut self, key: ObjectKey, now_ms: i64, kind: WriteKind) {
        let foresight = rules::cel::Foresight::None;
        self.ask(Command::Write(Box::new(Write {
            key,
            kind,
            dry_run: false,
            now_ms,
            foresight,
            origin: Origin::default(),
        })));
    }

    fn create(&mut self, key: ObjectKey, now_ms: i64, value: Value) {
        if let Ok(draft) = Draft::new(value) {
            self.write(key, now_ms, WriteKind::Create(draft));
        }
    }

    /// A status is never refused. A pod that has ended takes nothing, until a status says that it has not.
    fn write_all_the_same(&mut self, key: ObjectKey, now_ms: i64, mut value: Value) {
        let phase = value["status"]["phase"].take();
        value["status"]["phase"] = json!("Succeeded");
        self.create(key.clone(), now_ms, value.clone());
        value["status"]["phase"] = phase;
        if let Ok(draft) = Draft::new(value) {
            self.write(key, now_ms, WriteKind::Update { draft, expect: Expect::default(), status: true });
        }
    }

    /// Turns an update into a deletion and a creation.
    fn let_go(&mut self, write: &mut Write) {
        let WriteKind::Update { draft, expect, .. } = &write.kind else { return };
        if &*write.key.resource.resource != "tickets" || *expect != Expect::default() {
            return;
        }
        let Ok(again) = Draft::new(draft.value.clone()) else { return };
        let gone = WriteKind::Delete { expect: Expect::default(), last: None };
        let foresight = rules::cel::Foresight::None;
        let (key, now_ms) = (write.key.clone(), write.now_ms);
        let gone = Write { key, kind: gone, dry_run: false, now_ms, foresight, origin: Origin::default() };
        if matches!(self.ask(Command::Write(Box::new(gone))), Answer::Written(Ok(_))) {
            write.kind = WriteKind::Create(again);
        }
    }
}

/// The object that a write is about to store.
fn wanted(write: &Write) -> Option<Value> {
    match &write.kind {
        WriteKind::Create(draft) | WriteKind::Update { draft, .. } => Some(draft.value.clone()),
        WriteKind::Delete { .. } => None,
    }
}
