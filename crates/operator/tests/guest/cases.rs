//! One case after the other: what decides a hold, and what does not.

use super::*;

#[test]
fn what_is_granted_is_held_until_it_is_seen_and_nobody_else_has_it_meanwhile() {
    let mut bench = Bench::with_limit(5);
    assert!(bench.is_granted(&map("x"), 10, 0, amount(3)));
    assert_eq!(bench.sums(), (0, 3));
    assert!(!bench.is_granted(&map("y"), 11, 0, amount(3)));
    assert!(bench.is_granted(&map("y"), 11, 0, amount(2)));
    bench.audit();
    bench.see(vec![seen(&map("x"), 10, 5, amount(3))]);
    assert_eq!(bench.sums(), (3, 2));
    bench.see(vec![seen(&map("y"), 11, 6, amount(2)), gone(&map("x"), 10, 7)]);
    assert_eq!(bench.sums(), (2, 0));
    bench.audit();
    assert!(bench.core.engine.holds().is_empty());
}

#[test]
fn what_never_comes_is_given_up_once_it_was_missed_twice() {
    let mut bench = Bench::with_limit(5);
    bench.is_granted(&map("x"), 10, 0, amount(3));
    let overdue = bench.overdue();
    assert_eq!(overdue.len(), 1);
    bench.found(overdue[0].clone(), None);
    assert_eq!(bench.sums(), (0, 3), "whoever stood still may go on");
    let overdue = bench.overdue();
    // Somebody else has the name: it was there already.
    bench.found(overdue[0].clone(), Some((99, 4)));
    assert_eq!(bench.sums(), (0, 0));
    bench.audit();
    // A grant that came meanwhile is another one.
    bench.is_granted(&map("y"), 11, 0, amount(3));
    let overdue = bench.overdue();
    bench.found(overdue[0].clone(), None);
    bench.is_granted(&map("y"), 11, 0, amount(4));
    bench.found(overdue[0].clone(), None);
    assert_eq!(bench.sums(), (0, 4));
    bench.audit();
}

#[test]
fn what_is_there_and_not_seen_yet_waits_for_its_sight() {
    let mut bench = Bench::with_limit(5);
    bench.is_granted(&map("x"), 10, 0, amount(3));
    for _ in 0..3 {
        let overdue = bench.overdue();
        bench.found(overdue[0].clone(), Some((10, 5)));
        assert_eq!(bench.sums(), (0, 3));
    }
    bench.see(vec![seen(&map("x"), 10, 5, amount(3))]);
    assert_eq!(bench.sums(), (3, 0));
    // An update that is not stored leaves the version at which it was asked for.
    bench.is_granted(&map("x"), 10, 5, amount(5));
    assert_eq!(bench.sums(), (3, 2));
    let overdue = bench.overdue();
    bench.found(overdue[0].clone(), Some((10, 5)));
    assert_eq!(bench.sums(), (3, 0));
    // One that is gone and was not seen to go is seen to go.
    bench.is_granted(&map("x"), 10, 5, amount(5));
    for _ in 0..3 {
        let overdue = bench.overdue();
        bench.found(overdue[0].clone(), None);
        assert_eq!(bench.sums(), (3, 2));
    }
    bench.see(vec![gone(&map("x"), 10, 6)]);
    assert_eq!(bench.sums(), (0, 0));
    bench.audit();
}

#[test]
fn a_sight_decides_what_rests_on_earlier_versions_and_nothing_else() {
    let mut bench = Bench::with_limit(9);
    bench.is_granted(&map("x"), 10, 0, amount(2));
    bench.see(vec![seen(&map("x"), 10, 5, amount(2))]);
    bench.is_granted(&map("x"), 10, 5, amount(6));
    assert_eq!(bench.sums(), (2, 4));
    bench.see(vec![seen(&map("x"), 10, 5, amount(2))]);
    assert_eq!(bench.sums(), (2, 4), "the state on which it rests says nothing");
    // Somebody else was first.
    bench.see(vec![seen(&map("x"), 10, 6, amount(3))]);
    assert_eq!(bench.sums(), (3, 0));
    bench.audit();
    // An older state that comes late is not believed.
    bench.see(vec![seen(&map("x"), 10, 5, amount(2))]);
    assert_eq!(bench.sums(), (3, 0));
    // What rests on a version that is no more cannot be stored.
    assert!(bench.is_granted(&map("x"), 10, 5, amount(9)));
    assert_eq!(bench.sums(), (3, 0));
    bench.audit();
}

