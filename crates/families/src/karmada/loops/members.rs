//! One task for each member cluster, begun when the cluster is registered and again when its address or its credentials change.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::api::DynamicObject;
use kube::config::{
    AuthInfo, Cluster as Address, Context, KubeConfigOptions, Kubeconfig, NamedAuthInfo, NamedCluster, NamedContext,
};
use kube::{Api, Client, ResourceExt};
use serde_json::Value;
use tokio::task::JoinSet;

use super::super::Settings;
use super::kind::{clusters, fingerprint, is_leaving};
use super::member;
use super::watch::Watch;

/// How soon a cluster whose credentials cannot be read is tried again.
const RETRY: Duration = Duration::from_secs(2);
/// How long a connection, and an answer, may take.
const TIMEOUT: Duration = Duration::from_secs(10);

pub async fn run(client: Client, settings: Arc<Settings>) {
    let (watch, [mirror]) = Watch::begin(&client, [clusters()]).await;
    let mut running: HashMap<String, (u64, JoinSet<()>)> = HashMap::new();
    loop {
        let mut is_settled = true;
        let all = mirror.all();
        running.retain(|name, _| all.iter().any(|cluster| cluster.name_any() == *name));
        for cluster in all.iter().filter(|cluster| !is_leaving(cluster)) {
            let name = cluster.name_any();
            match access(&client, cluster).await {
                Ok(None) => drop(running.remove(&name)),
                Ok(Some((mark, _))) if running.get(&name).is_some_and(|(known, _)| *known == mark) => {}
                Ok(Some((mark, access))) => {
                    let mut task = JoinSet::new();
                    task.spawn(member::run(client.clone(), access, cluster.name_any(), settings.clone()));
                    running.insert(name, (mark, task));
                }
                Err(why) => {
                    tracing::debug!(cluster = name, why, "a member cannot be reached yet");
                    is_settled = false;
                }
            }
        }
        // Secrets are not watched: new credentials are found in a while.
        watch.rung(if is_settled { Duration::from_secs(30) } else { RETRY }).await;
    }
}

/// A client for a member, from its address and its Secret; with a number that changes when they do.
pub async fn access(client: &Client, cluster: &DynamicObject) -> Result<Option<(u64, Client)>, String> {
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
    let secret = secrets.get(&name).await.map_err(|error| error.to_string())?;
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
    let named = |name: &str| name.to_owned();
    let kubeconfig = Kubeconfig {
        clusters: vec![NamedCluster { name: named("member"), cluster: Some(address), ..NamedCluster::default() }],
        auth_infos: vec![NamedAuthInfo {
            name: named("bursar"),
            auth_info: Some(AuthInfo { token: Some(token.trim().to_owned().into()), ..AuthInfo::default() }),
            ..NamedAuthInfo::default()
        }],
        contexts: vec![NamedContext {
            name: named("member"),
            context: Some(Context { cluster: named("member"), user: Some(named("bursar")), ..Context::default() }),
            ..NamedContext::default()
        }],
        current_context: Some(named("member")),
        ..Kubeconfig::default()
    };
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    let mut config = config.map_err(|error| error.to_string())?;
    config.connect_timeout = Some(TIMEOUT);
    config.write_timeout = Some(TIMEOUT);
    let client = Client::try_from(config).map_err(|error| error.to_string())?;
    Ok(Some((mark, client)))
}

/// As a kubeconfig carries bytes.
fn base64(bytes: &[u8]) -> String {
    let text = serde_json::to_value(k8s_openapi::ByteString(bytes.to_vec())).ok();
    text.and_then(|text| text.as_str().map(str::to_owned)).unwrap_or_default()
}
