//! ResourceQuota on the real engine: what other quota systems get wrong under races, retries and edits is counted here,
//! and the count is zero.

use families::Denial;
use serde_json::{Value, json};

use super::*;

fn rig() -> Bench {
    Bench::with(families::all(&families::Settings::default()))
}

fn pods() -> GroupResource {
    GroupResource::core("pods")
}

fn pod(cpu: &str) -> Value {
    json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}})
}

impl Bench {
    fn quota(&mut self, name: &str, spec: Value) {
        self.create("", "resourcequotas", "a", name, json!({"spec": spec})).unwrap();
    }

    fn pod(&mut self, name: &str) -> Result<Written, Refused> {
        self.create("", "pods", "a", name, pod("100m"))
    }

    /// What a quota shows now, as readers see it.
    fn shows(&self, quota: &str) -> Value {
        let key = ObjectKey::new(GroupResource::core("resourcequotas"), "a", quota);
        let mut value = self.desk.get(&key).unwrap().value();
        let family = self.desk.engine.families.of_projected(&key.resource).unwrap();
        family.project(&key.resource, &mut value, &self.desk);
        value["status"]["used"].clone()
    }

    fn words(&self, refused: Refused) -> Vec<String> {
        let Refused::Denied(denials) = refused else { panic!("{refused:?}") };
        let say = |denial: &Denial| self.desk.engine.families.of_policy(&denial.resource).unwrap().words(denial).text;
        denials.iter().map(say).collect()
    }
}

fn key(resource: &str, name: &str) -> ObjectKey {
    ObjectKey::new(GroupResource::core(resource), "a", name)
}

#[test]
fn a_name_that_exists_costs_nothing_however_often_it_is_created() {
    let mut bench = rig();
    bench.quota("q", json!({"hard": {"pods": "2", "requests.cpu": "1"}}));
    bench.pod("x").unwrap();
    for _ in 0..50 {
        assert_eq!(bench.pod("x").unwrap_err(), Refused::AlreadyExists);
    }
    assert_eq!(bench.shows("q"), json!({"pods": "1", "requests.cpu": "100m"}));
    bench.audit();
}

#[test]
fn refused_and_dry_runs_leave_no_trace() {
    let mut bench = rig();
    bench.quota("q", json!({"hard": {"pods": "1", "requests.cpu": "1"}}));
    bench.pod("x").unwrap();
    let before = bench.desk.engine.ledger.digest();
    for _ in 0..50 {
        assert!(matches!(bench.pod("y"), Err(Refused::Denied(_))));
        assert!(matches!(bench.create("", "pods", "nowhere", "y", pod("1")), Err(Refused::NamespaceNotFound)));
        let draft = bench.draft("a", "z", pod("100m"));
        assert!(matches!(bench.write(key("pods", "z"), WriteKind::Create(draft), true), Err(Refused::Denied(_))));
    }
    assert_eq!(bench.desk.engine.ledger.digest(), before);
    bench.audit();
}

#[test]
fn a_storm_of_creates_and_deletes_never_shows_more_than_the_limit() {
    let mut bench = rig();
    bench.quota("q", json!({"hard": {"pods": "5"}}));
    let (mut live, mut most, mut seed) = (0, 0, 7u32);
    for _ in 0..2_000 {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let name = format!("p{}", (seed >> 16) % 9);
        if (seed >> 8) % 5 < 2 {
            let _ = bench.delete("pods", &name);
        } else {
            let _ = bench.pod(&name);
        }
        live = bench.desk.list(&pods()).count();
        most = most.max(live);
    }
    assert_eq!(most, 5, "the limit is reached and never passed");
    assert_eq!(bench.shows("q"), json!({"pods": live.to_string()}));
    bench.audit();
}