#[test]
fn a_write_on_what_was_not_seen_yet_waits_until_it_is() {
    let mut bench = Bench::with_limit(9);
    bench.is_granted(&map("x"), 10, 0, amount(5));
    bench.see(vec![seen(&map("x"), 10, 5, amount(5))]);
    // It was made smaller, at version 6; what makes it larger again grows, whatever the mirror says.
    assert!(matches!(bench.review(&map("x"), 10, 6, amount(5)), Answer::Behind(_)));
    bench.see(vec![seen(&map("x"), 10, 6, amount(1))]);
    assert!(bench.is_granted(&map("x"), 10, 6, amount(5)));
    assert_eq!(bench.sums(), (1, 4));
    // A namespace that was made a moment ago.
    let elsewhere = ObjectKey::new(GroupResource::core("configmaps"), "new", "x");
    assert!(matches!(bench.review(&elsewhere, 12, 0, amount(1)), Answer::Behind(_)));
    let key = ObjectKey::new(GroupResource::core("namespaces"), "", "new");
    bench.see(vec![seen(&key, 3, 7, json!({}))]);
    assert!(bench.is_granted(&elsewhere, 12, 0, amount(1)));
    bench.audit();
}

#[test]
fn a_start_knows_what_was_held_and_finds_out_what_became_of_it() {
    let mut bench = Bench::with_limit(9);
    for (name, uid, base) in [("stored", 10, 0), ("refused", 11, 0), ("gone", 12, 0), ("larger", 13, 0)] {
        assert!(bench.is_granted(&map(name), uid, base, amount(2)));
    }
    bench.see(vec![seen(&map("gone"), 12, 5, amount(2)), seen(&map("larger"), 13, 6, amount(1))]);
    assert!(bench.is_granted(&map("gone"), 12, 5, amount(3)));
    assert!(bench.is_granted(&map("larger"), 13, 6, amount(2)));
    assert_eq!(bench.sums(), (3, 6));
    let mut bench = bench.restart(
        vec![
            seen(&map("stored"), 10, 7, amount(2)),
            seen(&map("larger"), 13, 6, amount(1)),
            seen(&map("unheard-of"), 14, 9, amount(4)),
        ],
        9,
    );
    // 2 + 1 + 4 are there; 2 may come of one that is not, 3 of one that is gone, and 1 more of another.
    assert_eq!(bench.sums(), (2 + 1 + 4, 2 + 3 + 1));
    bench.audit();
    for _ in 0..2 {
        for one in bench.overdue() {
            let found = (one.uid == SubjectId(13)).then_some((13, 6));
            bench.found(one, found);
        }
    }
    assert_eq!(bench.sums(), (7, 0));
    bench.audit();
    let bench = bench.restart(Vec::new(), 9);
    assert_eq!(bench.sums(), (0, 0));
    bench.audit();
}

#[test]
fn a_list_tells_who_is_gone() {
    let mut bench = Bench::with_limit(9);
    bench.see(vec![seen(&map("x"), 10, 5, amount(2)), seen(&map("y"), 11, 6, amount(3))]);
    bench.relist(&GroupResource::core("configmaps"), vec![seen(&map("y"), 11, 6, amount(3))]);
    assert_eq!(bench.sums(), (3, 0));
    bench.relist(&GroupResource::core("configmaps"), vec![seen(&map("y"), 12, 8, amount(4))]);
    assert_eq!(bench.sums(), (4, 0), "another of that name");
    bench.see(vec![gone(&map("y"), 11, 7)]);
    assert_eq!(bench.sums(), (4, 0), "whoever went before it was another");
    bench.audit();
}

#[test]
fn a_dry_run_is_decided_and_holds_nothing() {
    let mut bench = Bench::with_limit(5);
    assert!(matches!(bench.review_with(&map("x"), 10, 0, amount(5), true), Answer::Granted));
    assert!(matches!(bench.review_with(&map("x"), 10, 0, amount(6), true), Answer::Refused(Refused::Denied(_))));
    assert_eq!(bench.sums(), (0, 0));
    assert!(bench.core.engine.holds().is_empty());
}

