//! What is measured by expressions is counted before the write, however little it is, and those that take long on no thread that
//! others wait for; only the policies that change are asked.

use rules::cel::evaluations;

use super::foresight::{LONG, Weights, elsewhere};
use super::*;

/// What a sender went through that goes on with its write until it is decided.
pub(super) struct Course {
    pub written: Result<Written, Refused>,
    /// Expressions evaluated on the thread that decides: in steps of the write, and at the most in one slice.
    pub in_steps: u64,
    in_a_slice: u64,
    pub slices: usize,
    /// Objects that expressions were wanted of.
    wanted: usize,
}

/// The same as a request does it.
pub(super) fn at_length(
    bench: &mut Bench,
    key: ObjectKey,
    kind: WriteKind,
    mut between: impl FnMut(&mut Bench, usize),
) -> Course {
    let (mut kind, mut foresight, mut begin) = (kind, Foresight::Asked, false);
    let (mut in_steps, mut in_a_slice, mut slices, mut wanted) = (0, 0, 0, 0);
    loop {
        let before = evaluations();
        let write = Write { key: key.clone(), kind, dry_run: false, now_ms: 0, foresight, origin: Origin::default() };
        let answer = if begin { bench.desk.stage(write) } else { bench.desk.try_write(write) };
        in_steps += evaluations() - before;
        let postponed = match answer {
            Ok(written) => return Course { written, in_steps, in_a_slice, slices, wanted },
            Err(postponed) => postponed,
        };
        let Some(recount) = postponed.recount else {
            let known;
            (kind, known) = elsewhere(postponed);
            foresight = Foresight::Known(known);
            continue;
        };
        (kind, foresight, begin) = (postponed.kind, Foresight::Asked, true);
        let Recount::Begun(ticket) = recount else { continue };
        let mut found = Vec::new();
        loop {
            between(bench, slices);
            slices += 1;
            assert!(slices < 200, "there is no end to it");
            let before = evaluations();
            let counted = bench.desk.count_on(ticket, found, 0);
            in_a_slice = in_a_slice.max(evaluations() - before);
            if counted.is_last != Some(false) {
                break;
            }
            wanted += counted.wanted.len();
            let evaluate = move || counted.wanted.into_iter().map(Wanted::evaluate).collect();
            found = std::thread::spawn(evaluate).join().unwrap();
        }
    }
}

fn cap_at_length(bench: &mut Bench, name: &str, spec: Value, between: impl FnMut(&mut Bench, usize)) -> Course {
    let draft = bench.draft("a", name, json!({"spec": spec}));
    at_length(bench, cap_key(name), WriteKind::Create(draft), between)
}

fn change_at_length(
    bench: &mut Bench,
    key: &ObjectKey,
    change: impl FnOnce(&mut Value),
    between: impl FnMut(&mut Bench, usize),
) -> Course {
    let mut value = bench.desk.get(key).unwrap().value();
    change(&mut value);
    let kind = WriteKind::Update { draft: Draft::new(value).unwrap(), expect: Expect::default(), status: false };
    at_length(bench, key.clone(), kind, between)
}

fn weighed(namespace: &str, count: usize) -> Bench {
    let mut bench = Bench::with(Families::new(vec![Arc::new(Weights)]));
    if namespace != "a" {
        bench.create("", "namespaces", "", namespace, json!({})).unwrap();
    }
    for name in 0..count {
        weigh(&mut bench, namespace, &format!("m{name}"));
    }
    bench
}

/// A config map on which the long expression takes more than there is for a slice.
fn weigh(bench: &mut Bench, namespace: &str, name: &str) {
    bench.create("", "configmaps", namespace, name, json!({"spec": vec![1; 120]})).unwrap();
}

fn map_key(name: &str) -> ObjectKey {
    ObjectKey::new(GroupResource::core("configmaps"), "a", name)
}

#[test]
fn long_expressions_of_a_policy_are_evaluated_by_its_sender() {
    let mut bench = weighed("a", 5);
    let course = cap_at_length(&mut bench, "long", json!({"cel": LONG}), |bench, _| bench.audit());
    course.written.unwrap();
    assert_eq!((course.in_steps, course.in_a_slice, course.wanted), (0, 0, 5));
    assert_eq!(bench.used("long").as_deref(), Some("35"));
    bench.audit();
    let edit = |cap: &mut Value| cap["spec"]["cel"] = LONG.replace('7', "9").into();
    let course = change_at_length(&mut bench, &cap_key("long"), edit, |bench, _| {
        assert_eq!(bench.used("long").as_deref(), Some("35"), "as before until then");
    });
    course.written.unwrap();
    assert_eq!((course.in_steps, course.in_a_slice, course.wanted), (0, 0, 5));
    assert_eq!(bench.used("long").as_deref(), Some("45"));
    let mut bench = bench.restart();
    assert_eq!(bench.used("long").as_deref(), Some("45"));
    bench.audit();
    // Its limit alone asks nobody, and so does its end.
    let before = evaluations();
    bench.change(&cap_key("long"), |cap| cap["spec"]["limit"] = json!(60)).unwrap();
    bench.write(cap_key("long"), WriteKind::Delete { expect: Expect::default(), last: None }, false).unwrap();
    assert_eq!(evaluations(), before);
    bench.audit();
}