#[test]
fn a_quota_is_in_force_from_its_first_moment_and_follows_edits_at_once() {
    let mut bench = rig();
    bench.pod("old").unwrap();
    bench.quota("q", json!({"hard": {"pods": "0"}}));
    assert_eq!(bench.shows("q"), json!({"pods": "1"}), "what was there is counted");
    let refused = bench.pod("new").unwrap_err();
    assert_eq!(bench.words(refused), ["exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=0"]);
    bench.change(&key("resourcequotas", "q"), |quota| quota["spec"]["hard"]["pods"] = "2".into()).unwrap();
    bench.pod("new").unwrap();
    bench.change(&key("resourcequotas", "q"), |quota| quota["spec"]["hard"]["pods"] = "1".into()).unwrap();
    assert_eq!(bench.shows("q"), json!({"pods": "2"}), "nobody is evicted");
    bench.change(&key("pods", "new"), |pod| pod["metadata"]["labels"] = json!({"a": "b"})).unwrap();
    bench.change(&key("resourcequotas", "q"), |quota| quota["spec"]["hard"]["count/pods"] = "9".into()).unwrap();
    assert_eq!(bench.shows("q"), json!({"pods": "2", "count/pods": "2"}), "a new name is counted at once");
    bench.audit();
}

#[test]
fn what_shrinks_is_free_at_once() {
    let mut bench = rig();
    bench.quota("q", json!({"hard": {"services.nodeports": "3", "requests.cpu": "1"}}));
    let service = |ports: usize| json!({"spec": {"type": "NodePort", "ports": vec![json!({"port": 1}); ports]}});
    bench.create("", "services", "a", "s", service(3)).unwrap();
    bench.change(&key("services", "s"), |stored| stored["spec"] = service(1)["spec"].clone()).unwrap();
    assert_eq!(bench.shows("q")["services.nodeports"], "1");
    bench.change(&key("services", "s"), |stored| stored["spec"] = service(2)["spec"].clone()).unwrap();

    bench.create("", "pods", "a", "x", pod("900m")).unwrap();
    bench.change(&key("pods", "x"), |stored| stored["spec"] = pod("400m")["spec"].clone()).unwrap();
    assert_eq!(bench.shows("q"), json!({"services.nodeports": "2", "requests.cpu": "400m"}));
    bench.create("", "pods", "a", "y", pod("600m")).unwrap();
    bench.audit();
}

#[test]
fn an_edited_scope_selector_is_counted_at_once() {
    let mut bench = rig();
    let expression = |class: &str| json!({"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": [class]}]});
    bench.quota("q", json!({"hard": {"pods": "1"}, "scopeSelector": expression("one")}));
    let classed = || json!({"spec": {"priorityClassName": "two", "containers": []}});
    bench.create("", "pods", "a", "x", classed()).unwrap();
    bench.create("", "pods", "a", "y", classed()).unwrap();
    assert_eq!(bench.shows("q"), json!({"pods": "0"}));
    bench.change(&key("resourcequotas", "q"), |quota| quota["spec"]["scopeSelector"] = expression("two")).unwrap();
    assert_eq!(bench.shows("q"), json!({"pods": "2"}));
    assert!(matches!(bench.create("", "pods", "a", "z", classed()), Err(Refused::Denied(_))));
    bench.audit();
}

#[test]
fn every_quota_that_says_no_is_named_and_none_is_charged() {
    let mut bench = rig();
    bench.quota("b", json!({"hard": {"pods": "1"}}));
    bench.quota("a", json!({"hard": {"requests.cpu": "150m"}}));
    bench.quota("c", json!({"hard": {"count/pods": "9"}}));
    bench.pod("x").unwrap();
    let refused = bench.pod("y").unwrap_err();
    assert_eq!(
        bench.words(refused),
        [
            "exceeded quota: a, requested: requests.cpu=100m, used: requests.cpu=100m, limited: requests.cpu=150m",
            "exceeded quota: b, requested: pods=1, used: pods=1, limited: pods=1",
        ]
    );
    assert_eq!(bench.shows("c"), json!({"count/pods": "1"}));
    bench.audit();
}

#[test]
fn a_pod_must_state_what_is_limited_but_not_to_be_labelled() {
    let mut bench = rig();
    let silent = || json!({"spec": {"containers": [{"name": "c"}]}});
    bench.create("", "pods", "a", "old", silent()).unwrap();
    bench.quota("q", json!({"hard": {"requests.cpu": "1"}}));
    let refused = bench.create("", "pods", "a", "new", silent()).unwrap_err();
    assert_eq!(bench.words(refused), ["failed quota: q: must specify requests.cpu for: c"]);
    bench.change(&key("pods", "old"), |pod| pod["metadata"]["labels"] = json!({"a": "b"})).unwrap();
    bench.audit();
}