#[test]
fn a_scale_is_the_object_with_other_replicas() {
    let key = ObjectKey::new(GroupResource::new("apps", "deployments"), "a", "web");
    let source = json!({"apiVersion": "apps/v1", "kind": "Deployment", "op": "add", "path": ".spec.replicas"});
    let policy = ObjectKey::new(quotas(), "a", "amounts");
    let quota = seen(&policy, 2, 2, json!({"spec": {"limit": "5", "sources": [source]}}));
    let mut bench = Bench::start(SharedMemory::new(), vec![namespace("a", 1, json!({})), quota], 0);
    bench.see(vec![seen(&key, 10, 5, json!({"spec": {"replicas": 2}}))]);
    let mut scale = |replicas: u64| {
        let wanted = Wanted::Replicas { uid: SubjectId(10), version: "v1".into(), replicas: json!(replicas) };
        let (key, origin, foresight) = (key.clone(), Origin::default(), Foresight::Asked);
        let review = Review { key, wanted, base: 5, dry_run: false, now_ms: 0, foresight, origin };
        let answer = bench.ask(Command::Review(Box::new(review)));
        (matches!(answer, Answer::Granted), bench.sums())
    };
    assert_eq!(scale(6), (false, (2, 0)));
    assert_eq!(scale(5), (true, (2, 3)));
}

#[test]
fn the_status_of_a_quota_rests_on_the_version_that_was_seen() {
    let mut bench = Bench::with_limit(5);
    bench.is_granted(&map("x"), 10, 0, amount(3));
    bench.see(vec![seen(&map("x"), 10, 5, amount(3))]);
    bench.publish();
    let push = bench.pushes.pop().expect("a status");
    let shown = push.object.value();
    assert_eq!((push.version, &shown["status"]["usage"]["used"]), (2, &json!("3")));
    bench.pushes.clear();
    // As it was written: there is nothing more to say.
    let mut written = quota(5, 8);
    let mut tree = written.draft.take().unwrap().tree().into_owned();
    tree["status"] = shown["status"].clone();
    written.draft = Some(Draft::new(tree.clone()).unwrap());
    bench.see(vec![written]);
    bench.publish();
    assert_eq!(bench.pushes.len(), 0);
    // Somebody else wrote something there.
    let mut written = quota(5, 9);
    tree["status"]["usage"]["used"] = json!("0");
    written.draft = Some(Draft::new(tree).unwrap());
    bench.see(vec![written]);
    bench.publish();
    let push = bench.pushes.pop().expect("a status");
    assert_eq!((push.version, &push.object.value()["status"]["usage"]["used"]), (9, &json!("3")));
}

#[test]
fn what_cannot_be_seen_is_refused_where_a_quota_counts_it() {
    let mut bench = Bench::with_limit(5);
    let resource = GroupResource::core("configmaps");
    bench.ask(Command::Blind { resource: resource.clone(), why: "forbidden".into() });
    match bench.review(&map("x"), 10, 7, amount(1)) {
        Answer::Refused(Refused::Unmeasurable { message, .. }) => assert!(message.contains("forbidden"), "{message}"),
        other => panic!("{other:?}"),
    }
    let elsewhere = ObjectKey::new(resource.clone(), "b", "x");
    let there = ObjectKey::new(GroupResource::core("namespaces"), "", "b");
    bench.see(vec![seen(&there, 3, 3, json!({}))]);
    assert!(bench.is_granted(&elsewhere, 11, 0, amount(1)), "nobody counts there");
    bench.relist(&resource, Vec::new());
    assert!(bench.is_granted(&map("x"), 10, 0, amount(1)));
}

#[test]
fn expressions_that_take_long_are_evaluated_by_whoever_asks() {
    let sources: Vec<Value> = [1, 2, 3]
        .map(|amount| {
            let cel = format!("lists.range(2000).all(x, x < 10000{amount}) ? {amount} : 9");
            json!({"apiVersion": "v1", "kind": "ConfigMap", "op": "add", "cel": cel})
        })
        .to_vec();
    let policy = ObjectKey::new(quotas(), "a", "amounts");
    let quota = seen(&policy, 2, 2, json!({"spec": {"limit": "11", "sources": sources}}));
    let mut bench = Bench::start(SharedMemory::new(), vec![namespace("a", 1, json!({})), quota], 0);
    for (name, uid, is_granted) in [("x", 10, true), ("y", 11, false)] {
        let (mut asked, mut known) = (0, Box::<rules::cel::Known>::default());
        let mut answer = bench.review(&map(name), uid, 0, amount(1));
        while let Answer::Postponed(postponed) = answer {
            asked += 1;
            assert!(asked < 9 && bench.core.engine.holds().get(SubjectId(uid)).is_none());
            let (draft, found) = Answer::evaluate(*postponed).unwrap();
            known.join(found);
            let (key, wanted, foresight) = (map(name), Wanted::Object(draft), Foresight::Known(known.clone()));
            let origin = Origin::default();
            let review = Review { key, wanted, base: 0, dry_run: false, now_ms: 0, foresight, origin };
            answer = bench.ask(Command::Review(Box::new(review)));
        }
        assert!(asked > 0, "they do take long");
        assert_eq!(matches!(answer, Answer::Granted), is_granted, "{answer:?}");
    }
    assert_eq!(bench.sums(), (0, 6));
    bench.audit();
}

