//! The operator at work: a client of the cluster, a store of its own, the core between them.

use std::collections::HashSet;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use families::Families;
use kube::Client;
use rules::GroupResource;
use sequencer::{Handle, Limits};
use store::{EmbeddedStore, EtcdStore, Store, StoreError, etcd};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::certificates::{CertificateError, Certificates, Source};
use crate::core::{Answer, Command, Core, Counted, Publication};
use crate::guests;
use crate::journal::{Journal, JournalError};
use crate::loops::{self, Clock};
use crate::metrics;
use crate::push::{self, Directory};
use crate::registrar::Registrar;
use crate::registration::{self, Address};
use crate::sight::Seen;
use crate::watch::News;
use crate::watches::Watches;
use crate::webhook::{self, Front, Reviewer};

/// How often it is asked for resources that policies name and the cluster does not serve, and whether the registration is as it was.
const LOOK: Duration = Duration::from_secs(2);
/// Parcels of news that wait for the decider.
const NEWS: usize = 64;

/// What an operator is told.
#[derive(Clone, Debug)]
pub struct Config {
    pub store: StoreAt,
    pub listen: String,
    /// Where `/metrics` is served, without TLS, if anywhere.
    pub metrics: Option<String>,
    /// Where the API server finds the webhook; the address it listens on where nothing is said.
    pub address: Option<Address>,
    pub certificates: Source,
    /// Whether it decides where Capsule's own webhooks do, too: while quotas move from one to the other.
    pub beside_capsule: bool,
    /// Namespaces whose objects are not asked about.
    pub left_out: Vec<String>,
    /// The families that are switched on.
    pub families: Vec<String>,
    pub settings: families::Settings,
}

/// Where holds and ledger are kept.
#[derive(Clone, Debug)]
pub enum StoreAt {
    /// In a folder that one process uses at a time.
    Folder(PathBuf),
    /// Shared by several replicas, of which one leads.
    Etcd(Box<etcd::Config>),
}

impl fmt::Display for StoreAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreAt::Folder(folder) => write!(f, "{}", folder.display()),
            StoreAt::Etcd(config) => write!(f, "etcd, {}", config.cluster),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum OperatorError {
    #[error("the cluster cannot be reached: {0}")]
    Cluster(#[from] kube::Error),
    #[error("{at}: {source}")]
    Store { at: StoreAt, source: StoreError },
    #[error("{at}: {source}")]
    Journal { at: StoreAt, source: JournalError },
    #[error("cannot listen on {listen}: {source}")]
    Listen { listen: String, source: std::io::Error },
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    #[error("no family is switched on: choose among {known}")]
    NoFamily { known: String },
    #[error("the cluster does not serve {resource}, which policies need")]
    NotServed { resource: GroupResource },
    #[error("{resource} cannot be listed, without which policies are not understood: {why}")]
    NotListed { resource: GroupResource, why: String },
    #[error(
        "another operator with a store of its own ({other}) is registered in this cluster, and two that decide apart would both give \
         the same room: give this one the other's store, or end the other and run \
         \"kubectl delete validatingwebhookconfiguration {configuration}\"",
        configuration = registration::CONFIGURATION
    )]
    Another { other: String },
    #[error(
        "Capsule decides about quotas and pools here (webhook {webhook} of {configuration}), and both would write their status: switch off \
         its hooks for custom quotas and pools, or start with --beside-capsule, which leaves pools to Capsule, while quotas move from one \
         to the other"
    )]
    BesideCapsule { configuration: String, webhook: String },
    #[error("cannot start threads: {0}")]
    Threads(std::io::Error),
    #[error("stopped: {0}")]
    Sequencer(#[from] sequencer::Failure),
}

