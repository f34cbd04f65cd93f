//! One task for each member cluster, begun when the cluster is registered and again when its address or its credentials change.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Secret;
use kube::api::DynamicObject;
use kube::client::ClientBuilder;
use kube::config::{
    AuthInfo, Cluster as Address, Context, KubeConfigOptions, Kubeconfig, NamedAuthInfo, NamedCluster, NamedContext,
};
use kube::{Api, Client, ResourceExt};
use serde_json::Value;
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use super::super::Settings;
use super::bounded::Bounded;
use super::detector::words;
use super::kind::{clusters, fingerprint, is_leaving};
use super::watch::Watch;
use super::{heartbeat, member};

/// How soon a cluster whose credentials cannot be read is tried again.
const RETRY: Duration = Duration::from_secs(2);
/// How long a connection, and an answer, may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How long a Secret that was read is believed.
const SECRET_KEPT: Duration = Duration::from_secs(10);

pub async fn run(client: Client, settings: Arc<Settings>) {
    let (watch, [mirror]) = Watch::begin(&client, [clusters()]).await;
    let grace = Duration::from_secs(settings.grace_seconds);
    let mut running: HashMap<String, (u64, JoinSet<()>)> = HashMap::new();
    // Those that nobody is asked about, and since when.
    let mut unreached: HashMap<String, Instant> = HashMap::new();
    loop {
        let mut is_settled = true;
        let all = mirror.all();
        running.retain(|name, _| all.iter().any(|cluster| cluster.name_any() == *name));
        unreached.retain(|name, _| all.iter().any(|cluster| cluster.name_any() == *name));
        for cluster in all.iter().filter(|cluster| !is_leaving(cluster)) {
            let name = cluster.name_any();
            let reach = match reach(&client, cluster).await {
                Ok(None) => {
                    running.remove(&name);
                    unreached.remove(&name);
                    continue;
                }
                Ok(Some(reach)) if running.get(&name).is_some_and(|(known, _)| *known == reach.mark) => continue,
                Ok(Some(reach)) => Ok((reach.mark, reach.connect().await)),
                Err(why) => Err(why),
            };
            match reach {
                Ok((mark, Ok(access))) => {
                    let mut task = JoinSet::new();
                    task.spawn(member::run(client.clone(), access, cluster.name_any(), settings.clone()));
                    unreached.remove(&name);
                    running.insert(name, (mark, task));
                }
                Ok((_, Err(why))) | Err(why) => {
                    tracing::debug!(cluster = name, why, "a member cannot be reached yet");
                    is_settled = false;
                    // Whoever is asked tells how it is; of one that cannot be asked nobody else does.
                    let since = unreached.entry(name.clone()).or_insert_with(Instant::now);
                    if !running.contains_key(&name) && since.elapsed() >= grace {
                        heartbeat::tell_unreached(&client, &name, &why).await;
                    }
                }
            }
        }
        // Secrets are not watched: new credentials are found in a while.
        watch.rung(if is_settled { Duration::from_secs(30) } else { RETRY }).await;
    }
}

/// How a member is reached: its address and its credentials, and a number that changes when they do.
struct Reach {
    mark: u64,
    address: Address,
    token: String,
}

/// Reads it from a Cluster and its Secret; `None` where a member is not reached from here.
async fn reach(client: &Client, cluster: &DynamicObject) -> Result<Option<Reach>, String> {
    let spec = &cluster.data["spec"];
    let text = |value: &Value| value.as_str().unwrap_or("").to_owned();
    let endpoint = text(&spec["apiEndpoint"]);
    if text(&spec["syncMode"]) != "Push" || endpoint.is_empty() {
        return Ok(None);
    }
    let (namespace, name) = (text(&spec["secretRef"]["namespace"]), text(&spec["secretRef"]["name"]));
    if namespace.is_empty() || name.is_empty() {
        return Err("it names no secret".into());
    }
    let secrets: Api<Secret> = Api::namespaced(client.clone(), &namespace);
    let secret = secrets.get(&name).await.map_err(|error| words(&error))?;
    let data = secret.data.unwrap_or_default();
    let part = |key: &str| data.get(key).map(|bytes| bytes.0.clone());
    let token = part("token").and_then(|bytes| String::from_utf8(bytes).ok()).ok_or("its secret has no token")?;
    let ca = part("caBundle").or_else(|| part("ca.crt"));
    let skips = spec["insecureSkipTLSVerification"] == true;
    let mark = fingerprint(&format!("{endpoint} {token} {ca:?} {skips}"));
    let address = Address {
        server: Some(endpoint),
        certificate_authority_data: ca.map(|bytes| base64(&bytes)),
        insecure_skip_tls_verify: Some(skips),
        ..Address::default()
    };
    Ok(Some(Reach { mark, address, token: token.trim().to_owned() }))
}

