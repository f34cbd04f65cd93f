//! One member cluster: its Works are brought to its API and kept as they are written, and what it says of them is collected.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Namespace;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use serde_json::{Map, Value, json};

use super::super::Settings;
use super::super::interpret::{self, Reserve};
use super::detector::words;
use super::difference::covers;
use super::ended::{Gone, gone, is_ended, mark_of_run};
use super::heartbeat;
use super::kind::{
    MANAGED, TEMPLATE_MARK, WORK_FINALIZER, all, fingerprint, is_leaving, namespace_of, whole, within, work_namespace,
    works,
};
use super::standing::{is_passing, patch_status, says, with_condition};
use super::watch::{Mirror, Watch};

const MANAGER: &str = "karmada-execution-controller";
const RETRY: Duration = Duration::from_secs(1);
/// What the member refuses is tried again later each time.
const REFUSED_WAIT_MAX: Duration = Duration::from_secs(8);
/// How often that may fail again in one look: nobody waits for what others are refused.
const REFUSED_TRIES_MAX: usize = 32;
/// How long a look waits for what there is of kinds that it has begun to watch.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a watch in a member lasts before it is begun anew: a line that was lost without a word is noticed by that.
const WATCH_SECONDS: u32 = 30;
/// Kinds watched in one member.
const KINDS_MAX: usize = 256;

pub struct Member {
    client: Client,
    member: Client,
    works: Mirror,
    watch: Watch,
    /// What was brought there, by kind.
    brought: HashMap<Kind, Mirror>,
    /// The kinds of which the member tells nothing, in this look.
    untold: HashMap<Kind, Failure>,
    /// The Works that it refused, by uid.
    refused: HashMap<String, Refused>,
    /// The objects that are as they were brought, by uid, with their version and their manifest: to find that out takes a while.
    intact: HashMap<String, String>,
}

pub async fn run(client: Client, member: Client, name: String, settings: Arc<Settings>) {
    let watch = Watch::new();
    let works = watch.mirror(&client, &works(), &work_namespace(&name), watcher::Config::default());
    works.ready().await;
    let beat = heartbeat::run(client.clone(), member.clone(), name, settings, watch.bell());
    let mut this = Member::new(client, member, works, watch);
    let tend = async {
        loop {
            let is_settled = this.look().await;
            this.watch.rung(if is_settled { Duration::from_secs(60) } else { RETRY }).await;
        }
    };
    futures::future::join(beat, tend).await;
}

/// As a manifest names it: apiVersion and kind.
type Kind = (String, String);

fn kind_of(manifest: &Value) -> Kind {
    let of = |field: &str| manifest[field].as_str().unwrap_or("").to_owned();
    (of("apiVersion"), of("kind"))
}

/// A Work that was refused as it is, and when it is tried again.
struct Refused {
    generation: Option<i64>,
    again: Instant,
    wait: Duration,
}

/// Why a manifest is not in the member as it is written.
#[derive(Clone)]
struct Failure {
    why: String,
    /// Whether the member said so: it will say the same again.
    is_refused: bool,
}

impl Failure {
    fn refused(why: String) -> Failure {
        Failure { why, is_refused: true }
    }
}

impl From<kube::Error> for Failure {
    fn from(error: kube::Error) -> Failure {
        let is_refused = match &error {
            kube::Error::Api(status) => (400..500).contains(&status.code) && !is_passing(&error) && status.code != 429,
            kube::Error::Discovery(_) => true,
            _ => false,
        };
        Failure { why: words(&error), is_refused }
    }
}

/// What became of a manifest.
enum Applied {
    There(Box<DynamicObject>, ApiResource),
    /// It ran to its end, and is gone: what is told of it.
    Ended(Value),
    Failed(Failure),
}

/// One of a Work's manifests, with its mark, and its place among them.
struct Manifest<'a> {
    work: &'a DynamicObject,
    ordinal: usize,
    object: Value,
}

impl Member {
    pub fn new(client: Client, member: Client, works: Mirror, watch: Watch) -> Member {
        let (brought, untold, refused, intact) = (HashMap::new(), HashMap::new(), HashMap::new(), HashMap::new());
        Member { client, member, works, watch, brought, untold, refused, intact }
    }

