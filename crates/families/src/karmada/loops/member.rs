//! One member cluster: its Works are brought to its API and kept as they are written, and what it says of them is collected.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use serde_json::{Map, Value, json};

use super::super::Settings;
use super::super::interpret;
use super::detector::{covers, words};
use super::heartbeat;
use super::kind::{
    MANAGED, TEMPLATE_MARK, WORK_FINALIZER, fingerprint, is_leaving, namespace_of, whole, within, work_namespace, works,
};
use super::standing::{is_passing, patch_status, says, with_condition};
use super::watch::{Mirror, Watch};

const MANAGER: &str = "karmada-execution-controller";
const RETRY: Duration = Duration::from_secs(1);
/// Kinds watched in one member.
const KINDS_MAX: usize = 256;

struct Member {
    client: Client,
    member: Client,
    works: Mirror,
    watch: Watch,
    /// What was brought there, by kind.
    brought: HashMap<(String, String), Mirror>,
}

pub async fn run(client: Client, member: Client, name: String, settings: Arc<Settings>) {
    let mut watch = Watch::new();
    let works = watch.mirror(&client, &works(), &work_namespace(&name), watcher::Config::default());
    works.ready().await;
    let beat = heartbeat::run(client.clone(), member.clone(), name, settings, watch.bell());
    let mut this = Member { client, member, works, watch, brought: HashMap::new() };
    let tend = async {
        loop {
            let is_settled = this.look().await;
            this.watch.rung(if is_settled { Duration::from_secs(60) } else { RETRY }).await;
        }
    };
    futures::future::join(beat, tend).await;
}

/// What became of a manifest.
enum Applied {
    There(Box<DynamicObject>, ApiResource),
    Failed(String),
}

impl Member {
    /// Looks at every Work; whether nothing has to be tried again.
    async fn look(&mut self) -> bool {
        let mut is_settled = true;
        for work in self.works.all() {
            let is_suspended = work.data["spec"]["suspendDispatching"] == true;
            let done = match is_leaving(&work) {
                true => self.withdraw(&work).await,
                false if is_suspended => Ok(true),
                false => self.bring(&work).await,
            };
            match done {
                Ok(is_done) => is_settled &= is_done,
                Err(error) => {
                    if !is_passing(&error) {
                        tracing::debug!(%error, work = work.name_any(), "will be looked at again");
                    }
                    is_settled = false;
                }
            }
        }
        is_settled
    }

    /// Watches a kind in the member, and returns what it is called there.
    async fn kind(&mut self, manifest: &Value) -> Result<Mirror, String> {
        let of = |field: &str| manifest[field].as_str().unwrap_or("").to_owned();
        let key = (of("apiVersion"), of("kind"));
        if let Some(known) = self.brought.get(&key) {
            return Ok(known.clone());
        }
        if self.brought.len() >= KINDS_MAX {
            return Err(format!("more than {KINDS_MAX} kinds in one cluster"));
        }
        let (group, version) = key.0.split_once('/').unwrap_or(("", &key.0));
        let wanted = GroupVersionKind::gvk(group, version, &key.1);
        let found = kube::discovery::pinned_kind(&self.member, &wanted).await.map_err(|error| words(&error))?;
        let config = watcher::Config::default().labels(&format!("{MANAGED}=true"));
        let mirror = self.watch.mirror(&self.member, &found.0, "", config);
        let is_ready = tokio::time::timeout(Duration::from_secs(10), mirror.ready()).await.is_ok();
        if !is_ready {
            return Err("the cluster does not answer".into());
        }
        self.brought.insert(key, mirror.clone());
        Ok(mirror)
    }

