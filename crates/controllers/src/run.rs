//! The loop every controller shares: what failed is tried again, later each time ([`crate::pace`]).

use std::sync::Arc;
use std::time::Instant;

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::ListParams;
use kube::core::DeserializeGuard;
use kube::runtime::Controller;
use kube::runtime::controller::Action;
use serde_json::{Value, json};

use crate::pace::{Pace, SECOND};

/// A reconcile that did not get through. The object is looked at again.
#[derive(Debug, thiserror::Error)]
pub enum Failed {
    #[error(transparent)]
    Api(#[from] kube::Error),
    #[error("{0}")]
    Unexpected(String),
}

/// Runs a controller to the end of the process.
pub async fn drive<K, Context, Reconcile, Answer>(
    controller: Controller<K>,
    reconcile: Reconcile,
    context: Arc<Context>,
    name: &'static str,
) where
    K: kube::Resource + Clone + serde::de::DeserializeOwned + std::fmt::Debug + Send + Sync + 'static,
    K::DynamicType: std::fmt::Debug + Eq + std::hash::Hash + Clone + Unpin + Send + Sync,
    Reconcile: FnMut(Arc<K>, Arc<Context>) -> Answer,
    Answer: Future<Output = Result<Action, Failed>> + Send + 'static,
    Context: Send + Sync + 'static,
{
    let pace = Arc::new(Pace::default());
    let paced = Arc::clone(&pace);
    let retry = move |object: Arc<K>, error: &Failed, _: Arc<Context>| {
        tracing::debug!(controller = name, %error, "will try again");
        let meta = object.meta();
        Action::requeue(paced.failed(meta.namespace.as_deref().unwrap_or(""), meta.name.as_deref().unwrap_or("")))
    };
    let mut reconcile = reconcile;
    let paced = move |object: Arc<K>, context: Arc<Context>| {
        let meta = object.meta();
        let (namespace, name) = (meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default());
        let wait = pace.look(&namespace, &name, Instant::now());
        let (look, pace) = (wait.is_none().then(|| reconcile(object, context)), Arc::clone(&pace));
        async move {
            match (look, wait) {
                (Some(look), _) => {
                    let action = look.await?;
                    pace.succeeded(&namespace, &name);
                    Ok(action)
                }
                (None, wait) => Ok(Action::requeue(wait.unwrap_or(SECOND))),
            }
        }
    };
    controller.run(paced, retry, context).for_each(|_| std::future::ready(())).await;
}

/// An object that may turn out to be unreadable. A list or a watch of plain objects fails as a whole at the first odd one, and
/// one namespace's object must not end what a controller does for all others.
pub type Guarded<K> = DeserializeGuard<K>;

/// A reconcile of objects that can be read; the others are left alone.
pub fn guarded<K, Context, Reconcile, Answer>(
    name: &'static str,
    mut reconcile: Reconcile,
) -> impl FnMut(Arc<Guarded<K>>, Arc<Context>) -> BoxFuture<'static, Result<Action, Failed>>
where
    K: Clone,
    Reconcile: FnMut(Arc<K>, Arc<Context>) -> Answer,
    Answer: Future<Output = Result<Action, Failed>> + Send + 'static,
{
    move |object, context| match &object.0 {
        Ok(object) => reconcile(Arc::new(object.clone()), context).boxed(),
        Err(odd) => {
            left_alone(name, &odd.metadata);
            std::future::ready(Ok(Action::await_change())).boxed()
        }
    }
}

/// The objects of a list that can be read.
pub async fn readable<K>(api: &kube::Api<Guarded<K>>, params: &ListParams, name: &'static str) -> kube::Result<Vec<K>>
where
    K: kube::Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    Ok(sift(api.list(params).await?.items, name))
}

fn sift<K>(items: Vec<Guarded<K>>, name: &'static str) -> Vec<K> {
    let read = |object: Guarded<K>| object.0.map_err(|odd| left_alone(name, &odd.metadata)).ok();
    items.into_iter().filter_map(read).collect()
}

/// Names the object and nothing of what is in it, nor why it cannot be read: the reason quotes it.
fn left_alone(controller: &'static str, metadata: &ObjectMeta) {
    let (namespace, name) = (metadata.namespace.as_deref(), metadata.name.as_deref());
    tracing::warn!(controller, namespace, name, "an object cannot be read and is left alone");
}

/// Whether a text out of somebody's object can stand as a name in the path of a request. The client writes names into paths as
/// they are, and `x?watch=1` would ask for something else altogether, without end.
pub fn is_segment(name: &str) -> bool {
    !matches!(name, "" | "." | "..") && !name.contains(['/', '?', '#', '%', '\\']) && !name.contains(char::is_control)
}

/// Whether a status says all of this already; a number that is not shown is zero.
pub fn is_shown(status: &Value, shown: &Value) -> bool {
    status.as_object().into_iter().flatten().all(|(field, value)| {
        let shown = shown.get(field).unwrap_or(&Value::Null);
        shown == value || (shown.is_null() && *value == json!(0))
    })
}

/// The time of something that is written down now.
pub fn now() -> String {
    kinds::time::text(jiff::Timestamp::now().as_millisecond())
}

/// A write whose object is already gone, or already as wanted, is done.
pub fn gone_is_fine<T>(result: kube::Result<T>) -> Result<Option<T>, Failed> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// A create whose object exists already is done.
pub fn exists_is_fine<T>(result: kube::Result<T>) -> Result<Option<T>, Failed> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::Deployment;
    use kube::ResourceExt;
    use kube::core::ObjectList;
    use serde_json::json;