impl Reach {
    async fn connect(self) -> Result<Client, String> {
        let named = |name: &str| name.to_owned();
        let cluster = NamedCluster { name: named("member"), cluster: Some(self.address), ..NamedCluster::default() };
        let user = AuthInfo { token: Some(self.token.into()), ..AuthInfo::default() };
        let context = Context { cluster: named("member"), user: Some(named("bursar")), ..Context::default() };
        let kubeconfig = Kubeconfig {
            clusters: vec![cluster],
            auth_infos: vec![NamedAuthInfo {
                name: named("bursar"),
                auth_info: Some(user),
                ..NamedAuthInfo::default()
            }],
            contexts: vec![NamedContext { name: named("member"), context: Some(context), ..NamedContext::default() }],
            current_context: Some(named("member")),
            ..Kubeconfig::default()
        };
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
        let mut config = config.map_err(|error| error.to_string())?;
        config.connect_timeout = Some(TIMEOUT);
        config.write_timeout = Some(TIMEOUT);
        let builder = ClientBuilder::try_from(config).map_err(|error| error.to_string())?;
        Ok(builder.with_layer(&Bounded).build())
    }
}

/// Clients of members, made once and kept for as long as their address and credentials are the same.
#[derive(Default)]
pub struct Clients {
    known: Mutex<HashMap<String, Known>>,
}

#[derive(Clone)]
struct Known {
    /// The Cluster's spec, as it was.
    spec: Value,
    mark: u64,
    client: Client,
    /// When its Secret was read.
    read: Instant,
}

impl Clients {
    /// A member's client. Its Secret is read again after a while, or when its Cluster says something else.
    pub async fn of(&self, client: &Client, cluster: &DynamicObject) -> Result<Client, String> {
        let name = cluster.name_any();
        let known = self.known.lock().await.get(&name).filter(|one| one.spec == cluster.data["spec"]).cloned();
        if let Some(known) = known.as_ref().filter(|one| one.read.elapsed() < SECRET_KEPT) {
            return Ok(known.client.clone());
        }
        let reach = reach(client, cluster).await?.ok_or("it is not reached from here")?;
        let (spec, mark, read) = (cluster.data["spec"].clone(), reach.mark, Instant::now());
        let client = match known.filter(|one| one.mark == mark) {
            Some(known) => known.client,
            None => reach.connect().await?,
        };
        self.known.lock().await.insert(name, Known { spec, mark, client: client.clone(), read });
        Ok(client)
    }

    /// A member that is reached in another way.
    #[cfg(test)]
    pub async fn put(&self, cluster: &DynamicObject, client: Client) {
        let known = Known { spec: cluster.data["spec"].clone(), mark: 0, client, read: Instant::now() };
        self.known.lock().await.insert(cluster.name_any(), known);
    }

    /// Forgets members that are registered no more.
    pub async fn retain(&self, is_there: impl Fn(&str) -> bool) {
        self.known.lock().await.retain(|name, _| is_there(name));
    }
}

/// As a kubeconfig carries bytes.
fn base64(bytes: &[u8]) -> String {
    let text = serde_json::to_value(k8s_openapi::ByteString(bytes.to_vec())).ok();
    text.and_then(|text| text.as_str().map(str::to_owned)).unwrap_or_default()
}