#[test]
fn quotas_are_capped_by_quota() {
    let mut bench = rig();
    bench.quota("only", json!({"hard": {"resourcequotas": "1"}}));
    assert_eq!(bench.shows("only"), json!({"resourcequotas": "1"}));
    let second = bench.create("", "resourcequotas", "a", "second", json!({"spec": {"hard": {"pods": "1"}}}));
    let wanted = "exceeded quota: only, requested: resourcequotas=1, used: resourcequotas=1, limited: resourcequotas=1";
    assert_eq!(bench.words(second.unwrap_err()), [wanted]);
    bench.audit();
}

#[test]
fn a_cluster_quota_adds_up_namespaces_and_survives_a_restart() {
    let mut bench = rig();
    bench.create("", "namespaces", "", "b", json!({"labels": {"org": "x"}})).unwrap();
    let namespace = ObjectKey::new(GroupResource::core("namespaces"), "", "a");
    bench.change(&namespace, |ns| ns["metadata"]["labels"] = json!({"org": "x"})).unwrap();
    let spec = json!({"selector": {"labels": {"matchLabels": {"org": "x"}}}, "quota": {"hard": {"pods": "2"}}});
    bench.create("quota.openshift.io", "clusterresourcequotas", "", "q", json!({"spec": spec})).unwrap();
    bench.pod("x").unwrap();
    bench.create("", "pods", "b", "x", pod("1")).unwrap();
    let refused = bench.pod("y").unwrap_err();
    let wanted = ["exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2"];
    assert_eq!(bench.words(refused), wanted);
    let cluster = ObjectKey::new(GroupResource::new("quota.openshift.io", "clusterresourcequotas"), "", "q");
    let status = |bench: &Bench| {
        let mut value = bench.desk.get(&cluster).unwrap().value();
        bench.desk.engine.families.of_projected(&cluster.resource).unwrap().project(
            &cluster.resource,
            &mut value,
            &bench.desk,
        );
        value["status"].clone()
    };
    let part = |name: &str| json!({"namespace": name, "status": {"hard": {"pods": "2"}, "used": {"pods": "1"}}});
    let both = json!({"total": {"hard": {"pods": "2"}, "used": {"pods": "2"}}, "namespaces": [part("a"), part("b")]});
    assert_eq!(status(&bench), both);
    let mut bench = bench.restart();
    assert_eq!(status(&bench), both);
    let refused = bench.pod("y").unwrap_err();
    assert_eq!(bench.words(refused), wanted);
    bench.audit();

    // A namespace that leaves takes its usage along.
    bench.change(&namespace, |ns| ns["metadata"]["labels"] = json!({})).unwrap();
    assert_eq!(status(&bench)["namespaces"], json!([part("b")]));
    bench.pod("y").unwrap();
    bench.audit();
}

#[test]
fn a_hierarchical_quota_is_decided_together_with_the_others() {
    let mut bench = rig();
    bench.create("", "namespaces", "", "child", json!({})).unwrap();
    let below = json!({"spec": {"parent": "a"}});
    bench.create("hnc.x-k8s.io", "hierarchyconfigurations", "child", "hierarchy", below).unwrap();
    let spec = json!({"spec": {"hard": {"pods": "1"}}});
    bench.create("hnc.x-k8s.io", "hierarchicalresourcequotas", "a", "tree", spec).unwrap();
    bench.create("", "resourcequotas", "child", "own", json!({"spec": {"hard": {"pods": "1"}}})).unwrap();
    bench.create("", "pods", "child", "x", pod("1")).unwrap();
    let refused = bench.create("", "pods", "child", "y", pod("1")).unwrap_err();
    assert_eq!(
        bench.words(refused),
        [
            "exceeded hierarchical quota in namespace \"a\": \"tree\", requested: pods=1, used: pods=1, limited: pods=1",
            "exceeded quota: own, requested: pods=1, used: pods=1, limited: pods=1",
        ]
    );
    bench.audit();
}

