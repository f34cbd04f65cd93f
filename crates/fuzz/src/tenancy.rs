//! A server in memory with one tenant and one neighbour, the same at every start, behind the guard that the network has.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use axum::body::Body;
use http::Request;
use http_body_util::BodyExt;
use serde_json::Value;
use server::authn::{Accounts, Authenticator, BoundKind, DEFAULT_ISSUER, TokenFile, TokenSigner};
use server::front::{Gate, Guard, Watches, now_seconds};
use server::inflight::{InFlight, Limits};
use server::metrics::Metrics;
use server::registry::Registry;
use store::{Batch, SharedMemory, Space, Store, Table, Term};
use tokio::runtime::Runtime;
use tower::{Service, ServiceExt};

use crate::server_harness::{Reply, Server};

/// What the tenant may have at most; the quota that says so is not the tenant's to change.
pub const PODS_MAX: usize = 2;

/// `tenant` has nearly every right in `team-a`, and none elsewhere. Its token is its name.
const SETTING: &str = r#"
POST /api/v1/namespaces
  {"metadata": {"name": "team-a"}}
  201
POST /api/v1/namespaces
  {"metadata": {"name": "victim"}}
  201
POST /api/v1/namespaces/team-a/resourcequotas
  {"metadata": {"name": "small"}, "spec": {"hard": {"pods": "2", "requests.cpu": "1"}}}
  201
POST /api/v1/namespaces/victim/configmaps
  {"metadata": {"name": "private"}, "data": {"word": "hidden-from-tenants"}}
  201
POST /api/v1/namespaces/team-a/configmaps
  {"metadata": {"name": "own", "labels": {"a": "b"}}, "data": {"k": "v"}}
  201
POST /apis/rbac.authorization.k8s.io/v1/namespaces/team-a/roles
  {"metadata": {"name": "tenant"}, "rules": [{"apiGroups": ["", "apps", "batch", "policy"], "verbs": ["*"], "resources": ["pods", "pods/status", "pods/resize", "pods/eviction", "pods/binding", "configmaps", "secrets", "services", "persistentvolumeclaims", "deployments", "replicasets", "jobs", "events", "serviceaccounts", "poddisruptionbudgets"]}]}
  201
POST /apis/rbac.authorization.k8s.io/v1/namespaces/team-a/rolebindings
  {"metadata": {"name": "tenant"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "tenant"}, "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "tenant"}]}
  201
"#;

struct Nobody;

impl Accounts for Nobody {
    fn service_account_uid(&self, _: &str, _: &str) -> Option<String> {
        None
    }

    fn bound_uid(&self, _: BoundKind, _: &str, _: &str) -> Option<String> {
        None
    }

    fn pod_account(&self, _: &str, _: &str) -> Option<String> {
        None
    }
}

pub fn signer() -> TokenSigner {
    static KEY: OnceLock<String> = OnceLock::new();
    let key = KEY.get_or_init(|| rcgen::KeyPair::generate().expect("a key").serialize_pem());
    TokenSigner::new(key, DEFAULT_ISSUER).expect("a signer")
}

fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| {
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime")
    })
}

type Rows = BTreeMap<(Table, Vec<u8>), Vec<u8>>;

/// The rows of the setting, made once: every run begins with the same uids and revisions.
fn setting() -> &'static Rows {
    static ROWS: OnceLock<Rows> = OnceLock::new();
    ROWS.get_or_init(|| {
        runtime().block_on(async {
            let server = Server::start();
            server.play(SETTING).await;
            server.running.shutdown().await.expect("a clean end");
            server.place.rows()
        })
    })
}

/// Runs a check on a server of its own. The setting is made first: it needs the runtime for itself.
pub fn on_a_server<F: Future<Output = ()>>(check: impl FnOnce(Tenancy) -> F) {
    setting();
    runtime().block_on(async { check(Tenancy::start()).await });
}

/// One server, used for one input.
pub struct Tenancy {
    pub server: Server,
    gate: Arc<Gate>,
}

