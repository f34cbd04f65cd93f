//! Loops beside APIs that answer what a test says.

mod detector;
mod evictions;
mod members;

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use kube::Client;
use kube::api::DynamicObject;
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::super::Settings;
use super::super::binding::BindingSpec;
use super::super::interpret::{self, Reserve};
use super::heartbeat::{Pulse, TOLD_MAX, enabled, left, unwell};
use super::kind::{
    MANAGED, TEMPLATE_MARK, bindings, clusters, leases, policies, quotas, resource_quotas, slices, template_mark, works,
};
use super::leases::{Leases, Visits};
use super::watch::{Mirror, Watch};
use super::works::{Own, Works, work_mark};

/// One that is to answer soon does so within this.
const PATIENCE: Duration = Duration::from_secs(60);

/// What was asked: how, where, and what came with it.
type Asked = (Method, String, Value);

/// An API that gives these answers, or none at all; and what it is asked.
fn api(
    answer: impl Fn(&Asked) -> Option<Value> + Clone + Send + Sync + 'static,
) -> (Client, mpsc::UnboundedReceiver<Asked>) {
    let (tell, asked) = mpsc::unbounded_channel();
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let (answer, tell) = (answer.clone(), tell.clone());
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect_bytes().await.unwrap_or_default();
            let place = parts.uri.path_and_query().map_or("", |place| place.as_str()).to_owned();
            let one = (parts.method, place, serde_json::from_slice(&body).unwrap_or_default());
            let answer = answer(&one);
            let _ = tell.send(one);
            let Some(answer) = answer else { return std::future::pending().await };
            let code = answer["code"].as_u64().map_or(200, |code| u16::try_from(code).unwrap_or(500));
            let body = kube::client::Body::from(answer.to_string().into_bytes());
            let response = http::Response::builder().status(code).body(body).expect("a response");
            Ok::<_, std::convert::Infallible>(response)
        }
    });
    (Client::new(service, "default"), asked)
}

fn missing() -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 404, "reason": "NotFound"})
}

pub fn object(of: &ApiResource, namespace: &str, name: &str, more: Value) -> DynamicObject {
    let mut object = json!({
        "apiVersion": of.api_version, "kind": of.kind,
        "metadata": {"name": name, "namespace": namespace, "resourceVersion": "1", "uid": name},
    });
    if namespace.is_empty() {
        object["metadata"].as_object_mut().expect("an object").remove("namespace");
    }
    for (field, value) in more.as_object().into_iter().flatten() {
        object[field] = value.clone();
    }
    serde_json::from_value(object).expect("an object")
}

fn refusal(code: u16) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code, "reason": "Invalid", "message": "no"})
}

fn listed(of: &ApiResource, items: Value) -> Value {
    json!({
        "kind": format!("{}List", of.kind), "apiVersion": of.api_version, "metadata": {"resourceVersion": "7"}, "items": items,
    })
}

fn served(version: &str, kinds: &[(&str, &str, &[&str])]) -> Value {
    let one = |(plural, kind, verbs): &(&str, &str, &[&str])| json!({"name": plural, "singularName": "", "namespaced": true, "kind": kind, "verbs": verbs});
    let kinds: Vec<Value> = kinds.iter().map(one).collect();
    json!({"kind": "APIResourceList", "groupVersion": version, "resources": kinds})
}

async fn told(asked: &mut mpsc::UnboundedReceiver<Asked>, wanted: impl Fn(&Asked) -> bool) -> Asked {
    let found = async {
        loop {
            let one = asked.recv().await.expect("an API that is asked");
            if wanted(&one) {
                return one;
            }
        }
    };
    tokio::time::timeout(PATIENCE, found).await.expect("it is asked in time")
}

#[test]
fn one_bad_answer_says_as_little_as_one_moment_of_silence() {
    let grace = Duration::from_secs(40);
    for (pulse, is) in [(Pulse::Unwell("no".into()), "False"), (Pulse::Silent("no".into()), "Unknown")] {
        assert_eq!(unwell(&pulse, Duration::from_secs(39), grace), None);
        assert_eq!(unwell(&pulse, grace, grace).expect("it is told").0, is);
    }
    assert_eq!(unwell(&Pulse::Well("v1".into()), grace, grace), None);
}

