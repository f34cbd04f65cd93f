//! What is asked of a cluster, and what is written there, on one that has nothing but a few objects.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use http::{Method, Response, StatusCode};
use kube::Client;
use kube::client::Body;
use operator::certificates::{Certificates, Source};
use operator::cluster::served;
use operator::loops::Others;
use operator::registrar::Registrar;
use operator::registration::{Address, Asked, CONFIGURATION, CONFIGURATIONS, DEFINITIONS, owner};
use operator::run::OperatorError;

use super::*;

/// Objects by their path. What is patched gets the next version; one that rests on another version is refused.
#[derive(Clone, Default)]
struct Fake(Arc<Mutex<BTreeMap<String, Value>>>);

impl Fake {
    fn with(objects: &[(&str, Value)]) -> Fake {
        let fake = Fake::default();
        objects.iter().for_each(|(path, object)| fake.put(path, object.clone()));
        fake
    }

    fn put(&self, path: &str, object: Value) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(path.to_owned(), object);
    }

    fn get(&self, path: &str) -> Option<Value> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(path).cloned()
    }

    fn client(&self) -> Client {
        let fake = self.clone();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let fake = fake.clone();
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect_bytes().await.map_err(std::io::Error::other)?;
                let (code, said) = fake.answer(&parts.method, parts.uri.path(), &body);
                Ok::<_, std::io::Error>(
                    Response::builder().status(code).body(Body::from(said.to_string().into_bytes())).unwrap(),
                )
            }
        });
        Client::new(service, "default")
    }

    fn answer(&self, method: &Method, path: &str, body: &[u8]) -> (StatusCode, Value) {
        let no = |code: u16, reason: &str| {
            let status =
                json!({"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": reason});
            (StatusCode::from_u16(code).unwrap(), status)
        };
        let there = self.get(path);
        match (method, there) {
            (&Method::PATCH, there) => {
                let mut wanted: Value = serde_json::from_slice(body).unwrap();
                let version =
                    there.as_ref().map_or("0", |there| there["metadata"]["resourceVersion"].as_str().unwrap());
                if wanted["metadata"].get("resourceVersion").is_some_and(|rests_on| rests_on != version) {
                    return no(409, "Conflict");
                }
                wanted["metadata"]["resourceVersion"] = json!((version.parse::<u64>().unwrap() + 1).to_string());
                self.put(path, wanted.clone());
                (StatusCode::OK, wanted)
            }
            (_, Some(there)) if there["kind"] == "Broken" => no(503, "ServiceUnavailable"),
            (_, Some(there)) => (StatusCode::OK, there),
            (_, None) => no(404, "NotFound"),
        }
    }
}

fn resources(version: &str, names: &[(&str, &str)]) -> Value {
    let resource = |(name, kind): &(&str, &str)| {
        json!({"name": name, "kind": kind, "singularName": "", "namespaced": true,
               "verbs": ["list", "watch", "update", "patch"]})
    };
    json!({"kind": "APIResourceList", "groupVersion": version, "resources": names.iter().map(resource).collect::<Vec<_>>()})
}

fn group(name: &str, versions: &[&str]) -> Value {
    let version = |version: &&str| json!({"groupVersion": format!("{name}/{version}"), "version": version});
    let versions: Vec<Value> = versions.iter().map(version).collect();
    json!({"kind": "APIGroup", "name": name, "preferredVersion": versions[0], "versions": versions})
}

#[tokio::test]
async fn a_kind_is_found_in_whatever_version_of_its_group_has_it() {
    let fake = Fake::with(&[
        ("/apis/a.b", group("a.b", &["v2", "v1", "v1alpha1"])),
        ("/apis/a.b/v2", resources("a.b/v2", &[("farms", "Farm")])),
        ("/apis/a.b/v1", resources("a.b/v1", &[("farms", "Farm"), ("mills", "Mill"), ("mills/scale", "Scale")])),
        ("/apis/a.b/v1alpha1", json!({"kind": "Broken"})),
    ]);
    let client = fake.client();
    let version = async |plural: &str| {
        served(&client, &GroupResource::new("a.b", plural)).await.map(|served| served.map(|served| served.version))
    };
    assert_eq!(version("farms").await.unwrap().as_deref(), Some("v2"), "the preferred one");
    assert_eq!(version("mills").await.unwrap().as_deref(), Some("v1"));
    version("barns").await.expect_err("the version that does not answer may have it");
    fake.put("/apis/a.b/v1alpha1", resources("a.b/v1alpha1", &[("barns", "Barn"), ("barns/status", "Barn")]));
    assert_eq!(version("barns").await.unwrap().as_deref(), Some("v1alpha1"));
    assert_eq!(version("none").await.unwrap(), None);
    // Who finalizes a namespace ends it.
    let core = [("namespaces", "Namespace"), ("namespaces/finalize", "Namespace"), ("namespaces/status", "Namespace")];
    fake.put("/api/v1", resources("v1", &core));
    let namespaces = served(&client, &GroupResource::core("namespaces")).await.unwrap().unwrap();
    assert_eq!(namespaces.subresources, Vec::<String>::new());
}

