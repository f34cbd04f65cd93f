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
use super::super::interpret::{self, Reserve};
use super::detector::words;
use super::difference::covers;
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
    /// The objects that are as they were brought, by uid, with their version and their manifest: to find that out takes a while.
    intact: HashMap<String, String>,
}

pub async fn run(client: Client, member: Client, name: String, settings: Arc<Settings>) {
    let watch = Watch::new();
    let works = watch.mirror(&client, &works(), &work_namespace(&name), watcher::Config::default());
    works.ready().await;
    let beat = heartbeat::run(client.clone(), member.clone(), name, settings, watch.bell());
    let mut this = Member { client, member, works, watch, brought: HashMap::new(), intact: HashMap::new() };
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
        let works = self.works.all();
        if self.intact.len() > 1024.max(32 * works.len()) {
            self.intact.clear();
        }
        for work in works {
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
            match self.apply(work, manifest).await {
                Applied::There(object, kind) => {
                    let live = whole(&object, &kind);
                    let mut entry = json!({
                        "identifier": {
                            "ordinal": ordinal, "group": kind.group, "version": kind.version, "kind": kind.kind,
                            "resource": kind.plural, "namespace": namespace_of(&object), "name": object.name_any(),
                            "uid": object.metadata.uid,
                        },
                        "health": interpret::health(&live).name(),
                    });
                    if let Some(status) = live.get("status").filter(|one| one.is_object()) {
                        entry["status"] = status.clone();
                    }
                    told.push(entry);
                }
                Applied::Failed(why) => {
                    failures.push(why);
                    // What it brought before is its own, whatever is known of it now.
                    let before = work.data["status"]["manifestStatuses"].as_array().into_iter().flatten();
                    let before = before.map(|one| &one["identifier"]).find(|one| one["ordinal"] == ordinal);
                    told.extend(before.map(|identifier| json!({ "identifier": identifier })));
                }
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
    async fn apply(&mut self, work: &DynamicObject, manifest: &Value) -> Applied {
        let mirror = match self.kind(manifest).await {
            Ok(mirror) => mirror,
            Err(why) => return Applied::Failed(why),
        };
        let of = |field: &str| manifest["metadata"][field].as_str().unwrap_or("").to_owned();
        let (namespace, name) = (of("namespace"), of("name"));
        let manifest = marked(manifest);
        if let Some(known) = mirror.get(&namespace, &name).filter(|known| !is_leaving(known)) {
            // A field that was taken out of the manifest is not missed there: the mark tells that it is another one.
            let version = known.metadata.resource_version.as_deref().unwrap_or("");
            let (uid, seen) = (known.uid().unwrap_or_default(), format!("{version} {}", mark_of(&manifest)));
            let is_intact = || {
                let live = whole(&known, &mirror.kind);
                covers(&live, &manifest) && strangers(&live, &manifest).is_none() && is_brought(&known, work)
            };
            if self.intact.get(&uid) == Some(&seen) || is_intact() {
                self.intact.insert(uid, seen);
                return Applied::There(Box::new(DynamicObject::clone(&known)), mirror.kind.clone());
            }
        }
        match self.write(&mirror, work, (&namespace, &name), &manifest).await {
            Ok(object) => Applied::There(Box::new(object), mirror.kind.clone()),
            Err(why) => Applied::Failed(why),
        }
    }

    async fn write(
        &self,
        mirror: &Mirror,
        work: &DynamicObject,
        (namespace, name): (&str, &str),
        manifest: &Value,
    ) -> Result<DynamicObject, String> {
        let api = within(&self.member, &mirror.kind, namespace);
        let there = api.get_opt(name).await.map_err(|error| words(&error))?;
        match there {
            Some(there) if !is_brought(&there, work) => {
                // What somebody else made there stays somebody else's.
                return Err(format!("{} {name} exists in the cluster and was not made by a Work", mirror.kind.kind));
            }
            Some(_) => {}
            None => self.ensure_namespace(namespace).await?,
        }
        // What was applied before and is not in it any more goes.
        let params = PatchParams::apply(MANAGER).force();
        let written = api.patch(name, &params, &Patch::Apply(manifest)).await.map_err(|error| words(&error))?;
        let Some(patch) = strangers(&whole(&written, &mirror.kind), manifest) else { return Ok(written) };
        let params = PatchParams { field_manager: Some(MANAGER.into()), ..PatchParams::default() };
        let written = api.patch(name, &params, &Patch::Merge(patch)).await.map_err(|error| words(&error))?;
        match strangers(&whole(&written, &mirror.kind), manifest) {
            None => Ok(written),
            Some(_) => Err(format!(
                "{} {name}: somebody in the cluster has it ask for more than it was brought with",
                mirror.kind.kind
            )),
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
            if !is_brought(&there, work) {
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

fn mark_of(manifest: &Value) -> &str {
    manifest["metadata"]["annotations"][TEMPLATE_MARK].as_str().unwrap_or("")
}

/// Whether a Work brought an object, or has told that it did: who takes its label and mark away does not get it for that.
fn is_brought(there: &DynamicObject, work: &DynamicObject) -> bool {
    let is_marked = there.labels().contains_key(MANAGED) && there.annotations().contains_key(TEMPLATE_MARK);
    let told = work.data["status"]["manifestStatuses"].as_array();
    let mut told = told.into_iter().flatten().map(|one| &one["identifier"]["uid"]);
    is_marked || there.metadata.uid.as_ref().is_some_and(|uid| told.any(|told| *told == **uid))
}

/// What others than its manifest have an object ask for or allow, as the patch that takes it out: applying a manifest leaves there what
/// somebody else added.
fn strangers(there: &Value, manifest: &Value) -> Option<Value> {
    let part = if manifest["apiVersion"] == "v1" && manifest["kind"] == "ResourceQuota" {
        "/spec/hard"
    } else {
        let wants = |object: &Value| (interpret::wants(object, Reserve::Initial), interpret::potential(object));
        interpret::what_it_asks(manifest).filter(|_| wants(there) != wants(manifest))?
    };
    let (had, wanted) = (there.pointer(part)?, manifest.pointer(part).unwrap_or(&Value::Null));
    let less = taken_out(had, wanted)?;
    Some(part.rsplit('/').filter(|field| !field.is_empty()).fold(less, |less, field| json!({ field: less })))
}

/// The patch that makes of what is there what is wanted, and nothing more.
fn taken_out(there: &Value, wanted: &Value) -> Option<Value> {
    let (Value::Object(had), Value::Object(wanted)) = (there, wanted) else {
        return (there != wanted).then(|| wanted.clone());
    };
    let mut patch = Map::new();
    for (field, value) in had {
        match wanted.get(field) {
            None => drop(patch.insert(field.clone(), Value::Null)),
            Some(wanted) => patch.extend(taken_out(value, wanted).map(|less| (field.clone(), less))),
        }
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}
