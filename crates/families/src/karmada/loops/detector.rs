//! Bindings for templates: whatever a PropagationPolicy selects gets one, and it says what the template asks for. Where that is
//! placed already and asks for more than a quota has left, the write is refused and the binding stays as it was.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kinds::fields::text;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::discovery::{ApiCapabilities, Scope, verbs};
use kube::runtime::watcher;
use kube::{Client, ResourceExt};
use serde_json::{Map, Value, json};

use super::super::Settings;
use super::super::interpret::{self, Wants};
use super::super::policy::{self, Policy};
use super::difference::difference;
use super::kind::{
    BINDING_FINALIZER, POLICY_NAME, POTENTIAL, TEMPLATE_MARK, annotation, bindings, clusters, fingerprint, is_leaving,
    namespace_of, policies, quotas, stays_here, template_mark, whole, within,
};
use super::promises::Promises;
use super::resize::{Change, Places};
use super::scheduler::APPLIED_PLACEMENT;
use super::standing::{Recorder, is_passing, recorder, tell};
use super::watch::{Mirror, Watch};

/// How soon what was refused is tried again; what keeps being refused, later each time.
const RETRY: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(10);
/// Kinds that policies of all namespaces together may name. Each is watched.
const KINDS_MAX: usize = 256;
/// Templates of one namespace that are held against its policies in one look: those of others do not wait for all it has.
const LOOKED_MAX: usize = 64;
/// Kinds that are asked for in one look: whoever names many that nobody knows keeps nobody else waiting.
const ASKED_MAX: usize = 64;
/// How long a look waits for the objects of kinds that it has begun to watch. Those that are not told by then are looked at later.
const PATIENCE: Duration = Duration::from_secs(1);

type Kind = (String, String);
/// Kind, namespace and name.
type Key = (Kind, String, String);

pub struct Detector {
    client: Client,
    settings: Arc<Settings>,
    watch: Watch,
    policies: Mirror,
    bindings: Mirror,
    quotas: Mirror,
    /// Quiet: what they have left is looked at when something else has changed.
    clusters: Mirror,
    promises: Promises,
    templates: BTreeMap<Kind, Mirror>,
    /// Kinds of which not everything there is was seen yet.
    coming: BTreeMap<Kind, Mirror>,
    /// Kinds that are named and have no templates as far as is known, and when that was found.
    unknown: HashMap<Kind, Instant>,
    /// What was seen of each template, its binding and the policies when all was well.
    done: HashMap<Key, String>,
    refused: HashMap<Key, Refused>,
    recorder: Recorder,
}

/// The policies of one namespace.
#[derive(Default)]
struct Selecting<'a> {
    policies: Vec<&'a Policy>,
    /// A number for them as they are.
    mark: u64,
    /// How many of its templates there was something to see to in this look.
    looked: usize,
}

impl<'a> Selecting<'a> {
    fn add(&mut self, policy: &'a Policy, version: &str) {
        self.mark = self.mark.wrapping_add(fingerprint(version));
        self.policies.push(policy);
    }
}

struct Refused {
    again: Instant,
    wait: Duration,
    /// The quotas, as they were.
    quotas: u64,
    said: String,
}

/// Why a template has not the binding that it must have.
#[derive(Debug)]
enum Unbound {
    /// Another write was first: the next look sees what it made.
    Overtaken(String),
    Refused(String),
}

impl From<String> for Unbound {
    fn from(why: String) -> Unbound {
        Unbound::Refused(why)
    }
}

impl From<kube::Error> for Unbound {
    fn from(error: kube::Error) -> Unbound {
        if is_passing(&error) { Unbound::Overtaken(words(&error)) } else { Unbound::Refused(words(&error)) }
    }
}

pub async fn run(client: Client, settings: Arc<Settings>, promises: Promises) {
    let (watch, [policies, bindings, quotas]) = Watch::begin(&client, [policies(), bindings(), quotas()]).await;
    let (_quiet, [clusters]) = Watch::begin(&client, [clusters()]).await;
    let mut detector = Detector::new(client, settings, watch, [policies, bindings, quotas, clusters], promises);
    loop {
        let is_settled = detector.look().await;
        detector.watch.rung(if is_settled { Duration::from_secs(3600) } else { RETRY }).await;
    }
}

/// Whether a kind's objects are in namespaces, and can be watched.
fn has_templates(capabilities: &ApiCapabilities) -> bool {
    capabilities.scope == Scope::Namespaced
        && [verbs::LIST, verbs::WATCH].iter().all(|verb| capabilities.supports_operation(verb))
}

fn revision(object: Option<&DynamicObject>) -> &str {
    object.and_then(|one| one.metadata.resource_version.as_deref()).unwrap_or("-")
}

