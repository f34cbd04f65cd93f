//! The engine in memory with the tiers that are built in, and commands carried out on it as the server does.

use std::collections::BTreeMap;
use std::sync::Arc;

use engine::desk::Desk;
use engine::{Draft, Expect, ObjectKey, Refused, Write, WriteKind, Writes};
use families::orgs::commands::{
    Actor, Around, Asking, Given, Op, Outcome, Problem, Rebuilt, StepKind, Told, is_rebuilt, rebuild, run, state,
};
use families::orgs::names::{KINDS, ORGS, TIERS, VOLUMES};
use families::orgs::words::violations;
use families::orgs::{guard, tiers};
use families::{Balances, Families, Identity, Origin, Plural, Settings, World};
use rules::cel::Foresight;
use rules::policy_name;
use serde_json::{Value, json};

/// The names in a request's path.
type Path<'a> = &'a [(&'static str, &'a str)];

pub struct Platform {
    pub desk: Option<Desk>,
    families: Families,
    pub now_ms: i64,
    ids: u128,
    pub events: Vec<Value>,
}

pub fn service() -> Origin {
    Origin { identity: Arc::new(Identity::authenticated(guard::SERVICE, ["system:masters"])), request: 0 }
}

impl Platform {
    pub fn new() -> Platform {
        Platform::with(&Settings::default())
    }

    pub fn with(settings: &Settings) -> Platform {
        let families = families::all(settings);
        let desk = Desk::new(families.clone());
        let mut platform =
            Platform { desk: Some(desk), families, now_ms: 1_800_000_000_000, ids: 0, events: Vec::new() };
        for (name, spec) in tiers::built_in() {
            platform.set_tier(&name, spec);
        }
        platform
    }

    pub fn desk(&mut self) -> &mut Desk {
        self.desk.as_mut().expect("it is there between two restarts")
    }

    pub fn reading(&self) -> &Desk {
        self.desk.as_ref().expect("it is there between two restarts")
    }

    pub fn restart(&mut self) {
        let desk = self.desk.take().expect("it is there");
        self.desk = Some(desk.again());
        self.settle();
    }

    /// Writes a tier as an operator, or a reloaded file, does.
    pub fn set_tier(&mut self, name: &str, spec: Value) {
        self.put_tier(name, spec);
        self.settle();
    }

    /// The same, and nothing that follows it later.
    pub fn put_tier(&mut self, name: &str, spec: Value) {
        self.ids += 1;
        let key = ObjectKey::new(TIERS.resource(), "", name);
        let old = self.reading().get(&key).map(|stored| stored.value());
        let uid = json!(kinds::uid::text(ledger::SubjectId(self.ids)));
        let uid = old.as_ref().map_or(uid, |old| old["metadata"]["uid"].clone());
        let object = json!({
            "apiVersion": "orgs.bursar.dev/v1", "kind": "Tier", "metadata": {"name": name, "uid": uid}, "spec": spec,
        });
        let draft = Draft::new(object).unwrap();
        let kind = match old {
            None => WriteKind::Create(draft),
            Some(_) => WriteKind::Update { draft, expect: Expect::default(), status: false },
        };
        let (now_ms, foresight, origin) = (self.now_ms, Foresight::None, Origin::internal("test"));
        self.desk().write(Write { key, kind, dry_run: false, now_ms, foresight, origin }).unwrap();
    }

    /// A plain write past the commands.
    pub fn write(&mut self, key: ObjectKey, kind: WriteKind, origin: Origin) -> Result<(), Refused> {
        let (now_ms, foresight) = (self.now_ms, Foresight::None);
        let written = self.desk().write(Write { key, kind, dry_run: false, now_ms, foresight, origin });
        self.settle();
        written.map(drop)
    }

    /// Lets time go by.
    pub fn pass(&mut self, ms: i64) {
        self.now_ms += ms;
        let now_ms = self.now_ms;
        self.desk().write_all(Writes { writes: Vec::new(), dry_run: false, now_ms, origin: service() }).unwrap();
        self.settle();
    }

