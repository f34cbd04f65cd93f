//! Member clusters of a tour: servers of their own, which the tour starts, kills and brings back.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Child;

use anyhow::Context as _;
use kube::api::{DynamicObject, PostParams};
use kube::config::Kubeconfig;
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::examples::Example;
use super::kubectl::{Kubectl, Said};
use super::spawn;

const TOKEN: &str = "token-of-the-tour";

/// All members of one tour. They end with it.
pub struct Members<'a> {
    client: Client,
    example: &'a Example,
    folder: tempfile::TempDir,
    servers: BTreeMap<String, Server>,
}

struct Server {
    process: Option<Child>,
    address: String,
    client: Client,
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

impl<'a> Members<'a> {
    pub fn new(client: Client, example: &'a Example) -> anyhow::Result<Members<'a>> {
        let folder = tempfile::tempdir().context("a folder for member clusters")?;
        Ok(Members { client, example, folder, servers: BTreeMap::new() })
    }

    /// Runs `start NAME` and `kill NAME`; `None` for what is no command of members.
    pub async fn run(&mut self, line: &str) -> Option<Said> {
        let done = match line.split_once(' ')? {
            ("start", name) => self.start(name).await,
            ("kill", name) => self.kill(name),
            _ => return None,
        };
        Some(match done {
            Ok(text) => Said { ok: true, text },
            Err(error) => Said { ok: false, text: format!("{error:#}\n") },
        })
    }

    /// Speaks to the member that a command line names (`kubectl --context NAME`).
    pub fn kubectl(&self, line: &str) -> Option<(Kubectl<'a>, String)> {
        let rest = line.strip_prefix("kubectl --context ")?;
        let (name, rest) = rest.split_once(' ')?;
        let client = self.servers.get(name)?.client.clone();
        Some((Kubectl::new(client, self.example), format!("kubectl {rest}")))
    }

    async fn start(&mut self, name: &str) -> anyhow::Result<String> {
        let known = self.servers.get(name).map(|server| server.address.clone());
        let folder = self.folder.path().join(name);
        let (config, kubeconfig) = (self.config()?, folder.join("kubeconfig"));
        let listen = known.clone().unwrap_or_else(|| "127.0.0.1:0".into());
        let arguments = [
            "--listen".into(),
            listen.into(),
            "--config".into(),
            config.into_os_string(),
            "--data".into(),
            folder.into_os_string(),
            "--kubeconfig".into(),
            kubeconfig.clone().into_os_string(),
        ];
        let process = spawn(&arguments)?;
        let read = Kubeconfig::read_from(kubeconfig)?;
        let ca = read.clusters.first().and_then(|one| one.cluster.as_ref()?.certificate_authority_data.clone());
        let config = kube::Config::from_custom_kubeconfig(read, &Default::default()).await?;
        let url = config.cluster_url.to_string();
        let address = url.trim_start_matches("https://").trim_end_matches('/').to_owned();
        let client = Client::try_from(config)?;
        let server = Server { process: Some(process), address: address.clone(), client: client.clone() };
        self.servers.insert(name.to_owned(), server);
        if known.is_some() {
            return Ok(format!("{name} is back at https://{address}\n"));
        }
        // What operators would bring.
        let said = Kubectl::new(client, self.example).run("kubectl create -f kinds.yaml").await;
        anyhow::ensure!(said.ok, "{name}: {}", said.text);
        self.register(name, &address, ca.context("the member has no certificate")?).await?;
        Ok(format!("{name} serves at https://{address}\n"))
    }

    /// A Secret and a Cluster, as an administrator would write them.
    async fn register(&self, name: &str, address: &str, ca: String) -> anyhow::Result<()> {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name},
            "stringData": {"token": TOKEN}, "data": {"caBundle": ca},
        });
        let secrets = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Secret"));
        create(&Api::namespaced_with(self.client.clone(), "default", &secrets), secret).await?;
        let cluster = json!({
            "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster", "metadata": {"name": name},
            "spec": {
                "syncMode": "Push", "apiEndpoint": format!("https://{address}"),
                "secretRef": {"namespace": "default", "name": name},
            },
        });
        let clusters = ApiResource::from_gvk(&GroupVersionKind::gvk("cluster.karmada.io", "v1alpha1", "Cluster"));
        create(&Api::all_with(self.client.clone(), &clusters), cluster).await
    }

    /// The configuration of members, with the token that the control plane shows them.
    fn config(&self) -> anyhow::Result<PathBuf> {
        let (config, tokens) = (self.folder.path().join("member.yaml"), self.folder.path().join("tokens.csv"));
        std::fs::write(&tokens, format!("{TOKEN},tour,1,\"system:masters\"\n"))?;
        std::fs::set_permissions(&tokens, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
        std::fs::write(&config, format!("tokenFile: {}\n", tokens.display()))?;
        Ok(config)
    }

    fn kill(&mut self, name: &str) -> anyhow::Result<String> {
        let server = self.servers.get_mut(name).with_context(|| format!("there is no member {name:?}"))?;
        let mut process = server.process.take().with_context(|| format!("{name} does not run"))?;
        process.kill()?;
        process.wait()?;
        Ok(format!("{name} is gone\n"))
    }
}

async fn create(api: &Api<DynamicObject>, object: Value) -> anyhow::Result<()> {
    let object: DynamicObject = serde_json::from_value(object)?;
    api.create(&PostParams::default(), &object).await?;
    Ok(())
}