impl Tenancy {
    fn start() -> Tenancy {
        let place = SharedMemory::new();
        let mut batch = Batch::new();
        for ((table, key), value) in setting() {
            batch.put(*table, key, value);
        }
        place.acquire().commit(&batch).expect("memory takes everything");
        let server = Server::start_on(place);
        let tokens = TokenFile::parse("tenant,tenant,u-1,\n").expect("a token file");
        let authenticator = Arc::new(Authenticator::new(tokens, signer(), Arc::new(Nobody)));
        let metrics = Arc::new(Metrics::new(Arc::new(Registry::new()), &families::Families::new(Vec::new())));
        let gate = Gate {
            authenticator,
            rbac: server.rbac.clone(),
            in_flight: Arc::new(InFlight::new(Limits::default())),
            metrics,
            clock: now_seconds,
            term: Term::default(),
            space: Space::default(),
            denials: Arc::default(),
            watches: Arc::new(Watches::new(Term::default(), server.closing.clone())),
            closing: server.closing.clone(),
        };
        Tenancy { server, gate: Arc::new(gate) }
    }

    /// Asks as the network does: whoever the headers say.
    pub async fn ask(&self, request: Request<Body>) -> Reply {
        let mut guard = Guard::new(Arc::clone(&self.gate), self.server.api.clone());
        let answer = guard.ready().await.expect("infallible").call(request).await.expect("infallible");
        let (parts, body) = answer.into_parts();
        let bytes = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let value = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        Reply { code: parts.status, headers: parts.headers, text, value }
    }

    /// Nothing of the neighbour changed, and the tenant has no more than its quota says.
    pub async fn holds(&self) {
        let neighbour = self.admin("/api/v1/namespaces/victim").await;
        assert_eq!(neighbour["metadata"]["resourceVersion"], revision_of("victim"), "the neighbour's namespace");
        let private = self.admin("/api/v1/namespaces/victim/configmaps").await;
        assert_eq!(private["items"].as_array().map(Vec::len), Some(1), "the neighbour's objects");
        let pods = self.admin("/api/v1/namespaces/team-a/pods").await;
        let count = pods["items"].as_array().map_or(0, Vec::len);
        assert!(count <= PODS_MAX, "{count} pods under a quota of {PODS_MAX}");
        let quota = self.admin("/api/v1/namespaces/team-a/resourcequotas/small").await;
        let live = |pod: &&Value| !matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
        let live = pods["items"].as_array().map_or(0, |pods| pods.iter().filter(live).count());
        assert_eq!(quota["status"]["used"]["pods"].as_str(), Some(live.to_string().as_str()), "used is what is there");
    }

    async fn admin(&self, path: &str) -> Value {
        let request = Request::get(path).body(Body::empty()).expect("a request");
        self.server.send(request).await.value
    }

    pub async fn stop(self) {
        self.server.closing.cancel();
        self.server.running.shutdown().await.expect("a clean end");
    }
}

/// The revision a namespace has in the setting.
fn revision_of(namespace: &str) -> Value {
    static KNOWN: OnceLock<BTreeMap<String, Value>> = OnceLock::new();
    let known = KNOWN.get_or_init(|| {
        let texts = setting().iter().filter(|((table, _), _)| *table == Table::OBJECTS);
        let objects = texts.filter_map(|(_, value)| {
            // Facts come first, a random uid among them, in which a bracket may stand as well.
            let text = String::from_utf8_lossy(value);
            text.match_indices('{').find_map(|(at, _)| serde_json::from_str::<Value>(&text[at..]).ok())
        });
        let namespaces = objects.filter(|object| object["kind"] == "Namespace");
        namespaces
            .map(|object| {
                let metadata = &object["metadata"];
                (metadata["name"].as_str().unwrap_or_default().to_owned(), metadata["resourceVersion"].clone())
            })
            .collect()
    });
    known.get(namespace).cloned().unwrap_or(Value::Null)
}