#[test]
fn no_more_kinds_are_told_than_a_status_has_room_for() {
    let kind = |group: &str, number: usize| {
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, "v1", "Kind"), &format!("kinds{number:05}"))
    };
    let many = (0..2 * TOLD_MAX).map(|number| kind("many.example.com", number));
    let list = enabled(many.chain([kind("apps", 1)]));
    assert_eq!(list.len(), 2);
    assert_eq!(list[0]["groupVersion"], "apps/v1");
    assert_eq!(list[1]["resources"].as_array().map(Vec::len), Some(TOLD_MAX));
    let groups = (0..2 * TOLD_MAX).map(|number| kind(&format!("g{number:05}.example.com"), 1));
    assert_eq!(enabled(groups).len(), TOLD_MAX);
}

/// However many pods a member has, they are looked at in parts.
#[tokio::test]
async fn pods_of_a_member_are_read_page_by_page() {
    let pod = |cpu: &str, node: Value| {
        let containers = json!([{"name": "c", "resources": {"requests": {"cpu": cpu}}}]);
        json!({"metadata": {"name": "p"}, "spec": {"nodeName": node, "containers": containers}})
    };
    let node = json!({
        "metadata": {"name": "n"},
        "status": {"allocatable": {"cpu": "8"}, "conditions": [{"type": "Ready", "status": "True"}]},
    });
    let (member, _asked) = api(move |(_, place, _)| {
        assert!(place.contains("limit="), "{place} asks for everything at once");
        let (items, next) = match (place.starts_with("/api/v1/nodes"), place.contains("continue=more")) {
            (true, _) => (vec![node.clone()], ""),
            (false, false) => (vec![pod("1", json!("n")), pod("500m", Value::Null)], "more"),
            (false, true) => (vec![pod("2", json!("n"))], ""),
        };
        Some(json!({"metadata": {"continue": next}, "items": items}))
    });
    let summary = left(&member).await.expect("a summary");
    assert_eq!(summary["nodeSummary"], json!({"totalNum": 1, "readyNum": 1}));
    let of = |field: &str| summary["resourceSummary"][field].clone();
    assert_eq!(of("allocated"), json!({"cpu": "3", "pods": "2"}));
    assert_eq!(of("allocating"), json!({"cpu": "500m", "pods": "1"}));
}

/// A member that answers nothing keeps none of the others from being told.
#[tokio::test]
async fn a_slow_member_keeps_no_other_waiting() {
    let cluster = |name: &str| {
        let served = json!([{"groupVersion": slices().api_version, "resources": [{"kind": "FederatedQuotaSlice"}]}]);
        let status = json!({"apiEnablements": served, "conditions": [{"type": "Ready", "status": "True"}]});
        object(&clusters(), "", name, json!({"spec": {"syncMode": "Push"}, "status": status}))
    };
    let all = ["m1", "m2", "m3"].map(cluster);
    let many: Vec<DynamicObject> = (0..12)
        .map(|number| {
            let spec = json!({"overall": {"cpu": "9"}, "elastic": {"chunk": {"cpu": "1"}}});
            object(&quotas(), "team", &format!("q{number}"), json!({ "spec": spec }))
        })
        .collect();
    let (centre, _asked) = api(|(method, place, body)| {
        let name = place.split('?').next().and_then(|place| place.rsplit('/').next()).unwrap_or("").to_owned();
        let mut lease = json!({"quota": "q", "clusterName": "m", "hard": {"cpu": "0"}});
        if let Some(spec) = body["spec"].as_object() {
            spec.iter().for_each(|(field, value)| lease[field] = value.clone());
        }
        let is_known = *method == Method::GET || *method == Method::PATCH;
        assert!(is_known, "{method} {place}");
        Some(serde_json::to_value(object(&leases(), "team", &name, json!({ "spec": lease }))).expect("JSON"))
    });
    let leases = Leases::new(
        centre,
        Arc::new(Settings::default()),
        [Mirror::of(quotas(), many), Mirror::of(clusters(), all.to_vec()), Mirror::of(leases(), Vec::new())],
    );
    // All but one are as good as gone.
    let (silent, _asked) = api(|_| None);
    leases.members.put(&all[0], silent.clone()).await;
    leases.members.put(&all[2], silent).await;
    let (well, mut asked) = api(|(method, _, body)| match *method {
        Method::GET => Some(missing()),
        _ => Some(body.clone()),
    });
    leases.members.put(&all[1], well).await;
    let (leases, mut visits) = (Arc::new(leases), Visits::default());
    for _ in 0..3 {
        let begun = std::time::Instant::now();
        assert!(!leases.look(&mut visits).await);
        assert!(begun.elapsed() < Duration::from_secs(5), "nobody waits for those that are silent");
        told(&mut asked, |(method, place, _)| *method == Method::POST && place.contains("federatedquotaslices")).await;
        // The visit of the one that answers comes to its end, and the next look begins another.
        while visits.is_under_way("m2") {
            tokio::task::yield_now().await;
        }
    }
    assert!(visits.is_under_way("m1") && visits.is_under_way("m3"));
}