    use super::*;

    /// A list as the server could answer it if something odd had got in: another kind, a text in the place of a spec, a number
    /// that does not fit.
    fn listed() -> Vec<Guarded<Deployment>> {
        let whole = |name: &str, spec: Value| {
            let metadata = json!({"name": name, "namespace": "n", "uid": name});
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec})
        };
        let spec = json!({"replicas": 1, "selector": {}, "template": {}});
        let mut other = whole("other-kind", spec.clone());
        other["kind"] = "Secret".into();
        let list = json!({"apiVersion": "apps/v1", "kind": "DeploymentList", "metadata": {}, "items": [
            whole("first", spec.clone()),
            other,
            whole("text", "spec".into()),
            whole("wide", json!({"replicas": 1_u64 << 40, "selector": {}, "template": {}})),
            whole("last", spec),
        ]});
        serde_json::from_value::<ObjectList<Guarded<Deployment>>>(list).unwrap().items
    }

    #[test]
    fn only_names_stand_in_paths() {
        for name in ["web", "a.b", "system:x", "0"] {
            assert!(is_segment(name), "{name}");
        }
        for text in ["", ".", "..", "a/b", "x?watch=1", "?watch=1", "a#b", "a%2fb", "a\\b", "a\nb", "a\0b"] {
            assert!(!is_segment(text), "{text:?}");
        }
    }

    #[test]
    fn an_odd_object_hides_no_other() {
        let names: Vec<String> = sift(listed(), "test").iter().map(ResourceExt::name_any).collect();
        assert_eq!(names, ["first", "last"]);
    }

    #[test]
    fn an_odd_object_is_left_alone() {
        let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
        let noted = seen.clone();
        let mut reconcile = guarded("test", move |object: Arc<Deployment>, _: Arc<()>| {
            noted.lock().unwrap().push(object.name_any());
            std::future::ready(Ok(Action::requeue(SECOND)))
        });
        for object in listed() {
            let odd = object.0.is_err();
            let action = reconcile(Arc::new(object), Arc::new(())).now_or_never().unwrap().unwrap();
            assert_eq!(action == Action::await_change(), odd);
        }
        assert_eq!(*seen.lock().unwrap(), ["first", "last"]);
    }
}
