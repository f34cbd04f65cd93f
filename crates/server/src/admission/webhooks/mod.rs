//! Admission webhooks that users register: asked over HTTPS before an object is stored, in Kubernetes' protocol.
//!
//! ```text
//! stored configurations ── observe ──▶ Index (compiled hooks, swapped whole)
//! request ── Webhooks::mutate   ──▶ one after the other, each answer's patch applied, some asked again
//!         └─ Webhooks::validate ──▶ all at once, any of them may refuse
//! ```
//!
//! Start reading at [`Webhooks`]. [`hook`] is one compiled webhook, [`matching`] decides whether it is concerned,
//! [`review`] is the question and its answer as documents, [`client`] carries them.
//!
//! Webhook configurations themselves are never shown to webhooks: one that refuses everything could not be removed.

mod call;
mod client;
mod hook;
mod matching;
mod review;
mod target;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use arc_swap::ArcSwap;
use futures::StreamExt;
use parking_lot::Mutex;
use rules::GroupResource;
use serde_json::Value;

use crate::core::{Cache, Event, EventKind};
use crate::identity::Identity;
use crate::metrics::Metrics;
use crate::registry::Registry;
use hook::Hook;
use matching::Shape;

pub const GROUP: &str = "admissionregistration.k8s.io";
const MUTATING: &str = "mutatingwebhookconfigurations";
const VALIDATING: &str = "validatingwebhookconfigurations";

/// Validating webhooks of one request that are asked at the same time; more wait their turn.
const CALLS_AT_ONCE_MAX: usize = 32;

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Operation {
    Create,
    Update,
    Delete,
}

impl Operation {
    pub fn name(self) -> &'static str {
        match self {
            Operation::Create => "CREATE",
            Operation::Update => "UPDATE",
            Operation::Delete => "DELETE",
        }
    }
}

/// A write, as webhooks' rules match it and reviews describe it.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    pub operation: Operation,
    pub resource: &'a GroupResource,
    pub version: &'a str,
    /// Group, version and kind of the body, which for some subresources is not that of the resource.
    pub kind: [&'a str; 3],
    pub subresource: &'a str,
    /// Empty for cluster-scoped objects, but a Namespace is in itself.
    pub namespace: &'a str,
    pub name: &'a str,
    pub identity: &'a Identity,
    /// The stored object, for changes and deletions.
    pub old: Option<&'a Value>,
    /// CreateOptions and so on, as a document.
    pub options: &'a Value,
    pub dry_run: bool,
}

/// Why a write goes no further.
#[derive(Clone, Debug, PartialEq)]
pub enum Refusal {
    /// A webhook said no: a whole `Status`, its code and reason the webhook's.
    Denied(Box<Value>),
    /// 400: the webhook cannot take part in a dry run.
    BadRequest(String),
    /// 403; the text behind `<resource> "<name>" is forbidden: `.
    Forbidden(String),
    /// 500; the text behind `Internal error occurred: `. The webhook could not be asked, or made no sense.
    Failed(String),
}

/// Makes a patched object fit its kind again and fills in its defaults. `Err` says why it cannot.
pub type Settle<'a> = &'a mut (dyn FnMut(Value) -> Result<Value, String> + Send);

/// The webhooks of this moment.
#[derive(Default)]
struct Index {
    mutating: Vec<Arc<Hook>>,
    validating: Vec<Arc<Hook>>,
}

/// All registered webhooks.
pub struct Webhooks {
    index: Arc<ArcSwap<Index>>,
    cache: Arc<Cache>,
    registry: Arc<Registry>,
    metrics: Arc<Metrics>,
}

/// The hooks of each stored configuration, in the order of their names.
#[derive(Default)]
struct Configurations {
    mutating: BTreeMap<Arc<str>, Vec<Arc<Hook>>>,
    validating: BTreeMap<Arc<str>, Vec<Arc<Hook>>>,
}

impl Webhooks {
    pub fn follow(cache: &Arc<Cache>, registry: &Arc<Registry>, metrics: &Arc<Metrics>) -> Webhooks {
        let index = Arc::new(ArcSwap::from_pointee(Index::default()));
        let mut configurations = Configurations::default();
        // A hook looks up Services in the cache, and the cache holds the observer: a strong pointer would be a circle.
        let weak = Arc::downgrade(cache);
        for resource in [MUTATING, VALIDATING] {
            for object in cache.list(&GroupResource::new(GROUP, resource)).range("", None) {
                let hooks = Hook::all(&object.value(), &weak);
                configurations.put(resource, &object.key.name, Some(hooks));
            }
        }
        index.store(Arc::new(configurations.index()));
        let (configurations, following) = (Mutex::new(configurations), Arc::clone(&index));
        cache.observe(move |event: &Event| {
            let key = &event.object.key;
            if &*key.resource.group != GROUP || !matches!(&*key.resource.resource, MUTATING | VALIDATING) {
                return;
            }
            let gone = event.kind == EventKind::Deleted;
            let hooks = (!gone).then(|| Hook::all(&event.object.value(), &weak));
            let mut configurations = configurations.lock();
            configurations.put(&key.resource.resource, &key.name, hooks);
            following.store(Arc::new(configurations.index()));
        });
        Webhooks { index, cache: Arc::clone(cache), registry: Arc::clone(registry), metrics: Arc::clone(metrics) }
    }

