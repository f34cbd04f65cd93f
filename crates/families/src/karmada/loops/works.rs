//! Works for bindings: one in the namespace of each cluster that a binding names, with the template as that cluster gets it. What
//! members tell comes back the same way: into the binding's status, and into the template's.
//!
//! A cluster gets only what was charged: a template that is not the one its binding was made from waits until the binding is, and
//! what runs goes on as it was.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client, ResourceExt};
use serde_json::{Map, Value, json};
use tokio::sync::Mutex;

use super::super::Settings;
use super::super::binding::{BindingSpec, Target};
use super::super::interpret;
use super::super::lease::{self, Elastic};
use super::super::schedule::is_chosen;
use super::kind::{
    BINDING_FINALIZER, MANAGED, TEMPLATE_MARK, WORK_BINDING_NAME, WORK_BINDING_NAMESPACE, WORK_FINALIZER, annotation,
    bindings, cluster_of, clusters, fingerprint, is_leaving, leases, namespace_of, quotas, stays_here, template_mark,
    whole, within, work_namespace, works,
};
use super::promises::read_cluster;
use super::standing::is_passing;
use super::watch::{Mirror, Watch};
use super::{applied, evictions};

const RETRY: Duration = Duration::from_secs(1);
/// Bindings tended at the same time.
const AT_ONCE: usize = 16;
/// How many characters of a binding's name go into those of its Works.
const NAME_BYTES_MAX: usize = 200;

pub struct Works {
    pub client: Client,
    pub settings: Arc<Settings>,
    pub bindings: Mirror,
    clusters: Mirror,
    pub works: Mirror,
    /// Quotas, and what they lend. What is news of these rings nobody: leases are written twice a second.
    lending: [Mirror; 2],
    kinds: Mutex<HashMap<(String, String), ApiResource>>,
    /// What was seen of each binding and its Works when all was well.
    done: Mutex<HashMap<String, String>>,
}

pub async fn run(client: Client, settings: Arc<Settings>) {
    let (watch, mirrors) = Watch::begin(&client, [bindings(), clusters(), works()]).await;
    let (_quiet, lending) = Watch::begin(&client, [quotas(), leases()]).await;
    let loops = Works::new(client, settings, mirrors, lending);
    loop {
        let rest = loops.look().await;
        watch.rung(rest).await;
    }
}

/// The Works of one binding, by cluster.
pub type Own = BTreeMap<String, Arc<DynamicObject>>;

impl Works {
    pub fn new(
        client: Client,
        settings: Arc<Settings>,
        [bindings, clusters, works]: [Mirror; 3],
        lending: [Mirror; 2],
    ) -> Works {
        let (kinds, done) = (Mutex::default(), Mutex::default());
        Works { client, settings, bindings, clusters, works, lending, kinds, done }
    }

    /// Whether a binding's placement means a cluster at all, as it may be again by and by.
    pub fn may_have(&self, spec: &BindingSpec, cluster: &str) -> bool {
        let placement = spec.placement.as_ref().unwrap_or(&Value::Null);
        let cluster = self.clusters.get("", cluster).filter(|cluster| !is_leaving(cluster));
        cluster.is_some_and(|cluster| is_chosen(placement, &read_cluster(&cluster)))
    }

    /// A quota that lends to a cluster and is not kept to there yet: what came there could make pods that nothing limits.
    pub fn not_kept_to(&self, namespace: &str, cluster: &str) -> Option<String> {
        let [quotas, leases] = &self.lending;
        let lends = |quota: &DynamicObject| {
            let elastic = Elastic::read(&json!({"spec": quota.data["spec"]}));
            self.settings.enforcement && !is_leaving(quota) && elastic.is_some_and(|one| one.means(cluster))
        };
        let is_kept = |quota: &str| {
            let lease = leases.get(namespace, &lease::name(quota, cluster));
            // The lender writes this down once the member has shown that it was told.
            lease.is_some_and(|lease| lease.data["status"]["renewUntil"].is_string())
        };
        let all = quotas.all();
        let own = all.iter().filter(|quota| namespace_of(quota) == namespace && lends(quota));
        own.map(|quota| quota.name_any()).find(|quota| !is_kept(quota))
    }