#[test]
fn a_scale_is_written_where_its_version_says_and_seen_where_it_is_converted_to() {
    let definitions = GroupResource::new("apiextensions.k8s.io", "customresourcedefinitions");
    let version = |name: &str, path: &str| json!({"name": name, "subresources": {"scale": {"specReplicasPath": path}}});
    let farm = ObjectKey::new(GroupResource::new("a.b", "farms"), "a", "web");
    let cases = [
        // Nobody converts: a scale writes what its own version says.
        ("None", "v2", 9, false),
        ("None", "v1", 9, true),
        // Whatever was written, it is shown as what is seen here says.
        ("Webhook", "v2", 9, false),
        ("Webhook", "v1", 9, false),
        ("Webhook", "v1", 5, true),
    ];
    for (strategy, written, replicas, is_granted) in cases {
        let spec = json!({"group": "a.b", "scope": "Namespaced", "names": {"plural": "farms", "kind": "Farm"},
            "conversion": {"strategy": strategy}, "versions": [version("v1", ".spec.replicas"), version("v2", ".spec.deep.size")]});
        let key = ObjectKey::new(definitions.clone(), "", "farms.a.b");
        let definition = seen(&key, 3, 3, json!({"spec": spec}));
        let source = json!({"apiVersion": "a.b/v2", "kind": "Farm", "op": "add", "path": ".spec.deep.size"});
        let policy = ObjectKey::new(quotas(), "a", "amounts");
        let quota = seen(&policy, 2, 2, json!({"spec": {"limit": "5", "sources": [source]}}));
        let mut bench = Bench::start(SharedMemory::new(), vec![namespace("a", 1, json!({})), definition, quota], 0);
        // It has nothing yet where its replicas are to be.
        bench.see(vec![seen(&farm, 10, 5, json!({"apiVersion": "a.b/v2", "spec": {}}))]);
        let wanted = Wanted::Replicas { uid: SubjectId(10), version: written.into(), replicas: json!(replicas) };
        let (key, origin, foresight) = (farm.clone(), Origin::default(), Foresight::Asked);
        let review = Review { key, wanted, base: 5, dry_run: false, now_ms: 0, foresight, origin };
        let answer = bench.ask(Command::Review(Box::new(review)));
        assert_eq!(matches!(answer, Answer::Granted), is_granted, "{strategy} {written} {replicas}: {answer:?}");
    }
}

#[test]
fn what_is_held_in_one_namespace_keeps_nobody_elsewhere_from_being_looked_for() {
    let mut bench = Bench::with_limit(5);
    let elsewhere = ObjectKey::new(GroupResource::core("namespaces"), "", "b");
    let policy = ObjectKey::new(quotas(), "b", "amounts");
    let source = json!({"apiVersion": "v1", "kind": "ConfigMap", "op": "count"});
    let many = json!({"spec": {"limit": "100000", "sources": [source]}});
    bench.see(vec![seen(&elsewhere, 4, 3, json!({})), seen(&policy, 5, 4, many)]);
    for uid in 0..2_000 {
        let key = ObjectKey::new(GroupResource::core("configmaps"), "b", &format!("m{uid}"));
        assert!(bench.is_granted(&key, 1_000 + uid, 0, amount(1)));
    }
    bench.is_granted(&map("x"), 10, 0, amount(3));
    let overdue = bench.overdue();
    assert!(overdue.len() < 2_000 && overdue.iter().any(|one| one.key == map("x")), "{}", overdue.len());
    // And everybody has a turn in the end.
    let mut looked: HashSet<SubjectId> = overdue.into_iter().map(|one| one.uid).collect();
    for _ in 0..20 {
        looked.extend(bench.overdue().into_iter().map(|one| one.uid));
    }
    assert_eq!(looked.len(), 2_001);
}

#[test]
fn a_clock_that_is_set_back_keeps_nothing_held() {
    let mut bench = Bench::with_limit(5);
    bench.now_ms = 1_000_000_000;
    bench.is_granted(&map("x"), 10, 0, amount(3));
    bench.now_ms = 1_000;
    assert_eq!(bench.overdue().len(), 1);
    // Nor does that of whoever led before.
    bench.now_ms = 1_000_000_000;
    bench.is_granted(&map("x"), 10, 0, amount(3));
    bench.now_ms = 1_000;
    let mut bench = bench.restart(Vec::new(), 5);
    let began = bench.now_ms;
    assert_eq!(bench.overdue()[0].since_ms, began);
}