    async fn bring(&mut self, work: &DynamicObject) -> kube::Result<bool> {
        let manifests = work.data["spec"]["workload"]["manifests"].as_array().cloned().unwrap_or_default();
        let (mut told, mut failures) = (Vec::new(), Vec::new());
        for (ordinal, manifest) in manifests.iter().enumerate() {
            match self.apply(manifest).await {
                Applied::There(object, kind) => {
                    let live = whole(&object, &kind);
                    let mut entry = json!({
                        "identifier": {
                            "ordinal": ordinal, "group": kind.group, "version": kind.version, "kind": kind.kind,
                            "resource": kind.plural, "namespace": namespace_of(&object), "name": object.name_any(),
                        },
                        "health": interpret::health(&live).name(),
                    });
                    if let Some(status) = live.get("status").filter(|one| one.is_object()) {
                        entry["status"] = status.clone();
                    }
                    told.push(entry);
                }
                Applied::Failed(why) => failures.push(why),
            }
        }
        let (is, reason, message) = match failures.is_empty() {
            true => ("True", "AppliedSuccessful", "Manifest has been successfully applied".to_owned()),
            false => ("False", "AppliedFailed", format!("Failed to apply all manifests: {}", failures.join("; "))),
        };
        let status = &work.data["status"];
        let is_told = status.get("manifestStatuses").and_then(Value::as_array).is_some_and(|shown| *shown == told);
        if !is_told || !says(status, "Applied", is, reason, &message) {
            let conditions = with_condition(status, "Applied", is, reason, &message);
            let patch = json!({"conditions": conditions, "manifestStatuses": told});
            patch_status(&self.client, work, &self.works.kind, patch).await?;
        }
        Ok(failures.is_empty())
    }

    /// Makes one object in the member what its manifest says.
    async fn apply(&mut self, manifest: &Value) -> Applied {
        let mirror = match self.kind(manifest).await {
            Ok(mirror) => mirror,
            Err(why) => return Applied::Failed(why),
        };
        let of = |field: &str| manifest["metadata"][field].as_str().unwrap_or("").to_owned();
        let (namespace, name) = (of("namespace"), of("name"));
        let manifest = marked(manifest);
        if let Some(known) = mirror.get(&namespace, &name).filter(|known| !is_leaving(known)) {
            // A field that was taken out of the manifest is not missed there: the mark tells that it is another one.
            let live = whole(&known, &mirror.kind);
            if covers(&live, &manifest) && strangers(&live, &manifest).is_none() {
                return Applied::There(Box::new(DynamicObject::clone(&known)), mirror.kind.clone());
            }
        }
        match self.write(&mirror, &namespace, &name, &manifest).await {
            Ok(object) => Applied::There(Box::new(object), mirror.kind.clone()),
            Err(why) => Applied::Failed(why),
        }
    }

    async fn write(
        &self,
        mirror: &Mirror,
        namespace: &str,
        name: &str,
        manifest: &Value,
    ) -> Result<DynamicObject, String> {
        let api = within(&self.member, &mirror.kind, namespace);
        let there = api.get_opt(name).await.map_err(|error| words(&error))?;
        match there {
            Some(there) if !there.labels().contains_key(MANAGED) => {
                // What somebody else made there stays somebody else's.
                return Err(format!("{} {name} exists in the cluster and was not made by a Work", mirror.kind.kind));
            }
            Some(_) => {}
            None => self.ensure_namespace(namespace).await?,
        }
        // What was applied before and is not in it any more goes.
        let params = PatchParams::apply(MANAGER).force();
        let written = api.patch(name, &params, &Patch::Apply(manifest)).await.map_err(|error| words(&error))?;
        match strangers(&whole(&written, &mirror.kind), manifest) {
            None => Ok(written),
            Some(patch) => {
                let params = PatchParams { field_manager: Some(MANAGER.into()), ..PatchParams::default() };
                api.patch(name, &params, &Patch::Merge(patch)).await.map_err(|error| words(&error))
            }
        }
    }