    /// Looks at every binding; how long it may rest.
    async fn look(&self) -> Duration {
        let mut owned: HashMap<(String, String), Own> = HashMap::new();
        for work in self.works.all() {
            let namespace = namespace_of(&work);
            let Some(cluster) = cluster_of(&namespace) else { continue };
            let binding =
                (annotation(&work, WORK_BINDING_NAMESPACE).to_owned(), annotation(&work, WORK_BINDING_NAME).to_owned());
            if !binding.1.is_empty() {
                owned.entry(binding).or_default().insert(cluster.to_owned(), work);
            }
        }
        let mut rest = self.give_up().await;
        let all = self.bindings.all();
        let mut jobs = Vec::new();
        for binding in &all {
            let key = (namespace_of(binding), binding.name_any());
            jobs.push((binding.clone(), owned.remove(&key).unwrap_or_default()));
        }
        // What is left belongs to bindings that are gone.
        let orphans: Vec<Arc<DynamicObject>> = owned.into_values().flat_map(BTreeMap::into_values).collect();
        for work in orphans.iter().filter(|work| !is_leaving(work)) {
            if let Err(error) = self.delete(work).await {
                tracing::debug!(%error, work = work.name_any(), "will be deleted again");
                rest = RETRY;
            }
        }
        let rests: Vec<Duration> = futures::stream::iter(jobs)
            .map(|(binding, own)| self.tend_quietly(binding, own))
            .buffer_unordered(AT_ONCE)
            .collect()
            .await;
        let mut done = self.done.lock().await;
        if done.len() > 1024.max(2 * all.len()) {
            done.clear();
        }
        rests.into_iter().min().unwrap_or(rest).min(rest)
    }