#[test]
fn a_cluster_quota_whose_selector_is_edited_still_counts_by_namespace() {
    let mut bench = Bench::with(families::all(&families::Settings::default()));
    for name in ["n0", "n1"] {
        bench.create("", "namespaces", "", name, json!({"labels": {"team": "a", "of": name}})).unwrap();
        bench.create("", "configmaps", name, "x", json!({})).unwrap();
    }
    let spec = json!({"selector": {"labels": {"matchLabels": {"team": "a"}}}, "quota": {"hard": {"configmaps": "9"}}});
    let group = "quota.openshift.io";
    bench.create(group, "clusterresourcequotas", "", "k", json!({"spec": spec})).unwrap();
    let key = ObjectKey::new(GroupResource::new(group, "clusterresourcequotas"), "", "k");
    bench.change(&key, |quota| quota["spec"]["selector"]["labels"]["matchLabels"] = json!({"of": "n0"})).unwrap();
    let policy = policy_name(&key.resource, "", "k");
    let used = |bench: &Bench, bucket: &str| {
        let lines = bench.desk.of(&policy).into_iter().filter(|line| &*line.bucket == bucket);
        lines.map(|line| line.balance.used.to_string()).collect::<Vec<_>>().join(" ")
    };
    // The part of the namespace that left is gone.
    assert_eq!((used(&bench, ""), used(&bench, "n0"), used(&bench, "n1")), ("1".into(), "1".into(), "".into()));
    bench.create("", "configmaps", "n0", "y", json!({})).unwrap();
    assert_eq!((used(&bench, ""), used(&bench, "n0")), ("2".into(), "2".into()));
    let bench = bench.restart();
    assert_eq!((used(&bench, ""), used(&bench, "n0")), ("2".into(), "2".into()));
}

#[test]
fn a_cluster_quota_that_counts_nothing_lists_its_namespaces_all_the_same() {
    let mut bench = Bench::with(families::all(&families::Settings::default()));
    let group = "quota.openshift.io";
    let spec = json!({"selector": {"labels": {"matchLabels": {"team": "a"}}}, "quota": {"hard": {}}});
    bench.create(group, "clusterresourcequotas", "", "k", json!({"spec": spec})).unwrap();
    let key = ObjectKey::new(GroupResource::new(group, "clusterresourcequotas"), "", "k");
    let listed = |bench: &mut Bench| {
        bench.desk.publish(0);
        let value = bench.desk.get(&key).unwrap().value();
        let namespaces = value["status"]["namespaces"].as_array().cloned().unwrap_or_default();
        namespaces.iter().map(|one| one["namespace"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    bench.create("", "namespaces", "", "n0", json!({"labels": {"team": "a"}})).unwrap();
    assert_eq!(listed(&mut bench), ["n0"]);
    bench.create("", "namespaces", "", "n1", json!({"labels": {"team": "b"}})).unwrap();
    bench.change(&key, |quota| quota["spec"]["selector"]["labels"]["matchLabels"] = json!({"team": "b"})).unwrap();
    assert_eq!(listed(&mut bench), ["n1"]);
    bench.change(&key, |quota| quota["spec"]["quota"]["hard"] = json!({"configmaps": "1"})).unwrap();
    bench.create("", "configmaps", "n1", "x", json!({})).unwrap();
    bench.create("", "configmaps", "n1", "y", json!({})).unwrap_err();
    bench.change(&key, |quota| quota["spec"]["quota"]["hard"] = json!({})).unwrap();
    bench.create("", "configmaps", "n1", "y", json!({})).unwrap();
    assert_eq!(listed(&mut bench), ["n1"]);
    bench.audit();
}

/// What somebody else tells of a policy does not hide for a moment what the ledger knows of it.
#[test]
fn a_status_of_which_others_tell_a_part_is_right_at_once() {
    let mut bench = rig();
    bench.quota("plain", json!({"hard": {"pods": "3"}}));
    let group = "policy.karmada.io";
    let spec = json!({"spec": {"overall": {"cpu": "4"}}});
    bench.create(group, "federatedresourcequotas", "a", "wide", spec).unwrap();
    let wide = ObjectKey::new(GroupResource::new(group, "federatedresourcequotas"), "a", "wide");
    for (key, is_shown) in [(key("resourcequotas", "plain"), true), (wide, false)] {
        let mut value = bench.desk.get(&key).unwrap().value();
        value["status"]["aggregatedStatus"] = json!([]);
        let update = WriteKind::Update { draft: Draft::new(value).unwrap(), expect: Expect::default(), status: true };
        bench.write(key.clone(), update, false).unwrap();
        assert_eq!(bench.desk.status_is_written(&key), is_shown, "{key}");
    }
}