fn deployment(cpu: &str) -> Value {
    let containers = json!([{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}]);
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "team", "uid": "web", "labels": {"app": "web"}},
        "spec": {"replicas": 3, "template": {"spec": {"containers": containers}}},
    })
}

/// A control plane that has this template, and takes whatever is written.
fn with_template(plural: &str, template: Value) -> (Client, mpsc::UnboundedReceiver<Asked>) {
    let (version, kind) = (template["apiVersion"].clone(), template["kind"].clone());
    let group = format!("/apis/{}", version.as_str().expect("a version"));
    let one = json!({"name": plural, "singularName": "", "namespaced": true, "kind": kind, "verbs": []});
    let list = json!({"kind": "APIResourceList", "groupVersion": version, "resources": [one]});
    api(move |(method, place, body)| match (method.as_str(), &**place) {
        ("GET", place) if *place == *group => Some(list.clone()),
        ("GET", _) => Some(template.clone()),
        _ => Some(body.clone()),
    })
}

/// A workload whose raise was refused goes where it is placed anew as it was charged: what its template says by now is not.
#[tokio::test]
async fn what_is_placed_anew_is_what_was_charged() {
    let (charged, raised) = (deployment("1"), deployment("9"));
    let mark = template_mark(&charged);
    let wants = interpret::wants(&charged, Reserve::Initial).expect("it can be counted");
    let spec = json!({
        "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "team", "name": "web"},
        "replicas": 3, "replicaRequirements": wants.requirements,
        "placement": {"replicaScheduling": {"replicaSchedulingType": "Divided"}},
        "preserveResourcesOnDeletion": true,
        "clusters": [{"name": "m2", "replicas": 2}, {"name": "m3", "replicas": 1}],
        "suspension": {"dispatchingOnClusters": {"clusterNames": ["m3"]}},
    });
    let mut binding = object(&bindings(), "team", "web-deployment", json!({ "spec": spec }));
    binding.metadata.annotations = Some([(TEMPLATE_MARK.to_owned(), mark.clone())].into());
    let spec = BindingSpec::read(&json!({ "spec": spec })).expect("a spec");
    let mut work = object(&works(), "karmada-es-m1", "web", json!({"spec": {"workload": {"manifests": [charged]}}}));
    let before = super::super::binding::Target { name: "m1".into(), replicas: 3, components: Vec::new() };
    work.metadata.annotations = Some([(TEMPLATE_MARK.to_owned(), work_mark(&mark, &before, &spec))].into());
    let own: Own = [("m1".to_owned(), Arc::new(work))].into();
    let (centre, mut asked) = with_template("deployments", raised);
    let mirrors = [bindings(), clusters(), works()].map(|kind| Mirror::of(kind, Vec::new()));
    let lending = [quotas(), leases()].map(|kind| Mirror::of(kind, Vec::new()));
    let loops = Works::new(centre, Arc::new(Settings::default()), mirrors, lending);
    assert!(loops.dispatch(&binding, &spec, &own).await.expect("it is dispatched"));
    let (_, place, work) = told(&mut asked, |(method, ..)| *method == Method::POST).await;
    assert!(place.contains("/karmada-es-m2/"), "{place}");
    let manifest = &work["spec"]["workload"]["manifests"][0];
    assert_eq!(manifest["spec"]["replicas"], 2, "as many as are placed there");
    assert_eq!(manifest["spec"]["template"], deployment("1")["spec"]["template"]);
    assert_eq!(work["spec"]["preserveResourcesOnDeletion"], true);
    assert!(asked.try_recv().is_err(), "nothing is brought where that is suspended");
    // What asks for something else than is charged is nobody's, whatever its mark says.
    let mut other = binding.clone();
    other.data["spec"]["replicaRequirements"]["resourceRequest"]["cpu"] = json!("2");
    let spec = BindingSpec::read(&json!({"spec": other.data["spec"]})).expect("a spec");
    assert!(loops.dispatch(&other, &spec, &own).await.expect("there is nothing to dispatch"));
    while let Ok((method, ..)) = asked.try_recv() {
        assert_eq!(method, Method::GET);
    }
}

