//! Which resources are watched: those that policies are understood by, and those that policies count.

use std::collections::{HashMap, HashSet};
use std::sync::PoisonError;
use std::time::Duration;

use families::Families;
use kube::Client;
use rules::GroupResource;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::cluster::{Served, served};
use crate::core::{Counted, Namespaces};
use crate::guests;
use crate::push::Directory;
use crate::registration::Asked;
use crate::run::OperatorError;
use crate::sight::Seen;
use crate::watch::{self, News};

/// How long new kinds may take to be served, and how often they are asked for.
const SERVED: Duration = Duration::from_secs(60);
const ASKED: Duration = Duration::from_millis(200);
/// How long readiness waits for an API that does not say what it serves.
const UNANSWERED: Duration = Duration::from_secs(30);
/// How often it is asked how a kind is served that was redefined.
const REDEFINED: u32 = 10;

/// Which resources are watched, and how they are served.
pub struct Watches {
    client: Client,
    directory: Directory,
    news: mpsc::Sender<News>,
    tasks: HashMap<GroupResource, AbortHandle>,
    /// Kinds that were redefined, and how often it is still to be asked how they are served now: the cluster takes a while.
    redefined: HashMap<GroupResource, u32>,
    /// Those that the cluster does not serve, or since when it does not say.
    absent: HashMap<GroupResource, Option<Instant>>,
    /// Those of which all was told, or that it cannot be told.
    listed: HashSet<GroupResource>,
    /// How those were served that were told at some time: what is watched anew is asked about as before until it is told again.
    told: HashMap<GroupResource, Served>,
}

impl Watches {
    pub fn new(client: Client, directory: Directory, news: mpsc::Sender<News>) -> Watches {
        Watches {
            client,
            directory,
            news,
            tasks: HashMap::new(),
            redefined: HashMap::new(),
            absent: HashMap::new(),
            listed: HashSet::new(),
            told: HashMap::new(),
        }
    }

    /// Lists what it takes to understand policies: that is there before anything else is counted. What came after the lists is
    /// for later.
    pub async fn understand(
        &mut self,
        families: &Families,
        news: &mut mpsc::Receiver<News>,
    ) -> Result<(Vec<Seen>, Vec<News>), OperatorError> {
        let needed = guests::understood_by(families);
        let until = Instant::now() + SERVED;
        for resource in &needed {
            while !self.begin(resource).await? {
                if Instant::now() > until {
                    return Err(OperatorError::NotServed { resource: resource.clone() });
                }
                tokio::time::sleep(ASKED).await;
            }
        }
        let mut begun: HashSet<GroupResource> = needed.into_iter().collect();
        for resource in guests::explained_by(families) {
            // An older cluster may not have it.
            if self.begin(&resource).await? {
                begun.insert(resource);
            }
        }
        let (mut objects, mut later) = (Vec::new(), Vec::new());
        while self.listed.len() < begun.len() {
            match news.recv().await {
                Some(News::Listed { resource, .. }) if !self.listed.contains(&resource) => {
                    self.note_listed(resource);
                }
                Some(News::See(seen)) if seen.first().is_some_and(|one| !self.listed.contains(&one.key.resource)) => {
                    objects.extend(seen);
                }
                // A kind that is new may be unknown for a moment.
                Some(News::Blind { resource, why, is_denied: true }) if !self.listed.contains(&resource) => {
                    return Err(OperatorError::NotListed { resource, why });
                }
                Some(other) => later.push(other),
                None => break,
            }
        }
        Ok((objects, later))
    }

    /// Watches a resource; whether the cluster serves it.
    async fn begin(&mut self, resource: &GroupResource) -> Result<bool, kube::Error> {
        if self.served(resource).is_some() {
            return Ok(true);
        }
        let Some(served) = served(&self.client, resource).await? else { return Ok(false) };
        self.directory.write().unwrap_or_else(PoisonError::into_inner).insert(resource.clone(), served.clone());
        let task = tokio::spawn(watch::watch(self.client.clone(), served, self.news.clone()));
        self.tasks.insert(resource.clone(), task.abort_handle());
        Ok(true)
    }

    /// All of a resource was told, or that it cannot be.
    pub fn note_listed(&mut self, resource: GroupResource) {
        if let Some(served) = self.served(&resource) {
            self.told.insert(resource.clone(), served);
            self.listed.insert(resource);
        }
    }

    /// A definition is another: what it defines may be served otherwise, or no more.
    pub fn doubt(&mut self, resource: GroupResource) {
        if self.served(&resource).is_some() {
            self.redefined.insert(resource, REDEFINED);
        }
    }

    /// Asks how those are served now. What is served otherwise is watched anew.
    pub async fn look_again(&mut self) {
        let doubted: Vec<GroupResource> = self.redefined.keys().cloned().collect();
        for resource in doubted {
            self.look_at(&resource).await;
        }
        self.redefined.retain(|_, times| {
            *times -= 1;
            *times > 0
        });
    }

    async fn look_at(&mut self, resource: &GroupResource) {
        let Some(known) = self.served(resource) else { return };
        match served(&self.client, resource).await {
            Ok(now) if now.as_ref() == Some(&known) => return,
            Ok(_) => {}
            Err(error) => {
                tracing::warn!(%resource, %error, "the cluster did not say how it serves a kind that was redefined");
                return;
            }
        }
        tracing::info!(%resource, "is served otherwise, and watched anew");
        if let Some(task) = self.tasks.remove(resource) {
            task.abort();
        }
        self.listed.remove(resource);
        self.directory.write().unwrap_or_else(PoisonError::into_inner).remove(resource);
    }

    /// Watches all of these that the cluster serves; whether all of them were told. Those that it does not serve are asked for again
    /// only where `asks` says so.
    pub async fn want(&mut self, resources: &Counted, asks: bool) -> bool {
        let mut complete = true;
        for resource in resources.keys() {
            if self.served(resource).is_none() && (asks || !self.absent.contains_key(resource)) {
                match self.begin(resource).await {
                    Ok(true) => drop(self.absent.remove(resource)),
                    // What is not there has no objects.
                    Ok(false) => drop(self.absent.insert(resource.clone(), None)),
                    Err(error) => {
                        tracing::warn!(%resource, %error, "the cluster does not say how it serves what policies count");
                        let since = self.absent.get(resource).copied().flatten().unwrap_or_else(Instant::now);
                        self.absent.insert(resource.clone(), Some(since));
                    }
                }
            }
            complete &= match self.absent.get(resource) {
                None => self.listed.contains(resource),
                Some(None) => true,
                // An API that somebody else serves, and that does not answer, must not keep all others waiting.
                Some(Some(since)) => since.elapsed() > UNANSWERED,
            };
        }
        complete
    }

    fn served(&self, resource: &GroupResource) -> Option<Served> {
        self.directory.read().unwrap_or_else(PoisonError::into_inner).get(resource).cloned()
    }

    /// What is to be asked about of these: what was told.
    pub fn to_ask(&self, counted: &Counted) -> Vec<Asked> {
        let asked = |(resource, within): (&GroupResource, &Option<Namespaces>)| {
            Some(Asked { served: self.told.get(resource)?.clone(), within: within.clone() })
        };
        counted.iter().filter_map(asked).collect()
    }
}
