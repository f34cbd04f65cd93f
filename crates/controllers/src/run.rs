//! The loop every controller shares: what failed is tried again, later each time.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use kube::runtime::Controller;
use kube::runtime::controller::Action;

/// A reconcile that did not get through. The object is looked at again.
#[derive(Debug, thiserror::Error)]
pub enum Failed {
    #[error(transparent)]
    Api(#[from] kube::Error),
    #[error("{0}")]
    Unexpected(String),
}

/// How long a failed object rests. Conflicts are the usual reason and gone by then.
const RETRY_AFTER: Duration = Duration::from_millis(200);

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
    let retry = move |_: Arc<K>, error: &Failed, _: Arc<Context>| {
        tracing::debug!(controller = name, %error, "will try again");
        Action::requeue(RETRY_AFTER)
    };
    controller.run(reconcile, retry, context).for_each(|_| std::future::ready(())).await;
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
