//! What is told of decisions, in statuses and events, while the next are made: a few at a time.

use std::sync::Arc;

use kube::Client;
use kube::api::DynamicObject;
use kube::core::ApiResource;
use serde_json::Value;
use tokio::task::JoinSet;

use super::standing::{Recorder, is_passing, patch_status, tell};

/// Told at the same time.
const AT_ONCE: usize = 16;

/// Who tells of objects of one kind.
#[derive(Clone)]
pub struct Teller {
    pub client: Client,
    pub kind: ApiResource,
    pub recorder: Recorder,
}

/// One thing to tell of an object.
pub struct Telling {
    pub of: Arc<DynamicObject>,
    pub status: Value,
    pub event: Option<Occasion>,
}

pub struct Occasion {
    pub is_warning: bool,
    pub reason: &'static str,
    pub note: String,
}

/// What is on its way.
pub struct Tellings {
    teller: Teller,
    tasks: JoinSet<kube::Result<()>>,
    is_settled: bool,
}

impl Tellings {
    pub fn new(teller: &Teller) -> Tellings {
        Tellings { teller: teller.clone(), tasks: JoinSet::new(), is_settled: true }
    }

    /// Begins to tell something, once there is room for it.
    pub async fn begin(&mut self, telling: Telling) {
        while self.tasks.len() >= AT_ONCE {
            self.end_one().await;
        }
        let Teller { client, kind, recorder } = self.teller.clone();
        self.tasks.spawn(async move {
            let Telling { of, status, event } = telling;
            patch_status(&client, &of, &kind, status).await?;
            if let Some(Occasion { is_warning, reason, note }) = event {
                tell(&recorder, &of, &kind, is_warning, reason, &note).await;
            }
            Ok(())
        });
    }

    async fn end_one(&mut self) {
        if let Some(Ok(Err(error))) = self.tasks.join_next().await {
            tracing::debug!(%error, "what was decided is told again");
            self.is_settled &= is_passing(&error);
        }
    }

    /// Returns when all is told; whether none of it failed for good.
    pub async fn finish(mut self) -> bool {
        while !self.tasks.is_empty() {
            self.end_one().await;
        }
        self.is_settled
    }
}