    async fn ensure_namespace(&self, namespace: &str) -> Result<(), String> {
        if namespace.is_empty() {
            return Ok(());
        }
        let namespaces: Api<Namespace> = Api::all(self.member.clone());
        if namespaces.get_metadata_opt(namespace).await.map_err(|error| words(&error))?.is_some() {
            return Ok(());
        }
        let mut own = Namespace::default();
        own.metadata.name = Some(namespace.to_owned());
        match namespaces.create(&PostParams::default(), &own).await {
            Err(error) if !is_passing(&error) => Err(words(&error)),
            _ => Ok(()),
        }
    }

    /// Takes a Work's objects out of the member, and lets the Work go when they are gone; whether that is so.
    async fn withdraw(&mut self, work: &DynamicObject) -> kube::Result<bool> {
        if !work.finalizers().iter().any(|one| one == WORK_FINALIZER) {
            return Ok(true);
        }
        let keeps = work.data["spec"]["preserveResourcesOnDeletion"] == true;
        let manifests = work.data["spec"]["workload"]["manifests"].as_array().cloned().unwrap_or_default();
        for manifest in manifests.iter().filter(|_| !keeps) {
            // A kind that the member does not have has no objects there; a member that does not answer may have them.
            let mirror = match self.kind(manifest).await {
                Ok(mirror) => mirror,
                Err(_) if self.lacks(manifest).await => continue,
                Err(_) => return Ok(false),
            };
            let of = |field: &str| manifest["metadata"][field].as_str().unwrap_or("").to_owned();
            let api = within(&self.member, &mirror.kind, &of("namespace"));
            let Some(there) = api.get_opt(&of("name")).await? else { continue };
            if !there.labels().contains_key(MANAGED) {
                continue;
            }
            if !is_leaving(&there) {
                let foreground = DeleteParams::foreground();
                match api.delete(&of("name"), &foreground).await {
                    Err(error) if !is_passing(&error) => return Err(error),
                    _ => {}
                }
            }
            return Ok(false);
        }
        let kept: Vec<&String> = work.finalizers().iter().filter(|one| *one != WORK_FINALIZER).collect();
        let patch = json!({"metadata": {
            "uid": work.metadata.uid, "resourceVersion": work.metadata.resource_version, "finalizers": kept,
        }});
        let api = within(&self.client, &self.works.kind, &namespace_of(work));
        api.patch(&work.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(true)
    }

    /// Whether the member answers, and does not know a kind.
    async fn lacks(&self, manifest: &Value) -> bool {
        let version = manifest["apiVersion"].as_str().unwrap_or("");
        let listed = match version.split_once('/') {
            None => self.member.list_core_api_resources(version).await,
            Some(_) => self.member.list_api_group_resources(version).await,
        };
        match listed {
            Ok(list) => !list.resources.iter().any(|one| manifest["kind"] == *one.kind),
            Err(kube::Error::Api(status)) => status.code == 404,
            Err(_) => false,
        }
    }
}

/// A manifest with a fingerprint of itself, which stays on the object that is made of it.
fn marked(manifest: &Value) -> Value {
    let mut marked = manifest.clone();
    let annotations = &mut marked["metadata"]["annotations"];
    if !annotations.is_object() {
        *annotations = json!({});
    }
    annotations[TEMPLATE_MARK] = json!(format!("{:016x}", fingerprint(&manifest.to_string())));
    marked
}

/// Limits of a ResourceQuota that others than its manifest set there, as the patch that takes them out.
fn strangers(there: &Value, manifest: &Value) -> Option<Value> {
    if manifest["apiVersion"] != "v1" || manifest["kind"] != "ResourceQuota" {
        return None;
    }
    let wanted = &manifest["spec"]["hard"];
    let limits = there["spec"]["hard"].as_object().into_iter().flatten();
    let others: Map<String, Value> =
        limits.filter(|(name, _)| wanted.get(name).is_none()).map(|(name, _)| (name.clone(), Value::Null)).collect();
    (!others.is_empty()).then(|| json!({"spec": {"hard": others}}))
}