    fn settle(&mut self) {
        let now_ms = self.now_ms;
        assert!((0..8).any(|_| self.desk().publish(now_ms) == 0), "every status comes to rest");
        let report = self.desk().engine.snapshot().audit();
        assert_eq!((report.differences, report.missing, report.broken), (vec![], 0, vec![]));
    }

    /// Carries out a command: all of it in one step, or nothing.
    pub fn run(&mut self, org: &str, op: Op, path: &[(&'static str, &str)], body: Value) -> Result<Outcome, Problem> {
        let mut surges_max = usize::MAX;
        let mut no_surge_for = Vec::new();
        loop {
            let outcome = self.decide(org, op, path, &body, surges_max, &no_surge_for)?;
            for told in &outcome.events {
                assert_eq!(String::from_utf8_lossy(&told.line), told.read().to_string(), "fields are in their order");
            }
            match self.carry_out(&outcome) {
                Ok(()) => {
                    self.events.extend(outcome.events.iter().map(Told::read));
                    if !outcome.goes_on {
                        return Ok(outcome);
                    }
                }
                Err(Refused::Denied(denials)) => {
                    let violations = violations(&denials);
                    assert!(!violations.is_empty(), "{denials:?}");
                    if outcome.surges == 0 || outcome.surges_or_nothing {
                        return Err(Problem::quota(violations));
                    }
                    (surges_max, no_surge_for) = (outcome.surges - 1, violations);
                }
                Err(Refused::Said { refusal, .. }) => return Err(Problem::of(refusal)),
                Err(other) => panic!("{op:?}: {other:?}"),
            }
        }
    }

    fn decide(
        &mut self,
        org: &str,
        op: Op,
        path: &[(&'static str, &str)],
        body: &Value,
        surges_max: usize,
        no_surge_for: &[families::orgs::words::Violation],
    ) -> Result<Outcome, Problem> {
        let actor = Actor { kind: "user", id: "tester".into() };
        let given = Given { path: path.iter().map(|(name, value)| (*name, (*value).to_owned())).collect(), body };
        let mut next = self.ids;
        let mut ids = || {
            next += 1;
            // Neither in one direction nor close together.
            next.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835)
        };
        let desk = self.reading();
        let view = desk.engine.view(self.now_ms);
        let around = Around {
            world: &view,
            balances: desk,
            now_ms: self.now_ms,
            ids: &mut ids,
            surges_max,
            no_surge_for: no_surge_for.to_vec(),
            journals_from: [self.events.len() as u64, 0],
        };
        let mut asking =
            Asking { org, actor: &actor, request_id: "test", idempotency_key: None, expected_version: None, around };
        let outcome = run(op, &given, &mut asking);
        self.ids = next;
        outcome
    }

    fn carry_out(&mut self, outcome: &Outcome) -> Result<(), Refused> {
        let before = self.reading().revision();
        let written = self.write_steps(outcome);
        if written.is_err() {
            assert_eq!(self.reading().revision(), before, "a refusal changes nothing");
        }
        self.settle();
        written
    }

    /// What two who read the same state come to, one after the other, the first first; without an audit, for many times.
    pub fn race(&mut self, org: &str, op: Op, two: [(&[(&'static str, &str)], Value); 2]) -> [Result<(), Refused>; 2] {
        self.race_of(org, two.map(|(path, body)| (op, path, body)))
    }

    /// The same, of two commands that are not alike.
    pub fn race_of(&mut self, org: &str, two: [(Op, Path<'_>, Value); 2]) -> [Result<(), Refused>; 2] {
        let decided = two.map(|(op, path, body)| self.decide(org, op, path, &body, usize::MAX, &[]));
        decided.map(|outcome| self.write_steps(&outcome.expect("a command")))
    }

    /// What a command comes to on the state as it is, and nothing of it done.
    pub fn decided(&mut self, org: &str, op: Op, path: Path<'_>, body: &Value) -> Outcome {
        self.decide(org, op, path, body, usize::MAX, &[]).expect("a command")
    }

    pub fn write_steps(&mut self, outcome: &Outcome) -> Result<(), Refused> {
        let mut writes = Vec::new();
        for step in &outcome.steps {
            let key = ObjectKey::from(step.place.clone());
            let expect = |revision| Expect { revision, uid: None };
            writes.push((
                key,
                match step.kind {
                    StepKind::Create => WriteKind::Create(Draft::new(step.object.clone()).unwrap()),
                    StepKind::Update(revision) => {
                        let draft = Draft::new(step.object.clone()).unwrap();
                        WriteKind::Update { draft, expect: expect(Some(revision)), status: false }
                    }
                    StepKind::UpdateAny => {
                        let draft = Draft::new(step.object.clone()).unwrap();
                        WriteKind::Update { draft, expect: expect(None), status: false }
                    }
                    StepKind::Delete(revision) => WriteKind::Delete { expect: expect(Some(revision)), last: None },
                    StepKind::DeleteAny => WriteKind::Delete { expect: expect(None), last: None },
                },
            ));
        }
        let now_ms = self.now_ms;
        let written = self.desk().write_all(Writes { writes, dry_run: false, now_ms, origin: service() });
        written.map(drop).map_err(|(_, refused)| refused)
    }

    /// How an organization stands on an account.
    pub fn used(&self, org: &str, account: &str) -> i128 {
        let lines = self.reading().of(&policy_name(&ORGS.resource(), org, org));
        lines.iter().find(|line| &*line.resource == account).map_or(-1, |line| line.balance.used.nanos())
    }

    /// In whole units.
    pub fn units(&self, org: &str, account: &str) -> i128 {
        self.used(org, account) / 1_000_000_000
    }

    pub fn snapshots(&self, org: &str, volume: &str) -> i128 {
        let lines = self.reading().of(&policy_name(&VOLUMES.resource(), org, volume));
        lines.first().map_or(-1, |line| line.balance.used.nanos() / 1_000_000_000)
    }

    pub fn list(&self, plural: Plural, org: &str) -> Vec<Value> {
        self.reading().within(&plural.resource(), org).map(|object| object.value()).collect()
    }

    pub fn get(&self, plural: Plural, org: &str, name: &str) -> Option<Arc<Value>> {
        self.reading().engine.view(self.now_ms).get(&plural.resource(), org, name)
    }

    /// The views as they are stored.
    pub fn live(&self) -> BTreeMap<(String, String, String), Value> {
        let mut views = BTreeMap::new();
        for (kind, plural) in KINDS.iter().filter(|(_, plural)| is_rebuilt(*plural)) {
            for object in self.reading().list(&plural.resource()) {
                let value = object.value();
                let of = snake(kind);
                views.insert((of, object.key.namespace.to_string(), object.key.name.to_string()), state(&value));
            }
        }
        views
    }

    pub fn rebuilt(&self) -> Rebuilt {
        rebuild(&self.events)
    }

    /// A ready organization: an app with one environment that runs `replicas` of a small release on one node.
    pub fn with_org(&mut self, org: &str, tier: &str) {
        self.run(org, Op::CreateOrg, &[], json!({"id": org, "tier": tier})).unwrap();
    }

    pub fn limit(&mut self, org: &str, dimension: &'static str, limit: impl Into<Value>) {
        let body = json!({"limit": limit.into(), "reason": "a test"});
        self.run(org, Op::SetQuota, &[("dimension", dimension)], body).unwrap();
    }

    pub fn families(&self) -> &Families {
        &self.families
    }
}

fn snake(kind: &str) -> String {
    let mut word = String::new();
    for (place, c) in kind.chars().enumerate() {
        if c.is_ascii_uppercase() && place > 0 {
            word.push('_');
        }
        word.push(c.to_ascii_lowercase());
    }
    word
}