impl Detector {
    pub fn new(
        client: Client,
        settings: Arc<Settings>,
        watch: Watch,
        [policies, bindings, quotas, clusters]: [Mirror; 4],
        promises: Promises,
    ) -> Detector {
        let recorder = recorder(&client, "resource-detector");
        let (templates, coming) = (BTreeMap::new(), BTreeMap::new());
        let (unknown, done, refused) = (HashMap::new(), HashMap::new(), HashMap::new());
        Detector {
            client,
            settings,
            watch,
            policies,
            bindings,
            quotas,
            clusters,
            promises,
            templates,
            coming,
            unknown,
            done,
            refused,
            recorder,
        }
    }

    /// Looks at every template; whether nothing has to be tried again.
    pub async fn look(&mut self) -> bool {
        let mut is_settled = self.follow_kinds().await;
        let read = |one: &Arc<DynamicObject>| Policy::read(whole(one, &self.policies.kind));
        let policies: Vec<Policy> = self.policies.all().iter().map(read).collect();
        let mut by_namespace: HashMap<String, Selecting<'_>> = HashMap::new();
        for policy in &policies {
            let of = |field: &str| policy.object["metadata"][field].as_str().unwrap_or("").to_owned();
            by_namespace.entry(of("namespace")).or_default().add(policy, &of("resourceVersion"));
        }
        let mut seen = 0;
        for (kind, mirror) in self.templates.clone() {
            let mut templates = mirror.all();
            // The oldest first: whoever gets a binding first is served first.
            templates.sort_by_cached_key(|one| {
                (one.metadata.creation_timestamp.as_ref().map(|at| at.0), namespace_of(one), one.name_any())
            });
            for template in templates {
                let namespace = namespace_of(&template);
                let Some(selecting) = by_namespace.get_mut(&namespace) else { continue };
                seen += 1;
                is_settled &= self.tend(&kind, &mirror, &template, selecting).await;
            }
        }
        if by_namespace.values().any(|one| one.looked > LOOKED_MAX) {
            self.watch.bell().notify_one();
        }
        if self.done.len() > 1024.max(2 * seen) {
            self.done.clear();
        }
        if self.refused.len() > 1024.max(2 * seen) {
            self.refused.clear();
        }
        self.remove_orphans().await && is_settled
    }

    /// Watches the kinds that policies name; whether all of them are known.
    async fn follow_kinds(&mut self) -> bool {
        let mut is_settled = true;
        let mut named: Vec<Kind> = Vec::new();
        for policy in self.policies.all() {
            let policy = json!({"spec": policy.data["spec"]});
            named.extend(policy::kinds(&policy).map(|(version, kind)| (version.to_owned(), kind.to_owned())));
        }
        named.sort();
        named.dedup();
        named.retain(|kind| !self.templates.contains_key(kind) && !stays_here(&kind.0, &kind.1));
        let is_named = |kind: &Kind| named.binary_search(kind).is_ok();
        self.unknown.retain(|kind, _| is_named(kind));
        self.coming.retain(|kind, _| is_named(kind));
        is_settled &= self.unknown.is_empty();
        named.retain(|kind| !self.coming.contains_key(kind));
        named.retain(|kind| self.unknown.get(kind).is_none_or(|since| since.elapsed() >= RETRY));
        // Those that nobody asked for yet come first.
        named.sort_by_key(|kind| self.unknown.get(kind).copied());
        is_settled &= named.len() <= ASKED_MAX;
        let mut begun = Vec::new();
        for kind in named.into_iter().take(ASKED_MAX) {
            let (group, version) = kind.0.split_once('/').unwrap_or(("", &kind.0));
            if self.templates.len() + self.coming.len() >= KINDS_MAX {
                break;
            }
            let wanted = GroupVersionKind::gvk(group, version, &kind.1);
            match kube::discovery::pinned_kind(&self.client, &wanted).await {
                Ok((resource, capabilities)) if has_templates(&capabilities) => {
                    let mirror = self.watch.mirror(&self.client, &resource, "", watcher::Config::default());
                    begun.push(mirror.clone());
                    self.unknown.remove(&kind);
                    self.coming.insert(kind, mirror);
                }
                // It may come to be defined, or to be another one.
                known => {
                    tracing::debug!(error = ?known.err(), kind = kind.1, "a kind that a policy names has no templates");
                    self.unknown.insert(kind, Instant::now());
                    is_settled = false;
                }
            }
        }
        if !begun.is_empty() {
            // One that cannot be listed keeps nobody waiting: it rings when it can.
            let _ = tokio::time::timeout(PATIENCE, futures::future::join_all(begun.iter().map(Mirror::ready))).await;
        }
        self.templates.extend(self.coming.extract_if(.., |_, mirror| mirror.is_ready()));
        is_settled
    }

