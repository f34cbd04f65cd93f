//! Which resources are watched: those that policies are understood by, and those that policies count.

use std::collections::{HashMap, HashSet};
use std::sync::PoisonError;
use std::time::Duration;

use families::Families;
use http::Method;
use kube::Client;
use rules::GroupResource;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::cluster::{Served, call, found, served};
use crate::core::{Counted, Namespaces};
use crate::guests;
use crate::push::Directory;
use crate::registration::{Asked, DEFINITIONS};
use crate::run::OperatorError;
use crate::sent::Named;
use crate::sight::Seen;
use crate::watch::{self, News};

/// How long new kinds may take to be served, and how often they are asked for.
const SERVED: Duration = Duration::from_secs(60);
const ASKED: Duration = Duration::from_millis(200);
/// How long readiness waits for an API that does not say what it serves.
const UNANSWERED: Duration = Duration::from_secs(30);
/// How often it is asked how a kind is served that was redefined.
const REDEFINED: u32 = 10;

/// How a resource is served.
#[derive(Debug)]
pub struct Told {
    resource: GroupResource,
    answer: Result<Now, kube::Error>,
}

#[derive(Debug)]
enum Now {
    Served(Served),
    /// Nobody says so. Where its definition is gone as well, its objects are.
    Not {
        is_gone: bool,
    },
}

/// Which resources are watched, and how they are served.
pub struct Watches {
    client: Client,
    directory: Directory,
    news: mpsc::Sender<News>,
    /// Where answers go to how resources are served, and of which one is under way.
    answers: mpsc::UnboundedSender<Told>,
    asking: HashSet<GroupResource>,
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
    /// What is answered comes back to [`Watches::hear`]: an API that somebody else serves may take long to answer, and nobody waits for
    /// it meanwhile.
    pub fn new(
        client: Client,
        directory: Directory,
        news: mpsc::Sender<News>,
    ) -> (Watches, mpsc::UnboundedReceiver<Told>) {
        let (answers, answered) = mpsc::unbounded_channel();
        let watches = Watches {
            client,
            directory,
            news,
            answers,
            asking: HashSet::new(),
            tasks: HashMap::new(),
            redefined: HashMap::new(),
            absent: HashMap::new(),
            listed: HashSet::new(),
            told: HashMap::new(),
        };
        (watches, answered)
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
        self.watch(served);
        Ok(true)
    }

    fn watch(&mut self, served: Served) {
        let resource = served.resource.clone();
        self.directory.write().unwrap_or_else(PoisonError::into_inner).insert(resource.clone(), served.clone());
        let task = tokio::spawn(watch::watch(self.client.clone(), served, self.news.clone()));
        self.tasks.insert(resource, task.abort_handle());
    }

    fn stop(&mut self, resource: &GroupResource) {
        if let Some(task) = self.tasks.remove(resource) {
            task.abort();
        }
        self.listed.remove(resource);
        self.directory.write().unwrap_or_else(PoisonError::into_inner).remove(resource);
    }

    fn ask(&mut self, resource: &GroupResource) {
        if !self.asking.insert(resource.clone()) {
            return;
        }
        let (client, resource, answers) = (self.client.clone(), resource.clone(), self.answers.clone());
        tokio::spawn(async move {
            let answer = now(&client, &resource).await;
            // Nobody listens any more while it is stopping.
            let _ = answers.send(Told { resource, answer });
        });
    }

    /// Takes up how a resource is served; whether it is gone, with all of its objects.
    pub fn hear(&mut self, told: Told) -> Option<GroupResource> {
        let Told { resource, answer } = told;
        self.asking.remove(&resource);
        match (self.served(&resource), answer) {
            (Some(known), Ok(Now::Served(now))) if known == now => {}
            (Some(_), Ok(now)) => {
                tracing::info!(%resource, "is served otherwise, and watched anew");
                self.stop(&resource);
                match now {
                    Now::Served(now) => self.watch(now),
                    Now::Not { is_gone } => {
                        self.absent.insert(resource.clone(), None);
                        if is_gone {
                            self.told.remove(&resource);
                            return Some(resource);
                        }
                    }
                }
            }
            (None, Ok(Now::Served(now))) => {
                self.absent.remove(&resource);
                self.watch(now);
            }
            // What is not there has no objects.
            (None, Ok(Now::Not { .. })) => drop(self.absent.insert(resource, None)),
            (known, Err(error)) => {
                tracing::warn!(%resource, %error, "the cluster does not say how it serves what policies count");
                if known.is_none() {
                    let since = self.absent.get(&resource).copied().flatten().unwrap_or_else(Instant::now);
                    self.absent.insert(resource, Some(since));
                }
            }
        }
        None
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

    /// Asks how those are served now.
    pub fn look_again(&mut self) {
        let doubted: Vec<GroupResource> = self.redefined.keys().cloned().collect();
        doubted.iter().for_each(|resource| self.ask(resource));
        self.redefined.retain(|_, times| {
            *times -= 1;
            *times > 0
        });
    }

    /// Watches all of these that the cluster serves; whether all of them were told. Those that it does not serve are asked for again
    /// only where `asks` says so.
    pub fn want(&mut self, resources: &Counted, asks: bool) -> bool {
        let mut complete = true;
        for resource in resources.keys() {
            if self.served(resource).is_none() && (asks || !self.absent.contains_key(resource)) {
                self.ask(resource);
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
    pub fn to_ask(&self, counted: &Counted, families: &Families) -> Vec<Asked> {
        let asked = |(resource, within): (&GroupResource, &Option<Namespaces>)| {
            let ends = guests::guards_deletion(families, resource);
            Some(Asked { served: self.told.get(resource)?.clone(), within: within.clone(), ends })
        };
        counted.iter().filter_map(asked).collect()
    }
}

async fn now(client: &Client, resource: &GroupResource) -> Result<Now, kube::Error> {
    if let Some(served) = served(client, resource).await? {
        return Ok(Now::Served(served));
    }
    // While a definition changes there are moments in which nobody serves it.
    let path = format!("{DEFINITIONS}/{}.{}", resource.resource, resource.group);
    let definition: Option<Named> = found(call(client, Method::GET, &path, None).await)?;
    Ok(Now::Not { is_gone: definition.is_none() })
}