    /// A Work that was refused as it is.
    fn refused(&self, work: &DynamicObject) -> Option<&Refused> {
        let refused = self.refused.get(&work.uid().unwrap_or_default());
        refused.filter(|one| one.generation == work.metadata.generation && !is_leaving(work))
    }

    /// Looks at every Work; whether nothing has to be tried again.
    pub async fn look(&mut self) -> bool {
        let (mut is_settled, mut tries) = (true, 0);
        let works = self.works.all();
        if self.intact.len() > 1024.max(32 * works.len()) {
            self.intact.clear();
        }
        if self.refused.len() > 1024.max(2 * works.len()) {
            self.refused.clear();
        }
        self.untold.clear();
        self.begin_kinds(&works).await;
        for work in works {
            let is_suspended = work.data["spec"]["suspendDispatching"] == true;
            let refused = self.refused(&work).map(|refused| refused.again > Instant::now());
            if refused.is_some_and(|rests| rests || tries >= REFUSED_TRIES_MAX) {
                is_settled = false;
                continue;
            }
            let done = match is_leaving(&work) {
                true => self.withdraw(&work).await,
                false if is_suspended => Ok(true),
                false => self.bring(&work).await,
            };
            tries += usize::from(refused.is_some() && self.refused(&work).is_some());
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

    /// Begins to watch a kind in the member; with what it is called there.
    async fn begun(&mut self, manifest: &Value) -> Result<Mirror, Failure> {
        let key = kind_of(manifest);
        if let Some(known) = self.brought.get(&key) {
            return Ok(known.clone());
        }
        if self.brought.len() >= KINDS_MAX {
            return Err(Failure::refused(format!("more than {KINDS_MAX} kinds in one cluster")));
        }
        let (group, version) = key.0.split_once('/').unwrap_or(("", &key.0));
        let wanted = GroupVersionKind::gvk(group, version, &key.1);
        let found = kube::discovery::pinned_kind(&self.member, &wanted).await?;
        let config = watcher::Config::default().labels(&format!("{MANAGED}=true")).timeout(WATCH_SECONDS);
        let mirror = self.watch.mirror(&self.member, &found.0, "", config);
        self.brought.insert(key, mirror.clone());
        Ok(mirror)
    }

    /// Begins to watch the kinds that are new, and waits for what there is of them: all at once, so that one that tells nothing costs little.
    async fn begin_kinds(&mut self, works: &[Arc<DynamicObject>]) {
        let mut begun = Vec::new();
        for work in works.iter().filter(|work| !is_leaving(work)) {
            for manifest in work.data["spec"]["workload"]["manifests"].as_array().into_iter().flatten() {
                let key = kind_of(manifest);
                if self.brought.contains_key(&key) || self.untold.contains_key(&key) {
                    continue;
                }
                match self.begun(manifest).await {
                    Ok(mirror) => begun.push(mirror),
                    Err(failure) => drop(self.untold.insert(key, failure)),
                }
            }
        }
        if !begun.is_empty() {
            let _ = tokio::time::timeout(PATIENCE, futures::future::join_all(begun.iter().map(Mirror::ready))).await;
        }
    }

    /// What there is of a kind in the member. Where it does not tell, that is found out once a look.
    async fn kind(&mut self, manifest: &Value) -> Result<Mirror, Failure> {
        let key = kind_of(manifest);
        if let Some(failure) = self.untold.get(&key) {
            return Err(failure.clone());
        }
        let begun = self.begun(manifest).await;
        let failure = match begun {
            Ok(mirror) if mirror.is_ready() => return Ok(mirror),
            Ok(mirror) => self.why_untold(&mirror).await,
            Err(failure) => failure,
        };
        self.untold.insert(key, failure.clone());
        Err(failure)
    }

    async fn why_untold(&self, mirror: &Mirror) -> Failure {
        let one = ListParams::default().limit(1);
        match tokio::time::timeout(PATIENCE, all(&self.member, &mirror.kind).list(&one)).await {
            Ok(Err(error)) => error.into(),
            _ => Failure { why: "the cluster does not answer".into(), is_refused: false },
        }
    }

    async fn bring(&mut self, work: &DynamicObject) -> kube::Result<bool> {
        let manifests = work.data["spec"]["workload"]["manifests"].as_array().cloned().unwrap_or_default();
        let (mut told, mut failures) = (Vec::new(), Vec::<Failure>::new());
        for (ordinal, manifest) in manifests.iter().enumerate() {
            let marked = Manifest { work, ordinal, object: marked(manifest) };
            match self.apply(&marked).await {
                Applied::Ended(entry) => told.push(entry),
                Applied::There(object, kind) => {
                    let live = whole(&object, &kind);
                    let mut entry = json!({
                        "identifier": {
                            "ordinal": ordinal, "group": kind.group, "version": kind.version, "kind": kind.kind,
                            "resource": kind.plural, "namespace": namespace_of(&object), "name": object.name_any(),
                            "uid": object.metadata.uid, "fingerprint": mark_of_run(&marked.object),
                        },
                        "health": interpret::health(&live).name(),
                    });
                    if let Some(status) = live.get("status").filter(|one| one.is_object()) {
                        entry["status"] = status.clone();
                    }
                    told.push(entry);
                }
                Applied::Failed(failure) => {
                    failures.push(failure);
                    // What it brought before is its own, whatever is known of it now; and what ran to its end did.
                    let mut before = work.data["status"]["manifestStatuses"].as_array().into_iter().flatten();
                    let before = before.find(|one| one["identifier"]["ordinal"] == ordinal);
                    told.extend(before.map(|one| match is_ended(one, manifest) {
                        true => one.clone(),
                        false => json!({"identifier": one["identifier"]}),
                    }));
                }
            }
        }
        let (is, reason, message) = match failures.is_empty() {
            true => ("True", "AppliedSuccessful", "Manifest has been successfully applied".to_owned()),
            false => {
                let all: Vec<&str> = failures.iter().map(|failure| &*failure.why).collect();
                ("False", "AppliedFailed", format!("Failed to apply all manifests: {}", all.join("; ")))
            }
        };
        self.note_refused(work, failures.iter().any(|failure| failure.is_refused));
        let status = &work.data["status"];
        let is_told = status.get("manifestStatuses").and_then(Value::as_array).is_some_and(|shown| *shown == told);
        if !is_told || !says(status, "Applied", is, reason, &message) {
            let conditions = with_condition(status, "Applied", is, reason, &message);
            let patch = json!({"conditions": conditions, "manifestStatuses": told});
            patch_status(&self.client, work, &self.works.kind, patch).await?;
        }
        Ok(failures.is_empty())
    }

    fn note_refused(&mut self, work: &DynamicObject, is_refused: bool) {
        let (uid, generation) = (work.uid().unwrap_or_default(), work.metadata.generation);
        let before = self.refused.remove(&uid).filter(|before| before.generation == generation);
        if is_refused {
            let wait = before.map_or(RETRY, |before| (before.wait * 2).min(REFUSED_WAIT_MAX));
            self.refused.insert(uid, Refused { generation, again: Instant::now() + wait, wait });
        }
    }

    /// Makes one object in the member what its manifest says.
    async fn apply(&mut self, brought: &Manifest<'_>) -> Applied {
        let Manifest { work, object: manifest, .. } = brought;
        let mirror = match self.kind(manifest).await {
            Ok(mirror) => mirror,
            Err(failure) => return Applied::Failed(failure),
        };
        let of = |field: &str| manifest["metadata"][field].as_str().unwrap_or("").to_owned();
        let (namespace, name) = (of("namespace"), of("name"));
        if let Some(known) = mirror.get(&namespace, &name).filter(|known| !is_leaving(known)) {
            // A field that was taken out of the manifest is not missed there: the mark tells that it is another one.
            let version = known.metadata.resource_version.as_deref().unwrap_or("");
            let (uid, seen) = (known.uid().unwrap_or_default(), format!("{version} {}", mark_of(manifest)));
            let is_intact = || {
                let live = whole(&known, &mirror.kind);
                covers(&live, manifest) && strangers(&live, manifest).is_none() && is_brought(&known, work)
            };
            if self.intact.get(&uid) == Some(&seen) || is_intact() {
                self.intact.insert(uid, seen);
                return Applied::There(Box::new(DynamicObject::clone(&known)), mirror.kind.clone());
            }
        }
        self.write(&mirror, brought, (&namespace, &name)).await.unwrap_or_else(Applied::Failed)
    }

    async fn write(
        &self,
        mirror: &Mirror,
        brought: &Manifest<'_>,
        (namespace, name): (&str, &str),
    ) -> Result<Applied, Failure> {
        let Manifest { work, ordinal, object: manifest } = brought;
        let api = within(&self.member, &mirror.kind, namespace);
        let there = api.get_opt(name).await?;
        let is_missing = there.is_none();
        match gone(work, *ordinal, manifest, &mirror.ended).filter(|_| is_missing) {
            Some(Gone::Ended(entry)) => return Ok(Applied::Ended(entry)),
            Some(Gone::Unknown) => {
                let kind = &mirror.kind.kind;
                return Err(Failure::refused(format!(
                    "{kind} {name} is gone from the cluster and may have run to its end: it is not run again; delete its template, and \
                     create it anew, to have it run once more"
                )));
            }
            None => {}
        }
        match there {
            Some(there) if !is_brought(&there, work) => {
                // What somebody else made there stays somebody else's.
                let kind = &mirror.kind.kind;
                return Err(Failure::refused(format!(
                    "{kind} {name} exists in the cluster and was not made by a Work"
                )));
            }
            Some(_) => {}
            None => self.ensure_namespace(namespace).await?,
        }
        // What was applied before and is not in it any more goes.
        let params = PatchParams::apply(MANAGER).force();
        let written = api.patch(name, &params, &Patch::Apply(manifest)).await?;
        let there = |written: DynamicObject| Ok(Applied::There(Box::new(written), mirror.kind.clone()));
        let Some(patch) = strangers(&whole(&written, &mirror.kind), manifest) else { return there(written) };
        let params = PatchParams { field_manager: Some(MANAGER.into()), ..PatchParams::default() };
        let written = api.patch(name, &params, &Patch::Merge(patch)).await?;
        match strangers(&whole(&written, &mirror.kind), manifest) {
            None => there(written),
            Some(_) => Err(Failure::refused(format!(
                "{} {name}: somebody in the cluster has it ask for more than it was brought with",
                mirror.kind.kind
            ))),
        }
    }

    async fn ensure_namespace(&self, namespace: &str) -> Result<(), Failure> {
        if namespace.is_empty() {
            return Ok(());
        }
        let namespaces: Api<Namespace> = Api::all(self.member.clone());
        if namespaces.get_metadata_opt(namespace).await?.is_some() {
            return Ok(());
        }
        let mut own = Namespace::default();
        own.metadata.name = Some(namespace.to_owned());
        match namespaces.create(&PostParams::default(), &own).await {
            Err(error) if !is_passing(&error) => Err(error.into()),
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
            let mirror = match self.begun(manifest).await {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Pods that a CronJob runs are asked for by more than their template.
    #[test]
    fn what_is_added_to_a_job_template_is_taken_out() {
        let manifest = |more: Value| {
            let resources = json!({"requests": {"cpu": "1"}});
            let template = json!({"spec": {"containers": [{"name": "c", "resources": resources}]}});
            let mut job = json!({ "template": template });
            more.as_object().into_iter().flatten().for_each(|(field, value)| job[field] = value.clone());
            json!({"apiVersion": "batch/v1", "kind": "CronJob", "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": job}}})
        };
        let wanted = manifest(json!({}));
        let patch = strangers(&manifest(json!({"parallelism": 100})), &wanted).expect("it asks for more");
        assert_eq!(patch, json!({"spec": {"jobTemplate": {"spec": {"parallelism": null}}}}));
        assert_eq!(strangers(&manifest(json!({"backoffLimit": 3})), &wanted), None, "what asks for nothing stays");
    }
}