    /// Whether there is no webhook at all, so that a request need not be described to any.
    pub fn is_idle(&self) -> bool {
        let index = self.index.load();
        index.mutating.is_empty() && index.validating.is_empty()
    }

    /// Shows the object to every mutating webhook it concerns, in the order of their configurations' names and then their
    /// own, and applies what they answer. A webhook that wishes it is asked once more when a later one changed something.
    /// Tells whether the object changed. A deletion has no object: null.
    pub async fn mutate(
        &self,
        request: &Request<'_>,
        object: &mut Value,
        settle: Settle<'_>,
        warnings: &mut Vec<String>,
    ) -> Result<bool, Refusal> {
        let index = self.index.load_full();
        if index.mutating.is_empty() || is_exempt(request) {
            return Ok(false);
        }
        let mut any = false;
        let mut asked = Vec::new();
        let mut again = BTreeSet::new();
        for second in [false, true] {
            for (at, hook) in index.mutating.iter().enumerate() {
                if second && !again.contains(&at) {
                    continue;
                }
                let Some(shape) = self.matches(hook, request, object)? else { continue };
                let changed = self.ask_to_mutate(hook, request, &shape, object, settle, warnings).await?;
                any |= changed;
                if second {
                    continue;
                }
                if changed {
                    again.extend(asked.iter().copied());
                }
                if hook.reinvoked {
                    asked.push(at);
                }
            }
        }
        Ok(any)
    }

    async fn ask_to_mutate(
        &self,
        hook: &Hook,
        request: &Request<'_>,
        shape: &Shape,
        object: &mut Value,
        settle: Settle<'_>,
        warnings: &mut Vec<String>,
    ) -> Result<bool, Refusal> {
        let shown = shape.shown(object);
        let Some(answer) = call::ask(hook, request, shape, &shown, true, &self.metrics).await? else {
            return Ok(false);
        };
        warnings.extend(answer.warnings);
        let Some(patch) = answer.patch else { return Ok(false) };
        if shown.is_null() {
            return Err(Refusal::Failed(format!(
                "admission webhook {:?} attempted to modify the object, which is not supported for this operation",
                hook.name
            )));
        }
        let failed =
            |why: String| Refusal::Failed(format!("admission webhook {:?} returned a bad patch: {why}", hook.name));
        let patched =
            kinds::patch::json_patch(shown.into_owned(), &patch).map_err(|error| failed(error.to_string()))?;
        let settled = settle(shape.taken_back(patched, request)).map_err(failed)?;
        let changed = settled != *object;
        *object = settled;
        Ok(changed)
    }

    /// Shows the object, as it is to be stored, to every validating webhook it concerns, all at once. The first refusal in
    /// the order of the webhooks counts, whichever came first.
    pub async fn validate(
        &self,
        request: &Request<'_>,
        object: &Value,
        warnings: &mut Vec<String>,
    ) -> Result<(), Refusal> {
        let index = self.index.load_full();
        if index.validating.is_empty() || is_exempt(request) {
            return Ok(());
        }
        let mut calls = Vec::new();
        for hook in &index.validating {
            if let Some(shape) = self.matches(hook, request, object)? {
                calls.push(async move {
                    let shown = shape.shown(object);
                    call::ask(hook, request, &shape, &shown, false, &self.metrics).await
                });
            }
        }
        let answers: Vec<_> = futures::stream::iter(calls).buffered(CALLS_AT_ONCE_MAX).collect().await;
        for answer in answers {
            warnings.extend(answer?.into_iter().flat_map(|answer| answer.warnings));
        }
        Ok(())
    }
}

fn is_exempt(request: &Request<'_>) -> bool {
    &*request.resource.group == GROUP
}

impl Configurations {
    fn put(&mut self, resource: &str, name: &Arc<str>, hooks: Option<Vec<Arc<Hook>>>) {
        let all = if resource == MUTATING { &mut self.mutating } else { &mut self.validating };
        match hooks {
            Some(hooks) => all.insert(Arc::clone(name), hooks),
            None => all.remove(name),
        };
    }

    fn index(&self) -> Index {
        Index {
            mutating: self.mutating.values().flatten().cloned().collect(),
            validating: self.validating.values().flatten().cloned().collect(),
        }
    }
}
