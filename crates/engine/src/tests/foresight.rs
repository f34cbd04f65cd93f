//! Expressions that take long are not worked out on the thread that decides.

use kinds::field_error::FieldError;
use rules::cel::{Program, evaluations};

use super::*;

/// Charges what an expression gives.
struct Weight(Program);
pub(super) struct Weights;

impl Measure for Weight {
    fn measure(&self, subject: &Subject<'_>, out: &mut Verdict) -> Result<(), MeasureError> {
        match self.0.eval_quantities(&[("object", subject.object)]) {
            Ok(found) => found.iter().for_each(|one| out.charge(0, one.amount(), one.format())),
            Err(why) => out.refuse(why.to_string()),
        }
        Ok(())
    }

    fn evaluates(&self) -> bool {
        true
    }
}

impl Family for Weights {
    fn manifest(&self) -> &Manifest {
        &Manifest { name: "weights", policies: &[Plural("example.com", "caps")], ..Manifest::EMPTY }
    }

    fn compile(&self, policy: &PolicyObject<'_>, _: &dyn World) -> Result<Compiled, Uncompiled> {
        let text = policy.object["spec"]["cel"].as_str().unwrap_or_default();
        let program = Program::compile(text, &["object"]).map_err(|why| Uncompiled {
            errors: vec![FieldError::invalid("spec.cel", text, why.to_string())],
            would_look_at: vec![(GroupResource::core("configmaps"), Reach::Namespace(policy.namespace.into()))],
        })?;
        let selected = policy.object["spec"]["tier"].as_str().map(str::to_owned);
        let fingerprint = format!("{text}\0{selected:?}").into_bytes();
        let reach = match selected {
            None => Reach::Namespace(policy.namespace.into()),
            Some(tier) => Reach::Selected(Arc::new(move |namespace| namespace.labels.get("tier") == Some(&tier))),
        };
        let limit = policy.object["spec"]["limit"].as_i64().unwrap_or(100);
        Ok(Compiled {
            accounts: vec![Account {
                resource: "weight".into(),
                limit: Limit::Enforced(Amount::from_units(limit)),
                limit_text: "100".into(),
                discounts: false,
            }],
            rules: vec![Rule {
                resources: vec![GroupResource::core("configmaps")],
                reach,
                measure: Arc::new(Weight(program)),
            }],
            fingerprint,
            until_ms: None,
        })
    }

    fn project(&self, _: &GroupResource, _: &mut Value, _: &dyn Balances) -> Projected {
        Projected::Unchanged
    }

    fn words(&self, denial: &Denial) -> Words {
        format!("over the weight {}", denial.name).into()
    }
}

pub(super) const LONG: &str = "object.spec.all(a, object.spec.all(b, a + b > 0)) ? 7 : 8";

type Answer = Result<Result<Written, Refused>, Box<Postponed>>;

struct Sender {
    bench: Bench,
    /// How many expressions were evaluated in the last step.
    evaluated: u64,
}

impl Sender {
    fn new() -> Self {
        let mut bench = Bench::with(Families::new(vec![Arc::new(Weights)]));
        bench.cap("long", json!({"cel": LONG})).unwrap();
        Sender { bench, evaluated: 0 }
    }

    fn submit(&mut self, kind: WriteKind, dry_run: bool, foresight: Foresight) -> Answer {
        let key = ObjectKey::new(GroupResource::core("configmaps"), "a", "x");
        let before = evaluations();
        let answer =
            self.bench.desk.try_write(Write { key, kind, dry_run, now_ms: 0, foresight, origin: Origin::default() });
        self.evaluated = evaluations() - before;
        answer
    }

    fn create(&mut self, foresight: Foresight) -> Answer {
        let draft = self.bench.draft("a", "x", json!({"spec": vec![1; 300]}));
        self.submit(WriteKind::Create(draft), false, foresight)
    }
}

/// As a request does it: on a thread of its own.
pub(super) fn elsewhere(postponed: Box<Postponed>) -> (WriteKind, Box<rules::cel::Known>) {
    let (kind, known) = std::thread::spawn(move || postponed.evaluate()).join().unwrap();
    (kind, Box::new(known))
}