/// A member as a lender finds it.
fn lent_to(knows_slices: bool) -> DynamicObject {
    let kind = if knows_slices { slices() } else { resource_quotas() };
    let served = json!([{"groupVersion": kind.api_version, "resources": [{"kind": kind.kind}]}]);
    let status = json!({"apiEnablements": served, "conditions": [{"type": "Ready", "status": "True"}]});
    object(&clusters(), "", "m1", json!({"spec": {"syncMode": "Push"}, "status": status}))
}

const FAR: &str = "2999-01-01T00:00:00Z";

fn lender(overall: Value, cluster: &DynamicObject, centre: Client) -> Arc<Leases> {
    let quota = json!({"spec": {"overall": overall, "elastic": {"chunk": {"cpu": "1"}}}});
    let mirrors = [
        Mirror::of(quotas(), vec![object(&quotas(), "team", "q", quota)]),
        Mirror::of(clusters(), vec![cluster.clone()]),
        Mirror::of(leases(), Vec::new()),
    ];
    Arc::new(Leases::new(centre, Arc::new(Settings::default()), mirrors))
}

fn lease(cpu: &str) -> Value {
    let spec = json!({"quota": "q", "clusterName": "m1", "hard": {"cpu": cpu}, "validUntil": FAR});
    serde_json::to_value(object(&leases(), "team", "q.m1", json!({ "spec": spec }))).expect("JSON")
}

fn shown_there(knows_slices: bool, cpu: &str, used: &str) -> Value {
    let kind = if knows_slices { slices() } else { resource_quotas() };
    let mut spec = json!({"hard": {"cpu": cpu}});
    if knows_slices {
        (spec["validUntil"], spec["whenFull"]) = (json!(FAR), json!("Refuse"));
    }
    let more = json!({"spec": spec, "status": {"hard": {"cpu": cpu}, "used": {"cpu": used}}});
    let mut there = object(&kind, "team", "q-elastic", more);
    there.metadata.labels = Some([(MANAGED.to_owned(), "true".to_owned())].into());
    serde_json::to_value(there).expect("JSON")
}

/// A ResourceQuota that has the name by chance is left alone, whoever made it: a Work, or somebody there.
#[tokio::test]
async fn a_quota_of_somebody_else_is_not_told_anything() {
    for (label, mark) in [(None, None), (Some("true"), Some("f"))] {
        let cluster = lent_to(false);
        let (centre, _asked) = api(|_| Some(lease("3")));
        let leases = lender(json!({"cpu": "9"}), &cluster, centre);
        let mut theirs = shown_there(false, "20", "0");
        theirs["metadata"]["labels"] = json!({MANAGED: label});
        theirs["metadata"]["annotations"] = json!({TEMPLATE_MARK: mark});
        for list in ["labels", "annotations"] {
            theirs["metadata"][list].as_object_mut().expect("a list").retain(|_, value| !value.is_null());
        }
        let (member, mut asked) = api(move |_| Some(theirs.clone()));
        leases.members.put(&cluster, member).await;
        let mut visits = Visits::default();
        assert!(!leases.look(&mut visits).await);
        while visits.is_under_way("m1") {
            tokio::task::yield_now().await;
        }
        let (method, ..) = asked.try_recv().expect("it was looked at");
        assert_eq!(method, Method::GET);
        assert!(asked.try_recv().is_err(), "and nothing else was asked");
    }
}