    async fn tend(
        &mut self,
        kind: &Kind,
        mirror: &Mirror,
        template: &DynamicObject,
        selecting: &mut Selecting<'_>,
    ) -> bool {
        if is_leaving(template) {
            return true;
        }
        let (namespace, name) = (namespace_of(template), template.name_any());
        let binding_name = policy::binding_name(&kind.1, &name);
        let binding = self.bindings.get(&namespace, &binding_name);
        let policies = &selecting.policies[..];
        let seen = format!("{} {} {}", revision(Some(template)), revision(binding.as_deref()), selecting.mark);
        let key = (kind.clone(), namespace, name);
        if self.done.get(&key) == Some(&seen) {
            return true;
        }
        let quotas = self.quotas_mark(&key.1);
        if let Some(refused) = self.refused.get(&key)
            && refused.quotas == quotas
            && refused.said.starts_with(&seen)
            && refused.again > Instant::now()
        {
            return false;
        }
        selecting.looked += 1;
        if selecting.looked > LOOKED_MAX {
            return true;
        }
        let template_value = whole(template, &mirror.kind);
        let Some(Policy { object: policy, .. }) = policy::best(&template_value, policies.iter().copied()) else {
            self.done.insert(key, seen);
            return true;
        };
        if self.is_bound_as_another(kind, &key, policies) {
            self.done.insert(key, seen);
            return true;
        }
        match self.bind(&template_value, policy, binding.as_deref(), &binding_name).await {
            Ok(is_written) => {
                self.refused.remove(&key);
                if !is_written {
                    self.done.insert(key, seen);
                }
                true
            }
            Err(why) => {
                let (why, is_told) = match why {
                    Unbound::Overtaken(why) => (why, false),
                    Unbound::Refused(why) => (why, true),
                };
                let wait = self.refused.get(&key).map_or(RETRY, |before| (before.wait * 2).min(RETRY_MAX));
                let said = format!("{seen} {why}");
                let is_news = self.refused.get(&key).is_none_or(|before| before.said != said);
                self.refused.insert(key, Refused { again: Instant::now() + wait, wait, quotas, said });
                if is_news && is_told {
                    let of = |field: &str| policy["metadata"][field].as_str().unwrap_or("");
                    let note = format!("Apply policy({}/{}) failed: {why}", of("namespace"), of("name"));
                    tell(&self.recorder, template, &mirror.kind, true, "ApplyPolicyFailed", &note).await;
                }
                false
            }
        }
    }

    /// Whether a template that is served under several versions is selected under an earlier one, too: it has one binding, which
    /// would be written for the one and the other in turn.
    fn is_bound_as_another(&self, kind: &Kind, (_, namespace, name): &Key, policies: &[&Policy]) -> bool {
        let group = |kind: &Kind| kind.0.split_once('/').map_or(String::new(), |(group, _)| group.to_owned());
        let others = self.templates.range(..kind).filter(|(other, _)| other.1 == kind.1 && group(other) == group(kind));
        let mut selected = others.filter_map(|(_, mirror)| Some(whole(&*mirror.get(namespace, name)?, &mirror.kind)));
        selected.any(|template| policy::best(&template, policies.iter().copied()).is_some())
    }

    /// A number for the quotas of a namespace, with what is used of them.
    fn quotas_mark(&self, namespace: &str) -> u64 {
        let all = self.quotas.all();
        let own = all.iter().filter(|quota| quota.namespace().as_deref() == Some(namespace));
        own.fold(1, |mark, quota| fingerprint(&format!("{mark} {}", revision(Some(quota)))))
    }