#[test]
fn a_long_expression_is_evaluated_before_the_decision() {
    let mut sender = Sender::new();
    let Err(postponed) = sender.create(Foresight::Asked) else { panic!("not put off") };
    assert_eq!(sender.evaluated, 0);
    assert_eq!(sender.bench.used("long").as_deref(), Some("0"), "nothing has changed");
    let (kind, known) = elsewhere(postponed);
    sender.submit(kind, false, Foresight::Known(known)).unwrap().unwrap();
    assert_eq!(sender.evaluated, 0);
    assert_eq!(sender.bench.used("long").as_deref(), Some("7"));
    sender.bench.audit();
}

#[test]
fn what_is_known_counts_for_the_same_object_and_expression_only() {
    let mut sender = Sender::new();
    let Err(postponed) = sender.create(Foresight::Asked) else { panic!("not put off") };
    let (kind, known) = elsewhere(postponed);
    sender.bench.change(&cap_key("long"), |cap| cap["spec"]["cel"] = LONG.replace('7', "9").into()).unwrap();
    let Err(postponed) = sender.submit(kind, false, Foresight::Known(known)) else { panic!("not asked") };
    assert_eq!(sender.evaluated, 0);
    let (kind, known) = elsewhere(postponed);
    let WriteKind::Create(mut draft) = kind else { panic!("a create") };
    draft.value["data"] = json!({"other": "1"});
    let Err(postponed) = sender.submit(WriteKind::Create(draft), false, Foresight::Known(known)) else {
        panic!("another object was taken for the same");
    };
    let (kind, known) = elsewhere(postponed);
    sender.submit(kind, false, Foresight::Known(known)).unwrap().unwrap();
    assert_eq!(sender.bench.used("long").as_deref(), Some("9"));
    sender.bench.audit();
}

#[test]
fn short_expressions_share_the_time_there_is() {
    let mut sender = Sender::new();
    sender.bench.change(&cap_key("long"), |cap| cap["spec"]["cel"] = "object.spec.size()".into()).unwrap();
    let Ok(Err(Refused::Denied(_))) = sender.create(Foresight::Asked) else { panic!("300 is over 100") };
    assert_eq!(sender.evaluated, 1);
    // Each is short, but a hundred of them are not: those that do not fit any more are asked for.
    for i in 0..100 {
        let cel = format!("object.spec.all(a, a != {i}) ? 0 : 1");
        sender.bench.cap(&format!("c{i}"), json!({"cel": cel})).unwrap();
    }
    let Err(postponed) = sender.create(Foresight::Asked) else { panic!("not put off") };
    assert!(sender.evaluated > 1 && sender.evaluated < 50, "{}", sender.evaluated);
    assert_eq!(sender.evaluated + postponed.wanted.len() as u64, 101);
}

#[test]
fn a_write_that_may_not_ask_again_is_refused() {
    let mut sender = Sender::new();
    let nothing = Box::new(rules::cel::Known::evaluate(Vec::new(), &Value::Null));
    let Ok(Err(Refused::Said { refusal, .. })) = sender.create(Foresight::Last(nothing)) else {
        panic!("not refused");
    };
    assert!(refusal.message.contains("try again"), "{}", refusal.message);
    assert_eq!(sender.evaluated, 0);
}