fn registrar(fake: &Fake, host: &str) -> Registrar {
    let address = Address::Url(format!("https://{host}"));
    let certificates = Certificates::new(Source::Own, address.names(), SystemTime::now()).unwrap();
    Registrar::new(fake.client(), address, certificates, vec!["kube-system".into()])
}

fn asked(plural: &str) -> Vec<Asked> {
    let served = operator::cluster::Served {
        resource: GroupResource::core(plural),
        version: "v1".into(),
        kind: "Some".into(),
        namespaced: true,
        subresources: Vec::new(),
    };
    vec![Asked { served, within: None, ends: false }]
}

fn path() -> String {
    format!("{CONFIGURATIONS}/{CONFIGURATION}")
}

fn plural(fake: &Fake) -> Value {
    fake.get(&path()).unwrap()["webhooks"][0]["rules"][0]["resources"][0].clone()
}

#[tokio::test]
async fn a_leader_that_was_replaced_does_not_write_the_registration_once_more() {
    let fake = Fake::default();
    let (mut old, mut new) = (registrar(&fake, "old"), registrar(&fake, "new"));
    let leads = async || true;
    assert!(old.write("one", leads, asked("pods"), false).await.unwrap());
    // The next one knows what is counted since.
    assert!(new.write("one", leads, asked("secrets"), false).await.unwrap());
    // The old one wakes up, and its store tells it.
    assert!(!old.write("one", async || false, asked("pods"), true).await.unwrap());
    assert_eq!(plural(&fake), "secrets");
    // Or it stood still between that and its write.
    let mut newer = registrar(&fake, "newer");
    let replaced = async || {
        assert!(newer.write("one", async || true, asked("services"), false).await.unwrap());
        true
    };
    assert!(!old.write("one", replaced, asked("pods"), true).await.unwrap());
    assert_eq!(plural(&fake), "services");
    // Whoever leads writes again what somebody changed.
    let mut changed = fake.get(&path()).unwrap();
    changed["webhooks"][0]["failurePolicy"] = json!("Ignore");
    fake.put(&path(), changed);
    assert!(newer.write("one", leads, asked("services"), true).await.unwrap());
    assert_eq!(fake.get(&path()).unwrap()["webhooks"][0]["failurePolicy"], "Fail");
}

#[tokio::test]
async fn one_of_two_operators_that_decide_apart_ends() {
    let fake = Fake::default();
    let (mut one, mut two) = (registrar(&fake, "one"), registrar(&fake, "two"));
    let leads = async || true;
    assert!(one.write("one", leads, asked("pods"), false).await.unwrap());
    // It found nobody when it started.
    let other = two.write("two", leads, asked("pods"), false).await.expect_err("the other one is registered");
    assert!(matches!(other, OperatorError::Another { other } if other == "one"));
    assert_eq!(owner(&fake.get(&path()).unwrap()), Some("one"));
}

#[tokio::test]
async fn a_registration_that_was_taken_away_stays_away_until_the_next_start() {
    let fake = Fake::default();
    let leads = async || true;
    let mut registrar_ = registrar(&fake, "one");
    assert!(registrar_.write("one", leads, asked("pods"), false).await.unwrap());
    fake.0.lock().unwrap().remove(&path());
    // Also where quotas count something else meanwhile.
    for (plural, looks) in [("pods", true), ("secrets", false), ("secrets", true)] {
        assert!(registrar_.write("one", leads, asked(plural), looks).await.unwrap());
        assert_eq!(fake.get(&path()), None);
    }
    assert!(registrar(&fake, "one").write("one", leads, asked("pods"), false).await.unwrap());
    assert_eq!(plural(&fake), "pods");
}

#[tokio::test]
async fn who_converts_objects_after_the_review_is_waited_for() {
    let definition = |strategy: &str| json!({"spec": {"conversion": {"strategy": strategy}}});
    let fake = Fake::with(&[
        (CONFIGURATIONS, json!({"items": []})),
        (&format!("{DEFINITIONS}/farms.a.b"), definition("Webhook")),
        (&format!("{DEFINITIONS}/mills.a.b"), definition("None")),
    ]);
    let late = |group: &str, plural: &str| {
        let key = ObjectKey::new(GroupResource::new(group, plural), "a", "x");
        LookFor { uid: SubjectId(1), key, since_ms: 0 }
    };
    let all = [late("a.b", "farms"), late("a.b", "mills"), late("networking.k8s.io", "ingresses"), late("", "pods")];
    let others = Others::ask(&fake.client(), &all).await.unwrap();
    let longest: Vec<i64> = all.iter().map(|one| others.longest_ms(&one.key.resource)).collect();
    assert_eq!(longest, [30_000, 0, 0, 0]);
}