#[test]
fn short_expressions_are_evaluated_in_slices_that_share_a_budget_and_not_in_the_step() {
    let mut bench = weighed("a", 1);
    let one = cap_at_length(&mut bench, "one", json!({"cel": "object.spec.size() - 100"}), |_, _| {});
    one.written.unwrap();
    assert_eq!((one.in_steps, one.in_a_slice, one.wanted), (0, 1, 0));
    assert_eq!(bench.used("one").as_deref(), Some("20"));
    bench.write(cap_key("one"), WriteKind::Delete { expect: Expect::default(), last: None }, false).unwrap();
    for name in 1..120 {
        weigh(&mut bench, "a", &format!("m{name}"));
    }
    let cel = "object.spec.all(a, a + 1 > 0 && a + 2 > 0 && a + 3 > 0 && a + 4 > 0) ? 1 : 2";
    let many = cap_at_length(&mut bench, "many", json!({"cel": cel}), |_, _| {});
    many.written.unwrap();
    assert_eq!(many.in_steps, 0);
    assert!(many.in_a_slice > 5 && many.in_a_slice < 100, "{}", many.in_a_slice);
    assert!(many.wanted > 0, "those that did not fit were asked for");
    assert_eq!(bench.used("many").as_deref(), Some("120"));
    bench.audit();
}

#[test]
fn a_recount_asks_only_the_policies_that_moved() {
    let mut bench = weighed("a", 4);
    bench.cap("other", json!({"cel": LONG})).unwrap();
    for (step, (cel, used)) in [("3", "12"), ("4", "16")].into_iter().enumerate() {
        let before = evaluations();
        match step {
            0 => drop(bench.cap("one", json!({"cel": cel})).unwrap()),
            _ => drop(bench.change(&cap_key("one"), |cap| cap["spec"]["cel"] = cel.into()).unwrap()),
        }
        assert_eq!(evaluations() - before, 4);
        assert_eq!((bench.used("one").as_deref(), bench.used("other").as_deref()), (Some(used), Some("28")));
        bench.audit();
    }
    let namespace = ObjectKey::new(GroupResource::core("namespaces"), "", "a");
    bench.cap("gold", json!({"cel": "5", "tier": "gold"})).unwrap();
    for (tier, asked, used) in [("gold", 4, "20"), ("iron", 0, "0")] {
        let before = evaluations();
        bench.change(&namespace, |a| a["metadata"]["labels"] = json!({"tier": tier})).unwrap();
        assert_eq!((evaluations() - before, bench.used("gold").as_deref()), (asked, Some(used)));
        assert_eq!((bench.used("one").as_deref(), bench.used("other").as_deref()), (Some("16"), Some("28")));
        bench.audit();
    }
}

#[test]
fn a_relabelled_namespace_waits_for_no_expression_either() {
    let mut bench = weighed("b", 3);
    let namespace = ObjectKey::new(GroupResource::core("namespaces"), "", "b");
    let course = cap_at_length(&mut bench, "gold", json!({"cel": LONG, "tier": "gold"}), |_, _| {});
    course.written.unwrap();
    assert_eq!((course.slices, bench.used("gold").as_deref()), (0, Some("0")), "there is nothing to count");
    for (tier, used) in [("gold", "21"), ("iron", "0"), ("gold", "21")] {
        let relabel = |b: &mut Value| b["metadata"]["labels"] = json!({"tier": tier});
        let course = change_at_length(&mut bench, &namespace, relabel, |bench, _| bench.audit());
        course.written.unwrap();
        assert_eq!((course.in_steps, course.in_a_slice), (0, 0), "{tier}");
        assert_eq!(bench.used("gold").as_deref(), Some(used));
        bench.audit();
    }
    bench.restart().audit();
}