pub fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// Runs until `stop` is ready, or something fails for good. `told` is called once reviews are answered.
pub async fn run(
    config: Config,
    client: Client,
    stop: impl Future<Output = ()>,
    told: impl FnOnce(&str),
) -> Result<(), OperatorError> {
    let chosen = |name: &str| config.families.iter().any(|chosen| chosen == name);
    let families = match config.beside_capsule {
        true => guests::guests_beside_capsule(&config.settings, chosen),
        false => guests::guests(&config.settings, chosen),
    };
    if families.iter().next().is_none() {
        let known: Vec<&str> = guests::GUESTS.iter().map(|(name, _)| *name).collect();
        return Err(OperatorError::NoFamily { known: known.join(", ") });
    }
    let listening = |source| OperatorError::Listen { listen: config.listen.clone(), source };
    let listener = TcpListener::bind(&config.listen).await.map_err(listening)?;
    let local = listener.local_addr().map_err(listening)?.to_string();
    let address = config.address.clone().unwrap_or_else(|| Address::Url(format!("https://{local}")));
    let certificates = Certificates::new(config.certificates, address.names(), SystemTime::now())?;
    let tls = certificates.tls()?;
    let front = Arc::new(Front::default());
    let mut serving = JoinSet::new();
    if let Some(listen) = &config.metrics {
        let listening = |source| OperatorError::Listen { listen: listen.clone(), source };
        let listener = TcpListener::bind(listen).await.map_err(listening)?;
        tracing::info!(at = %listener.local_addr().map_err(listening)?, "metrics are served");
        serving.spawn(metrics::serve(listener, front.clone()));
    }
    let answering = webhook::serve(listener, TlsAcceptor::from(tls), front.clone());
    serving.spawn(async { answering.await.unwrap_or_default() });
    tokio::pin!(stop);
    let ended = tokio::select! {
        () = &mut stop => Ok(()),
        store = open(&config.store) => match store {
            Err(error) => Err(error),
            Ok(store) => {
                let registrar = Registrar::new(client.clone(), address, certificates, config.left_out);
                let beside_capsule = config.beside_capsule;
                let lead = Lead { store, at: config.store, client, families, front: front.clone(), registrar, local, beside_capsule };
                lead.run(&mut stop, told).await
            }
        }
    };
    serving.shutdown().await;
    ended
}

/// Opens the store on a thread of its own: waiting for leadership can take days, and must not keep a stopping process.
async fn open(at: &StoreAt) -> Result<Box<dyn Store>, OperatorError> {
    let (tell, told) = oneshot::channel();
    let asked = at.clone();
    let work = move || {
        let opened: Result<Box<dyn Store>, StoreError> = match asked {
            StoreAt::Folder(folder) => {
                EmbeddedStore::open_folder(folder).map(|store| Box::new(store) as Box<dyn Store>)
            }
            StoreAt::Etcd(config) => EtcdStore::lead(*config).map(|store| Box::new(store) as Box<dyn Store>),
        };
        // Nobody listens any more: the process is ending.
        let _ = tell.send(opened);
    };
    std::thread::Builder::new().name("open-store".into()).spawn(work).map_err(OperatorError::Threads)?;
    let gone = |_| OperatorError::Threads(std::io::Error::other("the store could not be opened because of a bug"));
    told.await.map_err(gone)?.map_err(|source| OperatorError::Store { at: at.clone(), source })
}

/// A replica that leads.
struct Lead {
    store: Box<dyn Store>,
    at: StoreAt,
    client: Client,
    families: Families,
    front: Arc<Front>,
    registrar: Registrar,
    local: String,
    beside_capsule: bool,
}

