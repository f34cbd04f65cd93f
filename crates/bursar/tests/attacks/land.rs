//! A server with one tenant in several roles and one neighbour, and the language that attempts are written in.
//!
//! ```text
//! WHO METHOD PATH [TYPE] [BODY] -> CODE [text of the answer]
//! ```
//! WHO is `root`, or in the namespace `team-a` one of `view`, `edit`, `admin` (the ClusterRoles of these names), `star`
//! (every right there), `patcher` (may patch and nothing else); `definer` may create and delete definitions of custom
//! resources; `stranger` has a login and no rights, `nobody` has neither, `liar` shows a token that nobody gave out.
//! TYPE says how the body is to be read: `merge`, `patch` (JSON patch), `strategic`, `apply`, `yaml`; JSON otherwise. Bodies
//! hold no line breaks. Several codes are written `403|404`.

use http::Request;
use kube::Client;
use kube::client::Body;
use kube::config::AuthInfo;
use serde_json::{Value, json};

use crate::process::Process;

pub struct Land {
    process: Process,
    _folder: tempfile::TempDir,
    clients: Vec<(&'static str, Client)>,
    /// What the neighbour has, before anything is tried.
    before: String,
    tried: usize,
}

const WHO: &[&str] = &["view", "edit", "admin", "star", "patcher", "definer", "stranger"];

/// More than this the server must never have needed, whatever was tried.
const MEGABYTES_MAX: u64 = 600;

/// What the setting is made of; every line must succeed.
const SETTING: &str = r#"
root POST /api/v1/namespaces {"metadata": {"name": "team-a", "labels": {"tier": "gold"}}} -> 201
root POST /api/v1/namespaces {"metadata": {"name": "victim", "labels": {"tier": "gold"}}} -> 201
root POST /api/v1/namespaces/team-a/resourcequotas {"metadata": {"name": "small"}, "spec": {"hard": {"pods": "2", "requests.cpu": "1", "requests.storage": "10Gi", "services.nodeports": "1", "count/configmaps": "20"}}} -> 201
root POST /api/v1/namespaces/victim/resourcequotas {"metadata": {"name": "theirs"}, "spec": {"hard": {"pods": "7"}}} -> 201
root POST /api/v1/namespaces/victim/configmaps {"metadata": {"name": "private"}, "data": {"word": "zebra"}} -> 201
root POST /api/v1/namespaces/victim/secrets {"metadata": {"name": "key"}, "stringData": {"word": "zebra"}} -> 201
root POST /api/v1/namespaces/victim/pods {"metadata": {"name": "app"}, "spec": {"containers": [{"name": "c", "image": "zebra"}]}} -> 201
root POST /api/v1/namespaces/victim/serviceaccounts {"metadata": {"name": "robot"}} -> 201
root POST /api/v1/namespaces/team-a/serviceaccounts {"metadata": {"name": "ci"}} -> 201
root POST /api/v1/namespaces/team-a/serviceaccounts {"metadata": {"name": "other"}} -> 201
root POST /apis/storage.k8s.io/v1/storageclasses {"metadata": {"name": "fixed"}, "provisioner": "p", "allowVolumeExpansion": false} -> 201
root POST /apis/quota.openshift.io/v1/clusterresourcequotas {"metadata": {"name": "gold"}, "spec": {"selector": {"labels": {"matchLabels": {"tier": "gold"}}}, "quota": {"hard": {"secrets": "50"}}}} -> 201
root POST /apis/capsule.clastix.io/v1beta2/resourcepools {"metadata": {"name": "shared"}, "spec": {"selectors": [{"matchLabels": {"tier": "gold"}}], "config": {"defaultsZero": true}, "quota": {"hard": {"services": "4"}}}} -> 201
root POST /apis/capsule.clastix.io/v1beta2/namespaces/team-a/customquotas {"metadata": {"name": "disks"}, "spec": {"limit": "10", "sources": [{"apiVersion": "v1", "kind": "ConfigMap", "path": ".data.disk"}]}} -> 201
root POST /apis/hnc.x-k8s.io/v1alpha2/namespaces/victim/hierarchicalresourcequotas {"metadata": {"name": "tree"}, "spec": {"hard": {"count/leases.coordination.k8s.io": "3"}}} -> 201
root POST /apis/rbac.authorization.k8s.io/v1/namespaces/team-a/roles {"metadata": {"name": "star"}, "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]} -> 201
root POST /apis/rbac.authorization.k8s.io/v1/namespaces/team-a/roles {"metadata": {"name": "patcher"}, "rules": [{"apiGroups": ["", "apps"], "resources": ["pods", "configmaps", "deployments"], "verbs": ["patch"]}]} -> 201
root POST /apis/rbac.authorization.k8s.io/v1/clusterroles {"metadata": {"name": "definer"}, "rules": [{"apiGroups": ["apiextensions.k8s.io"], "resources": ["customresourcedefinitions"], "verbs": ["create", "delete", "get", "update", "patch"]}]} -> 201
root POST /apis/rbac.authorization.k8s.io/v1/clusterrolebindings {"metadata": {"name": "definer"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "definer"}, "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "definer"}]} -> 201
root POST /api/v1/namespaces/team-a/configmaps {"metadata": {"name": "own"}, "data": {"disk": "1"}} -> 201
root POST /api/v1/namespaces/team-a/persistentvolumeclaims {"metadata": {"name": "volume"}, "spec": {"storageClassName": "fixed", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}} -> 201
"#;

impl Land {
    pub async fn start() -> Land {
        Land::start_with("").await
    }

    /// With further lines of the configuration.
    pub async fn start_with(further: &str) -> Land {
        let folder = tempfile::tempdir().expect("a folder");
        let tokens: String = WHO.iter().map(|who| format!("{who}-token-0123456789,{who},u-{who},\n")).collect();
        let token_file = folder.path().join("tokens.csv");
        std::fs::write(&token_file, tokens).expect("tokens");
        let config = folder.path().join("bursar.yaml");
        std::fs::write(&config, format!("tokenFile: {}\n{further}", token_file.display())).expect("a configuration");
        let config = config.display().to_string();
        let process = Process::start(&folder.path().join("data"), &["--config", &config]).await;
        let mut clients = vec![("root", client(&process, None).await)];
        for who in WHO {
            clients.push((who, client(&process, Some(&format!("{who}-token-0123456789"))).await));
        }
        clients.push(("nobody", client(&process, Some("")).await));
        clients.push(("liar", client(&process, Some("no-such-token-0123456789")).await));
        let mut land = Land { process, _folder: folder, clients, before: String::new(), tried: 0 };
        land.play(SETTING).await;
        for (role, kind) in [
            ("view", "ClusterRole"),
            ("edit", "ClusterRole"),
            ("admin", "ClusterRole"),
            ("star", "Role"),
            ("patcher", "Role"),
        ] {
            let api = "rbac.authorization.k8s.io";
            let binding = json!({
                "metadata": {"name": role},
                "roleRef": {"apiGroup": api, "kind": kind, "name": role},
                "subjects": [{"kind": "User", "apiGroup": api, "name": role}],
            });
            let path = "/apis/rbac.authorization.k8s.io/v1/namespaces/team-a/rolebindings";
            let (code, text) = land.send("root", "POST", path, "", &binding.to_string()).await;
            assert_eq!(code, 201, "{text}");
        }
        land.before = land.neighbour().await;
        land.tried = 0;
        land
    }

    /// Further lines of the setting, after which the neighbour is to stay as it is.
    pub async fn set(&mut self, table: &str) {
        self.play(table).await;
        self.before = self.neighbour().await;
        self.tried = 0;
    }

    /// Tries every line of a table, and fails with the first that is answered otherwise.
    pub async fn play(&mut self, table: &str) {
        for line in table.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let (attempt, expected) = line.rsplit_once(" -> ").unwrap_or_else(|| panic!("no arrow: {line}"));
            let mut words = attempt.splitn(4, ' ');
            let mut word = || words.next().unwrap_or_default();
            let (who, method, path, rest) = (word(), word(), word(), word());
            let (form, body) = match rest.split_once(' ') {
                Some((form, body)) if form.chars().all(char::is_alphabetic) => (form, body),
                _ => ("", rest),
            };
            self.attempt((who, method, path, form, body), expected).await;
        }
    }

    /// One attempt; the rest of `expected` behind the code is text that the answer contains.
    pub async fn attempt(
        &mut self,
        (who, method, path, form, body): (&str, &str, &str, &str, &str),
        expected: &str,
    ) -> String {
        let (code, text) = self.send(who, method, path, form, body).await;
        let (codes, words) = expected.split_once(' ').unwrap_or((expected, ""));
        let shown: String = body.chars().take(300).collect();
        assert!(
            codes.split('|').any(|wanted| wanted == code.to_string()),
            "{who} {method} {path} {form} {shown}\nexpected {expected}, answered {code} {text}"
        );
        assert!(
            text.contains(words),
            "{who} {method} {path} {form} {shown}\nexpected {expected}, answered {code} {text}"
        );
        let peak = self.process.peak_megabytes();
        assert!(peak < MEGABYTES_MAX, "{who} {method} {path} {form} {shown}\nthe server has held {peak} MB");
        self.tried += 1;
        text
    }

    /// A read that shows this token and nothing else.
    pub async fn attempt_with_token(&mut self, token: &str, path: &str, expected: &str) {
        let client = self.process.client_with_token(token).await;
        self.read((&format!("{token:?}"), &client), &[], path, expected).await;
    }

    /// A read with further headers.
    pub async fn attempt_with_headers(&mut self, who: &str, headers: &[(&str, &str)], path: &str, expected: &str) {
        let client = self.client(who).clone();
        self.read((who, &client), headers, path, expected).await;
    }

    async fn read(&mut self, (who, client): (&str, &Client), headers: &[(&str, &str)], path: &str, expected: &str) {
        let mut request = Request::builder().method("GET").uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer = client.send(request.body(Body::empty()).expect("a request")).await.expect("an answer");
        let code = answer.status().as_u16().to_string();
        assert!(expected.split('|').any(|wanted| wanted == code), "{who} {headers:?} {path}: {code}");
        self.tried += 1;
    }

    pub async fn config(&self) -> kube::Config {
        self.process.config().await
    }

    fn client(&self, who: &str) -> &Client {
        let found = self.clients.iter().find(|(name, _)| *name == who);
        found.map(|(_, client)| client).unwrap_or_else(|| panic!("who is {who}?"))
    }

    pub async fn send(&self, who: &str, method: &str, path: &str, form: &str, body: &str) -> (u16, String) {
        let kind = match form {
            "merge" => "application/merge-patch+json",
            "patch" => "application/json-patch+json",
            "strategic" => "application/strategic-merge-patch+json",
            "apply" => "application/apply-patch+yaml",
            "yaml" => "application/yaml",
            _ => "application/json",
        };
        let client = self.client(who);
        let request = Request::builder().method(method).uri(path).header("Content-Type", kind);
        let request = request.body(Body::from(typed(method, path, body).into_bytes())).expect("a request");
        let answer = client.send(request).await.unwrap_or_else(|error| panic!("{who} {method} {path}: {error}"));
        let code = answer.status().as_u16();
        let bytes = answer.into_body().collect_bytes().await.unwrap_or_default();
        (code, String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Everything of the neighbour's, with its versions, and what no tenant may change.
    async fn neighbour(&self) -> String {
        let mut all = String::new();
        for path in [
            "/api/v1/namespaces/victim",
            "/api/v1/namespaces/victim/configmaps",
            "/api/v1/namespaces/victim/secrets",
            "/api/v1/namespaces/victim/pods",
            "/api/v1/namespaces/victim/serviceaccounts",
            "/api/v1/namespaces/victim/resourcequotas/theirs",
            "/apis/rbac.authorization.k8s.io/v1/clusterroles",
            "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        ] {
            let (code, text) = self.send("root", "GET", path, "", "").await;
            assert_eq!(code, 200, "{path}: {text}");
            let mut value: Value = serde_json::from_str(&text).expect("JSON");
            if let Some(metadata) = value["metadata"].as_object_mut().filter(|_| path.ends_with('s')) {
                // The version of a list is that of the whole server.
                metadata.remove("resourceVersion");
            }
            all.push_str(&value.to_string());
        }
        all
    }

    /// Waits until an object is as wanted.
    pub async fn until(&self, path: &str, is_as_wanted: impl Fn(&Value) -> bool) -> Value {
        let begun = std::time::Instant::now();
        loop {
            let (_, text) = self.send("root", "GET", path, "", "").await;
            let value: Value = serde_json::from_str(&text).expect("JSON");
            if is_as_wanted(&value) {
                return value;
            }
            assert!(begun.elapsed().as_secs() < 60, "{path} stays {value}");
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    }

    /// Waits until an object is not there any more.
    pub async fn until_gone(&self, path: &str) {
        let begun = std::time::Instant::now();
        while self.send("root", "GET", path, "", "").await.0 != 404 {
            assert!(begun.elapsed().as_secs() < 60, "{path} stays");
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    }

    /// How many attempts were made; the neighbour is as it was, the books are right, the server alive and small.
    pub async fn end(self) -> usize {
        let (code, text) = self.send("root", "GET", "/readyz", "", "").await;
        assert_eq!(code, 200, "{text}");
        assert_eq!(self.neighbour().await, self.before, "the neighbour was changed");
        let (code, report) = self.send("root", "GET", "/debug/audit", "", "").await;
        let report: Value = serde_json::from_str(&report).expect("a report");
        assert_eq!((code, &report["differences"]), (200, &json!([])), "{report}");
        let peak = self.process.peak_megabytes();
        assert!(peak < MEGABYTES_MAX, "the server has held {peak} MB");
        let tried = self.tried;
        assert_eq!(self.process.stop().await, Some(0));
        tried
    }
}

/// A client that shows this token, or else the owner's certificate. It takes the first answer for an answer: one that asks again
/// when it is told to come back later would wait for minutes where that is what is expected.
async fn client(process: &Process, token: Option<&str>) -> Client {
    let mut config = process.config().await;
    config.default_retry = false;
    if let Some(token) = token {
        config.auth_info = AuthInfo { token: Some(token.to_owned().into()), ..AuthInfo::default() };
    }
    Client::try_from(config).expect("a client")
}

/// A custom resource says what it is; the tables need not repeat it.
fn typed(method: &str, path: &str, body: &str) -> String {
    const KINDS: &[(&str, &str)] = &[
        ("/resourcepoolclaims", "ResourcePoolClaim"),
        ("/resourcepools", "ResourcePool"),
        ("/globalcustomquotas", "GlobalCustomQuota"),
        ("/customquotas", "CustomQuota"),
        ("/clusterresourcequotas", "ClusterResourceQuota"),
        ("/hierarchicalresourcequotas", "HierarchicalResourceQuota"),
        ("/hierarchyconfigurations", "HierarchyConfiguration"),
        ("/subnamespaceanchors", "SubnamespaceAnchor"),
    ];
    let known = KINDS.iter().find(|(plural, _)| matches!(method, "POST" | "PUT") && path.contains(plural));
    let value: Option<Value> = known.and_then(|_| serde_json::from_str(body).ok());
    let (Some((_, kind)), Some(mut value)) = (known, value) else { return body.to_owned() };
    if value.get("kind").is_none() {
        let group: Vec<&str> = path.trim_start_matches("/apis/").splitn(3, '/').take(2).collect();
        value["apiVersion"] = json!(group.join("/"));
        value["kind"] = json!(kind);
    }
    value.to_string()
}