#[test]
fn what_is_written_meanwhile_is_counted_once_and_keeps_nobody_from_coming_to_an_end() {
    let mut bench = weighed("a", 6);
    let course = cap_at_length(&mut bench, "long", json!({"cel": LONG}), |bench, slice| {
        bench.audit();
        // What is wanted of it was wanted of another object by the time it is known.
        let of_zeros = |map: &mut Value| map["spec"] = json!(vec![if slice % 2 == 0 { 0 } else { 1 }; 120 + slice]);
        bench.change(&map_key("m3"), of_zeros).unwrap();
        match slice {
            0 => weigh(bench, "a", "a-first"),
            1 => {
                bench.delete("configmaps", "m1").unwrap();
                weigh(bench, "a", "z-last");
            }
            _ => {}
        }
    });
    course.written.unwrap();
    assert_eq!((course.in_steps, course.in_a_slice), (0, 0));
    let weight = |map: &Arc<Object>| if map.value()["spec"][0] == 1 { 7 } else { 8 };
    let used: i32 = bench.desk.list(&GroupResource::core("configmaps")).map(weight).sum();
    assert_eq!(bench.used("long"), Some(used.to_string()));
    bench.audit();
}

#[test]
fn a_start_in_the_middle_begins_anew() {
    let mut bench = weighed("a", 4);
    let mut started = false;
    let course = cap_at_length(&mut bench, "long", json!({"cel": LONG}), |bench, slice| {
        if slice == 1 && !std::mem::replace(&mut started, true) {
            let other = Bench { desk: Desk::new(families()), uids: 0 };
            *bench = std::mem::replace(bench, other).restart();
        }
    });
    course.written.unwrap();
    assert_eq!((course.in_steps, course.in_a_slice), (0, 0));
    assert_eq!(bench.used("long").as_deref(), Some("28"));
    bench.audit();
}

#[test]
fn a_write_that_may_not_ask_is_refused_while_something_is_counted_too() {
    let mut bench = weighed("a", 2);
    let course = cap_at_length(&mut bench, "long", json!({"cel": LONG}), |bench, slice| {
        let draft = bench.draft("a", &format!("x{slice}"), json!({"spec": vec![1; 120]}));
        let foresight = Foresight::Last(Box::default());
        let (key, kind) = (map_key(&format!("x{slice}")), WriteKind::Create(draft));
        let write = Write { key, kind, dry_run: false, now_ms: 0, foresight, origin: Origin::default() };
        let before = evaluations();
        assert!(matches!(bench.desk.write(write), Err(Refused::Said { .. })));
        assert_eq!(evaluations(), before);
    });
    course.written.unwrap();
    assert_eq!(bench.used("long").as_deref(), Some("14"));
    bench.audit();
}

#[test]
fn what_others_count_too_is_counted_in_the_step_and_the_rest_before_it() {
    let mut bench = Bench::with(families::all(&families::Settings::default()));
    bench.desk.engine.count_at_once(2);
    for name in 0..7 {
        bench.map(&format!("m{name}")).unwrap();
    }
    let quotas = GroupResource::core("resourcequotas");
    let hard = |quotas: &str| json!({"hard": {"count/configmaps": "20", "resourcequotas": quotas}});
    let used = |bench: &Bench, quota: &str, resource: &str| {
        let lines = bench.desk.of(&policy_name(&GroupResource::core("resourcequotas"), "a", quota));
        lines.iter().find(|line| &*line.resource == resource).map(|line| line.balance.used.to_string())
    };
    for (name, quotas_before) in [("one", 0), ("two", 1)] {
        let draft = bench.draft("a", name, json!({"spec": hard("5")}));
        let key = ObjectKey::new(quotas.clone(), "a", name);
        let course = at_length(&mut bench, key.clone(), WriteKind::Create(draft), |bench, _| bench.audit());
        course.written.unwrap();
        assert!(course.slices > 2, "{}", course.slices);
        let counted = (used(&bench, name, "count/configmaps"), used(&bench, name, "resourcequotas"));
        assert_eq!(counted, (Some("7".into()), Some((quotas_before + 1).to_string())));
        bench.audit();
    }
    // What a quota no longer lists is let go of, and what it still lists is counted as before.
    let key = ObjectKey::new(quotas.clone(), "a", "one");
    let edit = |quota: &mut Value| quota["spec"] = json!({"hard": {"resourcequotas": "5", "configmaps": "20"}});
    let course = change_at_length(&mut bench, &key, edit, |bench, _| bench.audit());
    course.written.unwrap();
    assert!(course.slices > 2, "{}", course.slices);
    let counted = ["count/configmaps", "configmaps", "resourcequotas"].map(|resource| used(&bench, "one", resource));
    assert_eq!(counted, [None, Some("7".into()), Some("2".into())]);
    bench.audit();
    bench.restart().audit();
}