/// A name that came into a quota limits a member from the next look on, also where it is lent nothing of it: no limit is not a limit of
/// nothing.
#[tokio::test]
async fn a_name_of_which_nothing_is_lent_is_told_too() {
    for knows_slices in [true, false] {
        let cluster = lent_to(knows_slices);
        let (centre, _asked) = api(|_| Some(lease("3")));
        let leases = lender(json!({"cpu": "9", "memory": "1Gi"}), &cluster, centre);
        let (member, mut asked) = api(move |(method, _, body)| match *method {
            Method::GET => Some(shown_there(knows_slices, "3", "2")),
            _ => Some(body.clone()),
        });
        leases.members.put(&cluster, member).await;
        let mut visits = Visits::default();
        assert!(!leases.look(&mut visits).await);
        let (_, _, body) = told(&mut asked, |(method, ..)| *method == Method::PATCH).await;
        assert_eq!(body["spec"]["hard"], json!({"cpu": "3", "memory": "0"}));
    }
}

/// Whoever lends waits for the end of its own writes, however long they take: one that came true after the next look went by what was
/// before would leave a member with more than is charged for it.
#[tokio::test]
async fn a_write_of_the_lender_is_never_left_to_itself() {
    let cluster = lent_to(true);
    let (centre, mut written) = api(|(method, ..)| (*method == Method::GET).then(|| lease("9")));
    let leases = lender(json!({"cpu": "9"}), &cluster, centre);
    let is_less = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let (member, mut asked) = api({
        let is_less = is_less.clone();
        move |(method, _, body)| match *method {
            Method::GET if is_less.load(std::sync::atomic::Ordering::Relaxed) => Some(shown_there(true, "2", "1")),
            Method::GET => Some(shown_there(true, "9", "1")),
            _ => {
                is_less.store(true, std::sync::atomic::Ordering::Relaxed);
                Some(body.clone())
            }
        }
    });
    leases.members.put(&cluster, member).await;
    let mut visits = Visits::default();
    assert!(!leases.look(&mut visits).await);
    let (_, _, body) = told(&mut asked, |(method, ..)| *method == Method::PATCH).await;
    assert_eq!(body["spec"]["hard"], json!({"cpu": "2"}));
    let (_, _, body) = told(&mut written, |(method, ..)| *method == Method::PATCH).await;
    assert_eq!(body["spec"]["hard"], json!({"cpu": "2"}));
    // Nobody knows yet whether that is stored. Members are waited for less long than this.
    let more = told(&mut asked, |(method, ..)| *method == Method::PATCH);
    let more = tokio::time::timeout(Duration::from_secs(6), async {
        tokio::pin!(more);
        loop {
            tokio::select! {
                _ = &mut more => return,
                () = tokio::time::sleep(Duration::from_millis(200)) => drop(leases.look(&mut visits).await),
            }
        }
    });
    assert!(more.await.is_err(), "the member is told nothing meanwhile");
    assert!(visits.is_under_way("m1"));
}