    /// Lets go of Works whose cluster is not registered any more: whoever took it away gave up what is there.
    async fn give_up(&self) -> Duration {
        let mut rest = Duration::from_secs(3600);
        for work in self.works.all().iter().filter(|work| is_leaving(work) && !work.finalizers().is_empty()) {
            let namespace = namespace_of(work);
            if cluster_of(&namespace).is_none_or(|cluster| self.clusters.get("", cluster).is_some()) {
                continue;
            }
            let kept: Vec<&String> = work.finalizers().iter().filter(|one| *one != WORK_FINALIZER).collect();
            let patch = json!({"metadata": {"uid": work.metadata.uid, "finalizers": kept}});
            let api = within(&self.client, &self.works.kind, &namespace);
            if api.patch(&work.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await.is_err() {
                rest = RETRY;
            }
        }
        rest
    }

    async fn tend_quietly(&self, binding: Arc<DynamicObject>, own: Own) -> Duration {
        let revision = |one: &DynamicObject| one.metadata.resource_version.clone().unwrap_or_default();
        let mut seen = revision(&binding);
        own.values().for_each(|work| seen = format!("{seen} {}", revision(work)));
        let uid = binding.uid().unwrap_or_default();
        if self.done.lock().await.get(&uid) == Some(&seen) {
            return Duration::from_secs(3600);
        }
        match self.tend(&binding, &own).await {
            Ok(None) => {
                self.done.lock().await.insert(uid, seen);
                Duration::from_secs(3600)
            }
            Ok(Some(rest)) => rest,
            Err(error) => {
                if !is_passing(&error) {
                    tracing::debug!(%error, binding = binding.name_any(), "will be tended again");
                }
                RETRY
            }
        }
    }

    /// Sees to one binding; when to look again, if that is before it changes.
    async fn tend(&self, binding: &DynamicObject, own: &Own) -> kube::Result<Option<Duration>> {
        if is_leaving(binding) {
            return self.dissolve(binding, own).await;
        }
        let Ok(spec) = BindingSpec::read(&json!({"spec": binding.data["spec"]})) else { return Ok(None) };
        for (cluster, work) in own {
            if !spec.is_on(cluster) && !evictions::keeps(&spec, cluster) && !is_leaving(work) {
                // Only what a template leaves behind is preserved: what is charged elsewhere does not run here, too.
                self.preserve_nothing(work).await?;
                self.delete(work).await?;
            }
        }
        let is_held = spec.suspension.as_ref().is_some_and(|one| one.dispatching);
        if !is_held && !spec.clusters.is_empty() && !binding.finalizers().iter().any(|one| one == BINDING_FINALIZER) {
            // Somebody wrote it by hand: deleted, it has to stay until what it placed is gone, too.
            self.hold(binding).await?;
            return Ok(Some(RETRY));
        }
        let mut rest = None;
        if !is_held && !spec.clusters.is_empty() && !self.dispatch(binding, &spec, own).await? {
            rest = Some(RETRY);
        }
        applied::tell(self, binding, &spec, own).await?;
        let next = evictions::finish(self, binding, &spec, own).await?;
        Ok([rest, next].into_iter().flatten().min())
    }

    async fn preserve_nothing(&self, work: &DynamicObject) -> kube::Result<()> {
        if work.data["spec"]["preserveResourcesOnDeletion"] != true {
            return Ok(());
        }
        let patch = json!({"metadata": {"uid": work.metadata.uid}, "spec": {"preserveResourcesOnDeletion": false}});
        let api = within(&self.client, &self.works.kind, &namespace_of(work));
        api.patch(&work.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await.map(drop)
    }

    async fn hold(&self, binding: &DynamicObject) -> kube::Result<()> {
        let finalizers: Vec<&str> =
            binding.finalizers().iter().map(String::as_str).chain([BINDING_FINALIZER]).collect();
        let patch = json!({"metadata": {
            "uid": binding.metadata.uid, "resourceVersion": binding.metadata.resource_version, "finalizers": finalizers,
        }});
        let api = within(&self.client, &self.bindings.kind, &namespace_of(binding));
        api.patch(&binding.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await.map(drop)
    }

    /// Brings every cluster's Work up to date; whether that could be done.
    pub async fn dispatch(&self, binding: &DynamicObject, spec: &BindingSpec, own: &Own) -> kube::Result<bool> {
        let charged = annotation(binding, TEMPLATE_MARK);
        // Those that are suspended keep what they have.
        let targets = || spec.clusters.iter().filter(|target| !spec.is_suspended_on(&target.name));
        let keeps = |one: &DynamicObject| one.data["spec"]["preserveResourcesOnDeletion"] == true;
        let says = |work: &DynamicObject, mark: &str, target: &Target| {
            annotation(work, TEMPLATE_MARK) == work_mark(mark, target, spec) && keeps(work) == keeps(binding)
        };
        let is_current = |target: &Target| {
            let work = own.get(&target.name).filter(|work| !is_leaving(work));
            work.is_some_and(|work| !charged.is_empty() && says(work, charged, target))
        };
        if targets().all(is_current) {
            return Ok(true);
        }
        // One that is not there may be on its way: nothing else tells that it came.
        let Some(live) = self.template(spec, &namespace_of(binding)).await? else { return Ok(false) };
        let mark = template_mark(&live);
        // A binding that somebody wrote by hand has no mark. Whoever wrote it, and whatever mark it has: it says what the template
        // asks for, or nobody gets anything of it.
        let is_charged = |template: &Value| {
            let wants = interpret::wants(template, self.settings.reserve);
            wants.is_ok_and(|wants| {
                wants.components == spec.components && wants.requirements == spec.replica_requirements
            })
        };
        let (template, mark) = match (charged.is_empty() || mark == charged) && is_charged(&live) {
            true => (live, mark),
            // The template is another one by now, and that is not charged: what was goes where the workload goes.
            false => match as_charged(own, charged).filter(is_charged) {
                Some(kept) => (kept, charged.to_owned()),
                None => return Ok(true),
            },
        };
        let mut is_done = true;
        for target in targets() {
            match own.get(&target.name) {
                // It goes first: what is there is not what is wanted now.
                Some(work) if is_leaving(work) => is_done = false,
                Some(work) if says(work, &mark, target) => {}
                None if self.not_kept_to(&namespace_of(binding), &target.name).is_some() => is_done = false,
                known => self.put(binding, spec, target, &template, &mark, known.is_some()).await?,
            }
        }
        Ok(is_done)
    }

    /// The template of a binding: an object of the binding's own namespace, and none of ours.
    async fn template(&self, spec: &BindingSpec, namespace: &str) -> kube::Result<Option<Value>> {
        let resource = &spec.resource;
        if namespace.is_empty() || stays_here(&resource.api_version, &resource.kind) {
            return Ok(None);
        }
        let key = (resource.api_version.clone(), resource.kind.clone());
        let known = self.kinds.lock().await.get(&key).cloned();
        let kind = match known {
            Some(kind) => kind,
            None => {
                let (group, version) = key.0.split_once('/').unwrap_or(("", &key.0));
                let wanted = GroupVersionKind::gvk(group, version, &key.1);
                let Ok((kind, _)) = kube::discovery::pinned_kind(&self.client, &wanted).await else { return Ok(None) };
                self.kinds.lock().await.insert(key, kind.clone());
                kind
            }
        };
        let found = within(&self.client, &kind, namespace).get_opt(&resource.name).await?;
        Ok(found.map(|one| whole(&one, &kind)))
    }

    async fn put(
        &self,
        binding: &DynamicObject,
        spec: &BindingSpec,
        target: &Target,
        template: &Value,
        mark: &str,
        is_there: bool,
    ) -> kube::Result<()> {
        let (namespace, name) = (work_namespace(&target.name), work_name(binding));
        // What is not divided is in each cluster as a whole.
        let all = if spec.is_divided() { &spec.clusters[..] } else { std::slice::from_ref(target) };
        let manifest = manifest(template, target, all);
        let work = json!({
            "apiVersion": self.works.kind.api_version, "kind": self.works.kind.kind,
            "metadata": {
                "name": name, "namespace": namespace, "finalizers": [WORK_FINALIZER],
                "annotations": {
                    WORK_BINDING_NAMESPACE: namespace_of(binding), WORK_BINDING_NAME: binding.name_any(),
                    TEMPLATE_MARK: work_mark(mark, target, spec),
                },
            },
            "spec": {
                "workload": {"manifests": [manifest]},
                "preserveResourcesOnDeletion": binding.data["spec"]["preserveResourcesOnDeletion"] == true,
            },
        });
        let api = within(&self.client, &self.works.kind, &namespace);
        if is_there {
            // The manifests are a list, and replaced as a whole.
            let patch = json!({"metadata": {"annotations": work["metadata"]["annotations"]}, "spec": work["spec"]});
            return api.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await.map(drop);
        }
        let work: DynamicObject = serde_json::from_value(work).map_err(kube::Error::SerdeError)?;
        create_in(&self.client, &api, &namespace, &work).await
    }

    async fn delete(&self, work: &DynamicObject) -> kube::Result<()> {
        let api = within(&self.client, &self.works.kind, &namespace_of(work));
        match api.delete(&work.name_any(), &DeleteParams::default()).await {
            Err(error) if !is_passing(&error) => Err(error),
            _ => Ok(()),
        }
    }

    /// A binding goes when its Works are gone, and a Work when its member has nothing of it any more. Until then it is charged.
    async fn dissolve(&self, binding: &DynamicObject, own: &Own) -> kube::Result<Option<Duration>> {
        for work in own.values().filter(|work| !is_leaving(work)) {
            self.delete(work).await?;
        }
        let is_held = binding.finalizers().iter().any(|one| one == BINDING_FINALIZER);
        if own.is_empty() && is_held {
            let kept: Vec<&String> = binding.finalizers().iter().filter(|one| *one != BINDING_FINALIZER).collect();
            let patch = json!({"metadata": {
                "uid": binding.metadata.uid, "resourceVersion": binding.metadata.resource_version, "finalizers": kept,
            }});
            let api = within(&self.client, &self.bindings.kind, &namespace_of(binding));
            api.patch(&binding.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await?;
        }
        Ok(None)
    }
}

/// Creates an object in a namespace, and that first where it is missing.
pub async fn create_in(
    client: &Client,
    api: &Api<DynamicObject>,
    namespace: &str,
    object: &DynamicObject,
) -> kube::Result<()> {
    match api.create(&PostParams::default(), object).await {
        Err(kube::Error::Api(status)) if status.code == 404 => {
            let mut own = Namespace::default();
            own.metadata.name = Some(namespace.to_owned());
            let namespaces: Api<Namespace> = Api::all(client.clone());
            match namespaces.create(&PostParams::default(), &own).await {
                Err(error) if !is_passing(&error) => return Err(error),
                _ => {}
            }
            api.create(&PostParams::default(), object).await.map(drop)
        }
        Err(error) if is_passing(&error) => Ok(()),
        other => other.map(drop),
    }
}

/// One name a binding, in every cluster.
fn work_name(binding: &DynamicObject) -> String {
    let (namespace, name) = (namespace_of(binding), binding.name_any());
    let short: String = name.chars().take(NAME_BYTES_MAX).collect();
    format!("{}-{:016x}", short.trim_end_matches(['.', '-']), fingerprint(&format!("{namespace}/{name}")))
}

/// What decides a cluster's manifest: the template, and its part of it.
pub fn work_mark(template: &str, target: &Target, spec: &BindingSpec) -> String {
    // How many completions a Job's part gets depends on all parts.
    let parts: Vec<(&str, u32)> = match spec.resource.kind == "Job" {
        true => spec.clusters.iter().map(|one| (&*one.name, one.replicas)).collect(),
        false => vec![(&*target.name, target.replicas)],
    };
    format!("{template}-{:016x}", fingerprint(&format!("{parts:?}")))
}

/// The template that a binding was charged for, as one of its Works has it. Of a Job some completions are each cluster's own, so
/// that none has the whole.
fn as_charged(own: &Own, charged: &str) -> Option<Value> {
    let is_of = |work: &DynamicObject| {
        let mark = annotation(work, TEMPLATE_MARK).strip_prefix(charged);
        !charged.is_empty() && mark.is_some_and(|rest| rest.starts_with('-'))
    };
    let work = own.values().find(|work| is_of(work))?;
    let manifest = work.data["spec"]["workload"]["manifests"].as_array()?.first()?;
    let is_shared_out = manifest["kind"] == "Job" && !manifest["spec"]["completions"].is_null();
    (!is_shared_out).then(|| manifest.clone())
}

/// A template as one cluster gets it: without what belongs to the server it was written to.
fn manifest(template: &Value, target: &Target, all: &[Target]) -> Value {
    let mut manifest = template.clone();
    if let Some(fields) = manifest.as_object_mut() {
        fields.remove("status");
    }
    let said = &template["metadata"];
    let mut metadata = Map::new();
    for field in ["name", "namespace", "annotations"] {
        if let Some(value) = said.get(field) {
            metadata.insert(field.into(), value.clone());
        }
    }
    let mut labels = said["labels"].as_object().cloned().unwrap_or_default();
    labels.insert(MANAGED.into(), json!("true"));
    metadata.insert("labels".into(), Value::Object(labels));
    if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
        annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
    }
    manifest["metadata"] = Value::Object(metadata);
    interpret::prune(&mut manifest);
    interpret::revise(&mut manifest, target, all);
    manifest
}
