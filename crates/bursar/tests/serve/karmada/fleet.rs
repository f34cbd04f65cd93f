//! A control plane with members that can be killed, cut off and brought back.

use std::path::PathBuf;
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DynamicObject, PostParams};
use kube::config::Kubeconfig;
use kube::core::ApiResource;
use kube::runtime::wait::await_condition;
use serde_json::json;

use super::{TEAM, api, clusters, create, taint_policies};
use crate::harness::{PATIENCE, part};
use crate::process::Process;
use crate::proxy::{Mode, Proxy};

pub const TOKEN: &str = "member-token-for-tests";

pub struct Fleet {
    pub centre: Process,
    pub client: kube::Client,
    pub members: Vec<Member>,
    folder: tempfile::TempDir,
}

pub struct Member {
    pub name: &'static str,
    process: Option<Process>,
    data: PathBuf,
    config: PathBuf,
    pub client: kube::Client,
    address: String,
    /// Between the control plane and the member.
    line: Proxy,
}

impl Member {
    async fn start(name: &'static str, folder: &std::path::Path, listen: &str) -> Member {
        let (data, config) = (folder.join(name), folder.join("member.yaml"));
        let arguments = ["--config", config.to_str().expect("a path"), "--listen", listen];
        let process = Process::start(&data, &arguments).await;
        let client = process.client().await;
        let url = process.config().await.cluster_url.to_string();
        let address = url.trim_start_matches("https://").trim_end_matches('/').to_owned();
        let port = address.rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port");
        Member { name, process: Some(process), data, config, client, address, line: Proxy::to(port) }
    }

    /// Cuts it off from the control plane. Whoever is with it reaches it as before.
    pub fn cut_off(&self) {
        self.line.set(Mode::Silent);
        self.line.reset();
    }

    pub fn reconnect(&self) {
        self.line.set(Mode::Open);
        self.line.reset();
    }

    /// It stands still, for everybody (`STOP`), or goes on (`CONT`).
    pub async fn signal(&self, name: &str) {
        self.process.as_ref().expect("it runs").signal(name).await;
    }

    /// Ends the process without warning.
    pub async fn kill(&mut self) {
        if let Some(process) = self.process.take() {
            process.kill().await;
        }
    }

    /// Brings it back with what it had, at the same address.
    pub async fn come_back(&mut self) {
        let arguments = ["--config", self.config.to_str().expect("a path"), "--listen", &self.address];
        self.process = Some(Process::start(&self.data, &arguments).await);
        self.client = self.process.as_ref().expect("it runs").client().await;
    }
}

impl Fleet {
    /// A control plane with these members, all with the team's namespace and Flink's kind.
    pub async fn start(names: &[&'static str], settings: &str) -> Fleet {
        let folder = tempfile::tempdir().expect("a folder");
        let tokens = folder.path().join("tokens.csv");
        std::fs::write(&tokens, format!("{TOKEN},member-admin,1,\"system:masters\"\n")).expect("writes");
        std::fs::set_permissions(&tokens, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("permissions");
        std::fs::write(
            folder.path().join("member.yaml"),
            format!("tokenFile: {}\nkarmada: {{gatePods: true}}\n", tokens.display()),
        )
        .expect("writes");
        let config = folder.path().join("bursar.yaml");
        // Templates of the control plane are for members: nothing makes pods of them here.
        let controllers = "controllers: ['*', '-deployment', '-replicaset']";
        let text = format!("{controllers}\nkarmada: {{heartbeatSeconds: 1, graceSeconds: 2{settings}}}\n");
        std::fs::write(&config, text).expect("writes");
        let (centre, client) = start_centre(folder.path()).await;
        prepare(&client).await;
        let mut fleet = Fleet { centre, client, members: Vec::new(), folder };
        for name in names {
            let member = Member::start(name, fleet.folder.path(), "127.0.0.1:0").await;
            prepare(&member.client).await;
            fleet.register(&member).await;
            fleet.members.push(member);
        }
        for name in names {
            fleet.until(&clusters(), name, |cluster| condition(cluster, "Ready") == "True").await;
        }
        fleet
    }

    async fn register(&self, member: &Member) {
        let config =
            Kubeconfig::read_from(member.process.as_ref().expect("it runs").kubeconfig()).expect("a kubeconfig");
        let ca =
            config.clusters[0].cluster.clone().expect("a cluster").certificate_authority_data.expect("a certificate");
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": member.name},
            "stringData": {"token": TOKEN}, "data": {"caBundle": ca}});
        let secrets: Api<k8s_openapi::api::core::v1::Secret> = Api::namespaced(self.client.clone(), "default");
        secrets.create(&PostParams::default(), &crate::object(secret)).await.expect("a secret");
        let endpoint = format!("https://127.0.0.1:{}", member.line.port);
        let spec = json!({
            "syncMode": "Push", "apiEndpoint": endpoint, "secretRef": {"namespace": "default", "name": member.name},
        });
        create(&self.client, &clusters(), member.name, spec).await.expect("a cluster");
    }