#[test]
fn of_several_writes_nobody_waits_for_expressions_either() {
    let mut sender = Sender::new();
    let short = sender.bench.draft("a", "x", json!({"spec": [1]}));
    sender.submit(WriteKind::Create(short), false, Foresight::Asked).unwrap().unwrap();
    let map = |name: &str| ObjectKey::new(GroupResource::core("configmaps"), "a", name);
    let bench = &mut sender.bench;
    let long = |bench: &mut Bench, name: &str| WriteKind::Create(bench.draft("a", name, json!({"spec": vec![1; 300]})));
    let (first, second) = (long(bench, "first"), long(bench, "second"));
    let gone = WriteKind::Delete { expect: Expect::default(), last: None };
    let writes = vec![(map("first"), first), (map("x"), gone), (map("second"), second)];
    let writes = Writes { writes, dry_run: false, now_ms: 0, origin: Origin::default() };
    let (evaluated, before) = (evaluations(), bench.traces());
    let Err(put_off) = bench.desk.try_write_all(writes, Foreseen::default()) else { panic!("not put off") };
    let PostponedAll { writes, wanted } = *put_off;
    assert_eq!((writes.writes.len(), wanted.len(), evaluations() - evaluated), (3, 2, 0));
    assert_eq!(bench.traces(), before, "nothing tells that anybody asked");
    // What is known of one of them is known of no other.
    let found = |wanted: Vec<Wanted>| {
        let evaluate = move || wanted.into_iter().map(Wanted::evaluate).collect::<Vec<_>>();
        std::thread::spawn(evaluate).join().unwrap()
    };
    let mut known = found(wanted);
    let later = known.split_off(1);
    let Err(put_off) = bench.desk.try_write_all(writes, Foreseen { found: known, is_last: false }) else {
        panic!("not put off");
    };
    let PostponedAll { writes, wanted } = *put_off;
    assert_eq!(wanted.len(), 1);
    let both = later.into_iter().chain(found(wanted)).collect();
    let Err(put_off) = bench.desk.try_write_all(writes, Foreseen { found: both, is_last: false }) else {
        panic!("the first is not known any more");
    };
    let PostponedAll { writes, wanted } = *put_off;
    let foreseen = Foreseen { found: found(wanted), is_last: true };
    let Ok(Err((2, Refused::Said { refusal, .. }))) = bench.desk.try_write_all(writes, foreseen) else {
        panic!("nobody asks again, and of the second nothing was told");
    };
    assert!(refusal.message.contains("try again"), "{}", refusal.message);
    // Once all is known they are decided.
    let (first, second) = (long(bench, "first"), long(bench, "second"));
    let writes = vec![(map("first"), first), (map("second"), second)];
    let writes = Writes { writes, dry_run: false, now_ms: 0, origin: Origin::default() };
    let Err(put_off) = bench.desk.try_write_all(writes, Foreseen::default()) else { panic!("not put off") };
    let PostponedAll { writes, wanted } = *put_off;
    let foreseen = Foreseen { found: found(wanted), is_last: true };
    assert_eq!(bench.desk.try_write_all(writes, foreseen).unwrap().unwrap().len(), 2);
    assert_eq!((evaluations() - evaluated, bench.used("long").as_deref()), (0, Some("21")));
    bench.audit();
}

/// Many expressions that are short one by one take long together: what is more than there is time for in a step is asked for.
#[test]
fn writes_share_what_expressions_may_take_in_their_step() {
    const WRITES: usize = 60;
    let mut sender = Sender::new();
    let bench = &mut sender.bench;
    let write = |bench: &mut Bench, number: usize| {
        let name = format!("m{number}");
        let draft = bench.draft("a", &name, json!({"spec": vec![0; 15]}));
        (ObjectKey::new(GroupResource::core("configmaps"), "a", &name), WriteKind::Create(draft))
    };
    let writes: Vec<_> = (0..WRITES).map(|number| write(bench, number)).collect();
    let writes = Writes { writes, dry_run: false, now_ms: 0, origin: Origin::default() };
    let before = evaluations();
    let Err(put_off) = bench.desk.try_write_all(writes, Foreseen::default()) else { panic!("not put off") };
    let PostponedAll { writes, wanted } = *put_off;
    let here = evaluations() - before;
    assert!((1..WRITES).contains(&wanted.len()) && here + wanted.len() as u64 == WRITES as u64, "{here} evaluated");
    // What was asked for is enough.
    let evaluate = move || wanted.into_iter().map(Wanted::evaluate).collect::<Vec<_>>();
    let found = std::thread::spawn(evaluate).join().unwrap();
    let written = bench.desk.try_write_all(writes, Foreseen { found, is_last: true }).unwrap();
    assert!(matches!(written, Err((_, Refused::Denied(_)))), "60 of 8 are more than 100");
    let few = (0..12).map(|number| write(bench, number)).collect();
    let few = Writes { writes: few, dry_run: false, now_ms: 0, origin: Origin::default() };
    assert_eq!(bench.desk.try_write_all(few, Foreseen::default()).unwrap().unwrap().len(), 12);
    assert_eq!(bench.used("long").as_deref(), Some("96"));
    bench.audit();
}