/// What makes pods comes to a member when that keeps to what it was lent, and not before: nothing of it is ever without a limit.
#[tokio::test]
async fn nothing_comes_to_a_member_that_does_not_keep_to_its_quota_yet() {
    let template = deployment("1");
    let wants = interpret::wants(&template, Reserve::Initial).expect("it can be counted");
    let spec = json!({
        "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "team", "name": "web"},
        "replicas": 3, "replicaRequirements": wants.requirements, "clusters": [{"name": "m1", "replicas": 3}],
    });
    let mut binding = object(&bindings(), "team", "web-deployment", json!({ "spec": spec }));
    binding.metadata.annotations = Some([(TEMPLATE_MARK.to_owned(), template_mark(&template))].into());
    let spec = BindingSpec::read(&json!({ "spec": spec })).expect("a spec");
    let quota =
        |elastic: Value| object(&quotas(), "team", "q", json!({"spec": {"overall": {"cpu": "9"}, "elastic": elastic}}));
    let lends = json!({"chunk": {"cpu": "1"}});
    let kept = |status: Value| object(&leases(), "team", "q.m1", json!({"spec": {}, "status": status}));
    for (elastic, leased, comes) in [
        (lends.clone(), Vec::new(), false),
        (lends.clone(), vec![kept(Value::Null)], false),
        (lends.clone(), vec![kept(json!({"renewUntil": FAR}))], true),
        (json!({"chunk": {"cpu": "1"}, "clusters": ["m2"]}), Vec::new(), true),
        (Value::Null, Vec::new(), true),
    ] {
        let (centre, mut asked) = with_template("deployments", template.clone());
        let mirrors = [bindings(), clusters(), works()].map(|kind| Mirror::of(kind, Vec::new()));
        let lending = [Mirror::of(quotas(), vec![quota(elastic)]), Mirror::of(leases(), leased)];
        let loops = Works::new(centre, Arc::new(Settings::default()), mirrors, lending);
        assert_eq!(loops.dispatch(&binding, &spec, &Own::new()).await.expect("an answer"), comes);
        let mut made = false;
        while let Ok((method, ..)) = asked.try_recv() {
            made |= method == Method::POST;
        }
        assert_eq!(made, comes);
        // And what waits says for whom.
        let waits = loops.not_kept_to("team", "m1");
        assert_eq!(waits.as_deref(), (!comes).then_some("q"));
    }
}

/// A Job's completions are shared out where the Job is divided, and nowhere else.
#[tokio::test]
async fn a_job_that_is_not_divided_is_whole_everywhere() {
    let containers = json!([{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]);
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "run", "namespace": "team", "uid": "run"},
        "spec": {"parallelism": 2, "completions": 8, "template": {"spec": {"containers": containers}}},
    });
    let wants = interpret::wants(&job, Reserve::Initial).expect("it can be counted");
    for (divided, replicas, completions) in [("Duplicated", 2, 8), ("Divided", 1, 4)] {
        let on = |name: &str| json!({"name": name, "replicas": replicas});
        let spec = json!({
            "resource": {"apiVersion": "batch/v1", "kind": "Job", "namespace": "team", "name": "run"},
            "replicas": 2, "replicaRequirements": wants.requirements, "clusters": [on("m1"), on("m2")],
            "placement": {"replicaScheduling": {"replicaSchedulingType": divided}},
        });
        let mut binding = object(&bindings(), "team", "run-job", json!({ "spec": spec }));
        binding.metadata.annotations = Some([(TEMPLATE_MARK.to_owned(), template_mark(&job))].into());
        let spec = BindingSpec::read(&json!({ "spec": spec })).expect("a spec");
        let (centre, mut asked) = with_template("jobs", job.clone());
        let mirrors = [bindings(), clusters(), works()].map(|kind| Mirror::of(kind, Vec::new()));
        let lending = [quotas(), leases()].map(|kind| Mirror::of(kind, Vec::new()));
        let loops = Works::new(centre, Arc::new(Settings::default()), mirrors, lending);
        assert!(loops.dispatch(&binding, &spec, &Own::new()).await.expect("it is dispatched"));
        for _ in ["m1", "m2"] {
            let (_, _, work) = told(&mut asked, |(method, ..)| *method == Method::POST).await;
            let spec = &work["spec"]["workload"]["manifests"][0]["spec"];
            assert_eq!((&spec["parallelism"], &spec["completions"]), (&json!(replicas), &json!(completions)));
        }
    }
}