impl Lead {
    async fn run(
        self,
        stop: &mut (impl Future<Output = ()> + Unpin),
        told: impl FnOnce(&str),
    ) -> Result<(), OperatorError> {
        let Lead { mut store, at, client, families, front, mut registrar, local, beside_capsule } = self;
        let journal = Journal::load(&mut *store, &uuid::Uuid::new_v4().to_string());
        let journal = journal.map_err(|source| OperatorError::Journal { at, source })?;
        let identity = journal.identity.name.clone();
        registrar.check_alone(&identity).await?;
        if !beside_capsule {
            registrar.check_without_capsule(&families).await?;
        }
        registrar.certificates.begin(SystemTime::now());
        registration::install(&client, &guests::definitions(&families)).await?;

        let (sender, mut news) = mpsc::channel(NEWS);
        let directory = Directory::default();
        let (mut watches, mut answered) = Watches::new(client.clone(), directory.clone(), sender);
        let (listed, later) = watches.understand(&families, &mut news).await?;
        let core = Core::start(journal, listed, families.clone(), now_ms());

        let (saw, seen) = watch::channel(0_u64);
        let (counting, mut counted) = watch::channel(Counted::new());
        let (pushes, to_push) = mpsc::unbounded_channel();
        let clock = Arc::new(Clock { stale: AtomicBool::new(true), due_ms: AtomicI64::new(i64::MAX) });
        let ticking = clock.clone();
        let publish = move |published: Publication| {
            for push in published.pushes {
                // Nobody listens any more while it is stopping.
                let _ = pushes.send(push);
            }
            if published.saw {
                saw.send_modify(|count| *count += 1);
            }
            if published.stale_status {
                ticking.stale.store(true, Ordering::Release);
            }
            ticking.due_ms.store(published.due_ms.unwrap_or(i64::MAX), Ordering::Release);
            if let Some(resources) = published.counted {
                counting.send_if_modified(|before| {
                    *before != resources && {
                        *before = resources;
                        true
                    }
                });
            }
        };
        let term = store.term();
        let started = sequencer::start(core, store, publish, Limits::default());
        let (handle, running) = started.map_err(OperatorError::Threads)?;
        front.leads(Reviewer { core: handle.clone(), saw: seen, families: families.clone(), term });
        let mut tasks = JoinSet::new();
        tasks.spawn(push::run(client.clone(), directory.clone(), to_push, front.metrics.clone()));
        tasks.spawn(loops::keep_statuses(handle.clone(), clock));
        tasks.spawn(loops::settle(client, directory, handle.clone()));

        for one in later {
            tell(&handle, one).await;
        }
        // The first group tells what policies count.
        tell(&handle, News::See(Vec::new())).await;
        let own = guests::own(&families);
        let mut told = Some(told);
        let mut looks = tokio::time::interval(LOOK);
        let mut looked = false;
        let mut failed = None;
        let ended = running.ending();
        tokio::pin!(ended);
        loop {
            let mut wanted = counted.borrow_and_update().clone();
            // Quotas are asked about wherever they are.
            wanted.extend(own.iter().map(|one| (one.clone(), None)));
            let complete = watches.want(&wanted, looked);
            if complete || front.is_ready() {
                // Every command asks the store, whether or not it has something to keep.
                let leads = async || handle.submit(Command::See { seen: Vec::new(), now_ms: now_ms() }).await.is_ok();
                let written = match registrar.write(&identity, leads, watches.to_ask(&wanted, &families), looked).await
                {
                    Ok(written) => written,
                    Err(error) => {
                        failed = Some(error);
                        break;
                    }
                };
                if complete && written && !front.set_ready(true) {
                    tracing::info!("everything was seen; reviews are answered");
                    if let Some(told) = told.take() {
                        told(&local);
                    }
                }
            }
            looked = false;
            tokio::select! {
                () = &mut *stop => break,
                () = &mut ended => break,
                _ = looks.tick() => {
                    looked = true;
                    watches.look_again();
                    registrar.certificates.look(SystemTime::now());
                }
                _ = counted.changed() => {}
                Some(told) = answered.recv() => {
                    // What is gone has no objects.
                    if let Some(resource) = watches.hear(told) {
                        tell(&handle, News::Listed { resource, names: HashSet::new() }).await;
                    }
                }
                one = news.recv() => {
                    let Some(one) = one else { break };
                    let (listed, redefined) = match &one {
                        News::Listed { resource, .. } => (Some(resource.clone()), Vec::new()),
                        // It may be gone.
                        News::Blind { resource, .. } => (Some(resource.clone()), vec![resource.clone()]),
                        News::See(seen) => (None, seen.iter().filter_map(Seen::defined).collect()),
                    };
                    tell(&handle, one).await;
                    listed.into_iter().for_each(|resource| watches.note_listed(resource));
                    redefined.into_iter().for_each(|resource| watches.doubt(resource));
                }
            }
        }
        front.set_ready(false);
        tasks.shutdown().await;
        drop(handle);
        running.shutdown().await?;
        failed.map_or(Ok(()), Err)
    }
}

async fn tell(core: &Handle<Command, Answer>, news: News) {
    let command = match news {
        News::See(seen) => Command::See { seen, now_ms: now_ms() },
        News::Blind { resource, why, .. } => Command::Blind { resource, why },
        News::Listed { resource, names } => Command::Listed { resource, names, now_ms: now_ms() },
    };
    // Who has stopped is noticed elsewhere.
    let _ = core.submit(command).await;
}