    /// Evicts from clusters that are not well, as an administrator who wants failover says it.
    pub async fn fail_over(&self) {
        let unwell = json!([{"conditionType": "Ready", "operator": "NotIn", "statusValues": ["True"]}]);
        let well = json!([{"conditionType": "Ready", "operator": "In", "statusValues": ["True"]}]);
        let spec = json!({
            "addOnConditions": unwell, "removeOnConditions": well,
            "taints": [{"key": "failed", "effect": "NoExecute"}],
        });
        create(&self.client, &taint_policies(), "failed", spec).await.expect("a policy");
    }

    /// Ends the control plane without warning and starts it again with what it had.
    pub async fn restart_centre(self) -> Fleet {
        let Fleet { centre, members, folder, .. } = self;
        centre.kill().await;
        let (centre, client) = start_centre(folder.path()).await;
        Fleet { centre, client, members, folder }
    }

    pub fn member(&mut self, name: &str) -> &mut Member {
        self.members.iter_mut().find(|member| member.name == name).expect("a member")
    }

    /// Waits until an object of the control plane is as wanted.
    pub async fn until(&self, of: &ApiResource, name: &str, wanted: impl Fn(&DynamicObject) -> bool) -> DynamicObject {
        until(&self.client, of, name, wanted).await
    }

    /// What kubectl says of the control plane.
    pub async fn kubectl(&self, words: &[&str]) -> String {
        let mut command = tokio::process::Command::new(part("kubectl"));
        command.arg("--kubeconfig").arg(self.centre.kubeconfig());
        command.arg(format!("--cache-dir={}", self.folder.path().join("kubectl-cache").display()));
        let output = command.args(words).output().await.expect("kubectl ends");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Creates a namespaced object in the control plane.
    pub async fn create(&self, of: &ApiResource, name: &str, spec: serde_json::Value) {
        create(&self.client, of, name, spec).await.expect("it is created");
    }
}

async fn start_centre(folder: &std::path::Path) -> (Process, kube::Client) {
    let config = folder.join("bursar.yaml").display().to_string();
    let centre = Process::start(&folder.join("centre"), &["--config", &config]).await;
    let client = centre.client().await;
    (centre, client)
}

/// Waits until an object is as wanted.
pub async fn until(
    client: &kube::Client,
    of: &ApiResource,
    name: &str,
    wanted: impl Fn(&DynamicObject) -> bool,
) -> DynamicObject {
    let is_wanted = |object: Option<&DynamicObject>| object.is_some_and(&wanted);
    let seen = tokio::time::timeout(PATIENCE, await_condition(api(client, of), name, is_wanted)).await;
    match seen {
        Ok(seen) => seen.expect("a watch").expect("it is there"),
        Err(_) => {
            let last = api(client, of).get_opt(name).await;
            panic!("{} {name} never was as wanted, last: {last:#?}", of.kind)
        }
    }
}

/// Waits until an object is gone.
pub async fn until_gone(client: &kube::Client, of: &ApiResource, name: &str) {
    let is_gone = |object: Option<&DynamicObject>| object.is_none();
    let gone = tokio::time::timeout(PATIENCE, await_condition(api(client, of), name, is_gone)).await;
    gone.unwrap_or_else(|_| panic!("{} {name} never went", of.kind)).expect("a watch");
}

pub fn condition(object: &DynamicObject, of: &str) -> String {
    let list = object.data["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let found = list.into_iter().find(|one| one["type"] == of).unwrap_or_default();
    found["status"].as_str().unwrap_or("").to_owned()
}

/// The team's namespace and the kinds of Flink and Spark.
async fn prepare(client: &kube::Client) {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let team = crate::object(json!({"metadata": {"name": TEAM}}));
    namespaces.create(&PostParams::default(), &team).await.expect("a namespace");
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    for text in include_str!("../../../../../examples/karmada/kinds.yaml").split("\n---\n") {
        let definition: CustomResourceDefinition = serde_saphyr::from_str(text).expect("a definition");
        let name = definition.metadata.name.clone().expect("a name");
        definitions.create(&PostParams::default(), &definition).await.expect("it is defined");
        let is_established = kube::runtime::conditions::is_crd_established();
        let seen = await_condition(definitions.clone(), &name, is_established);
        tokio::time::timeout(Duration::from_secs(30), seen).await.expect("in time").expect("a watch");
    }
}