    /// Writes the binding where it is not as it must be; whether that was so.
    async fn bind(
        &self,
        template: &Value,
        policy: &Value,
        binding: Option<&DynamicObject>,
        name: &str,
    ) -> Result<bool, Unbound> {
        let wants: Wants = interpret::wants(template, self.settings.reserve)?;
        let spec = policy::binding_spec(template, policy, &wants);
        let mark = template_mark(template);
        let metadata = &template["metadata"];
        let namespace = metadata["namespace"].as_str().unwrap_or("");
        let api = within(&self.client, &bindings(), namespace);
        let owner = json!({
            "apiVersion": template["apiVersion"], "kind": template["kind"], "name": metadata["name"],
            "uid": metadata["uid"], "controller": true, "blockOwnerDeletion": true,
        });
        let mut annotations = json!({TEMPLATE_MARK: mark, POLICY_NAME: policy["metadata"]["name"]});
        if let Some(potential) = interpret::potential(template) {
            annotations[POTENTIAL] = json!(potential);
        } else if binding.is_some_and(|binding| !annotation(binding, POTENTIAL).is_empty()) {
            annotations[POTENTIAL] = Value::Null;
        }
        let Some(binding) = binding else {
            let mut spec = spec;
            spec.as_object_mut().into_iter().for_each(|fields| fields.retain(|_, value| !value.is_null()));
            let object: DynamicObject = serde_json::from_value(json!({
                "apiVersion": bindings().api_version, "kind": bindings().kind,
                "metadata": {
                    "name": name, "namespace": namespace, "ownerReferences": [owner],
                    "finalizers": [BINDING_FINALIZER], "annotations": annotations,
                },
                "spec": spec,
            }))
            .map_err(|error| error.to_string())?;
            api.create(&PostParams::default(), &object).await?;
            return Ok(true);
        };
        if is_leaving(binding) {
            // It goes with a template that was here before; this one gets its own afterwards.
            return Ok(false);
        }
        // Kinds of several groups may have one name, and names that differ may become one: then so have their bindings, and the first keeps it.
        let of = |field: &str| binding.data["spec"]["resource"][field].as_str().unwrap_or("");
        let group = |version: &str| version.split_once('/').map_or(String::new(), |(group, _)| group.to_owned());
        let (version, kind) = (text(template, &["apiVersion"]), text(template, &["kind"]));
        let is_of_kind = group(of("apiVersion")) == group(version) && of("kind") == kind;
        if !is_of_kind || of("name") != text(template, &["metadata", "name"]) {
            let (other, name_of) = (of("kind"), of("name"));
            let why = format!("ResourceBinding {name} is that of {other} {name_of} in {}", of("apiVersion"));
            return Err(why.into());
        }
        let is_marked = annotation(binding, TEMPLATE_MARK) == mark
            && annotation(binding, POLICY_NAME) == policy["metadata"]["name"].as_str().unwrap_or("");
        let stored = &binding.data["spec"];
        let said = spec.as_object().into_iter().flatten();
        let news = said.filter_map(|(field, wanted)| Some((field.clone(), difference(&stored[field], wanted)?)));
        let news: Map<String, Value> = news.collect();
        if is_marked && news.is_empty() {
            return Ok(false);
        }
        let uid = binding.uid().unwrap_or_default();
        let change = Change::of(stored, &news);
        let clusters = || self.promises.clusters(&self.clusters, &self.settings);
        let places = match &change {
            Some(change) => change.places(&wants, &uid, self.settings.count_evicting, clusters)?,
            None => Places::default(),
        };
        let mut metadata = json!({"annotations": annotations, "uid": uid});
        let mut tries = vec![places.first];
        tries.extend(places.otherwise.map(Some));
        let mut refused = None;
        for targets in tries {
            let mut news = news.clone();
            if let Some(targets) = &targets {
                // Worked out for this placement and for no other.
                metadata["resourceVersion"] = json!(binding.metadata.resource_version);
                metadata["annotations"][APPLIED_PLACEMENT] = json!(spec["placement"].to_string());
                news.insert("clusters".into(), json!(targets));
            }
            let patch = Patch::Merge(json!({"metadata": metadata, "spec": news}));
            match api.patch(name, &PatchParams::default(), &patch).await {
                Ok(_) => {
                    if let (Some(Change { before, mut next }), Some(targets)) = (change, targets) {
                        next.clusters = targets;
                        self.promises.note(&before, &next, &mut []);
                    }
                    return Ok(true);
                }
                Err(kube::Error::Api(status)) if status.code == 403 => {
                    refused.get_or_insert(kube::Error::Api(status));
                }
                Err(error) => return Err(error.into()),
            }
        }
        refused.map_or(Ok(true), |error| Err(error.into()))
    }

    /// Bindings that were made for templates that are gone go too; whether all could.
    async fn remove_orphans(&self) -> bool {
        let mut is_settled = true;
        for binding in self.bindings.all() {
            if is_leaving(&binding) || annotation(&binding, POLICY_NAME).is_empty() {
                continue;
            }
            let of = |field: &str| binding.data["spec"]["resource"][field].as_str().unwrap_or("").to_owned();
            let Some(mirror) = self.templates.get(&(of("apiVersion"), of("kind"))) else { continue };
            let template = mirror.get(&namespace_of(&binding), &of("name"));
            if template.is_some_and(|one| one.uid().unwrap_or_default() == of("uid")) {
                continue;
            }
            let api = within(&self.client, &bindings(), &namespace_of(&binding));
            is_settled &= api.delete(&binding.name_any(), &DeleteParams::default()).await.is_ok();
        }
        is_settled
    }
}

/// What an API said, without the wrapper of its client.
pub fn words(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}
