//! Somebody who looks again and again while other things happen.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use kube::api::DynamicObject;
use tokio::task::JoinHandle;

use super::{api, quotas};

pub struct Observer {
    /// Ends with the first thing that was not as it should be.
    task: JoinHandle<String>,
    looks: Arc<AtomicUsize>,
}

impl Observer {
    /// Looks as long as there is nothing to complain about.
    pub fn begin<L>(look: impl Fn() -> L + Send + 'static) -> Observer
    where
        L: Future<Output = Option<String>> + Send,
    {
        let looks = Arc::new(AtomicUsize::new(0));
        let counted = looks.clone();
        let task = tokio::spawn(async move {
            loop {
                if let Some(complaint) = look().await {
                    return complaint;
                }
                counted.fetch_add(1, Ordering::Relaxed);
                tokio::task::yield_now().await;
            }
        });
        Observer { task, looks }
    }

    /// Reads the quota.
    pub fn of_quota(
        client: &kube::Client,
        holds: impl Fn(&DynamicObject) -> bool + Clone + Send + 'static,
    ) -> Observer {
        let client = client.clone();
        Observer::begin(move || {
            let (client, holds) = (client.clone(), holds.clone());
            async move {
                let quota = api(&client, &quotas()).get("q").await.expect("the quota");
                (!holds(&quota)).then(|| format!("the quota said {:?}", quota.data["status"]))
            }
        })
    }

    /// It looked so often at least, and all was as it should be.
    pub async fn end(self, enough: usize) {
        if self.task.is_finished() {
            panic!("{}", self.task.await.expect("a complaint"));
        }
        self.task.abort();
        let looks = self.looks.load(Ordering::Relaxed);
        assert!(looks >= enough, "only {looks} looks");
    }
}