/// A member that was away may be back without what it had, and far behind: it is asked for everything again, since from where it was
/// it would tell nothing.
#[tokio::test]
async fn who_was_away_is_asked_for_everything_again() {
    let lists = std::sync::atomic::AtomicU32::new(0);
    let lists = Arc::new(lists);
    let (client, mut asked) = api(move |(_, place, _)| {
        if place.contains("watch=") {
            // It goes away; and when it is back, nothing happens there.
            let is_back = lists.load(std::sync::atomic::Ordering::Relaxed) > 1;
            let gone = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 503});
            return (!is_back).then_some(gone);
        }
        let first = lists.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 0;
        let items = if first { vec![object(&works(), "karmada-es-m1", "web", json!({}))] } else { Vec::new() };
        let version = if first { "100000" } else { "7" };
        Some(
            json!({"kind": "WorkList", "apiVersion": works().api_version, "metadata": {"resourceVersion": version}, "items": items}),
        )
    });
    let watch = Watch::new();
    let mirror = watch.mirror(&client, &works(), "", kube::runtime::watcher::Config::default());
    mirror.ready().await;
    assert_eq!(mirror.all().len(), 1);
    told(&mut asked, |(_, place, _)| place.contains("watch=") && place.contains("resourceVersion=7")).await;
    assert!(mirror.all().is_empty());
}

/// What members tell stands in the same list as what the scheduler says, and is written only beside what that says now.
#[tokio::test]
async fn what_members_tell_takes_back_nothing_that_the_scheduler_says() {
    let (centre, mut asked) = api(|(_, _, body)| Some(body.clone()));
    let mirrors = [bindings(), clusters(), works()].map(|kind| Mirror::of(kind, Vec::new()));
    let lending = [quotas(), leases()].map(|kind| Mirror::of(kind, Vec::new()));
    let loops = Works::new(centre, Arc::new(Settings::default()), mirrors, lending);
    let binding = object(&bindings(), "team", "web-deployment", json!({"spec": {}}));
    let own: Own = [("m1".to_owned(), Arc::new(object(&works(), "karmada-es-m1", "web", json!({}))))].into();
    super::applied::tell(&loops, &binding, &BindingSpec::default(), &own).await.expect("it is told");
    let (_, place, body) = told(&mut asked, |(method, ..)| *method == Method::PATCH).await;
    assert!(place.contains("/status"), "{place}");
    assert_eq!(body["metadata"]["resourceVersion"], "1");
}

/// A binding that is there already, though its news has not come yet, is no refusal that anybody has to be told of.
#[tokio::test]
async fn who_is_overtaken_tries_again_and_tells_nobody() {
    let policy = object(
        &policies(),
        "team",
        "all",
        json!({"spec": {"resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment"}], "placement": {}}}),
    );
    let tries = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let (client, mut asked) = api(move |(method, place, body)| {
        let list = |kind: &ApiResource, items: Value| {
            let metadata = json!({"resourceVersion": "7"});
            json!({"kind": format!("{}List", kind.kind), "apiVersion": kind.api_version, "metadata": metadata, "items": items})
        };
        let deployments = ApiResource::from_gvk(&GroupVersionKind::gvk("apps", "v1", "Deployment"));
        match (method.as_str(), &**place) {
            ("GET", place) if place.contains("watch=") => None,
            ("GET", "/apis/apps/v1") => Some(json!({
                "kind": "APIResourceList", "groupVersion": "apps/v1",
                "resources": [{"name": "deployments", "singularName": "", "namespaced": true, "kind": "Deployment", "verbs": ["list", "watch"]}],
            })),
            ("GET", place) if place.contains("/propagationpolicies") => Some(list(&policies(), json!([policy]))),
            ("GET", place) if place.contains("/deployments") => Some(list(&deployments, json!([deployment("1")]))),
            ("GET", place) if place.contains("/resourcebindings") => Some(list(&bindings(), json!([]))),
            ("GET", _) => Some(list(&quotas(), json!([]))),
            ("POST", place) if place.contains("/resourcebindings") => {
                let is_first = tries.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 0;
                let taken = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 409, "reason": "AlreadyExists"});
                Some(if is_first { taken } else { body.clone() })
            }
            _ => Some(body.clone()),
        }
    });
    let looking = tokio::spawn(super::detector::run(client, Arc::new(Settings::default()), Default::default()));
    let mut tried = 0;
    while tried < 2 {
        let (_, place, _) = told(&mut asked, |(method, ..)| *method == Method::POST).await;
        assert!(place.contains("/resourcebindings"), "{place}");
        tried += 1;
    }
    looking.abort();
}
