//! `bursar serve`, put together: store → engine → sequencer → API → controllers → the front; and down again in the other
//! order, so that whatever was acknowledged is on disk when the process ends.

pub(crate) mod audit;
mod encrypt;
mod first;
mod journals;
mod outbox;
mod status;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sequencer::{Limits, Running};
use store::embedded::Options;
use store::etcd::{self, EtcdStore};
use store::{EmbeddedStore, MemoryStore, Space, Store, StoreError, Term};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::admission;
use crate::api::{Api, CacheAccounts, Parts, system_clock};
use crate::authn::Authenticator;
use crate::authz::{self, Rbac};
use crate::certs;
use crate::config::{Config, ConfigError, StoreChoice};
use crate::core::{Answer, Command, Encryption, EncryptionError, Engine, LoadError, Publication};
use crate::front::{self, Built, Prepared, StartError};
use crate::identity::Identity;
use crate::metrics::{MeasuredStore, Metrics};
use crate::orgs;
use crate::registry::{self, Registry};

#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Encryption(#[from] EncryptionError),
    #[error(transparent)]
    Start(#[from] StartError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
    #[error("cannot create what a new server starts with: {0}")]
    First(kube::Error),
    #[error("stopped because a write could not be made durable: {0}")]
    Sequencer(#[from] sequencer::Failure),
    #[error("the last writes could not be made durable in time: whoever sent them was not told that they were done")]
    Stuck,
    #[error("this replica no longer leads")]
    Replaced,
}

impl ServeError {
    /// Whether only this replica's time as the leader has ended. All it knew is forgotten with it; it may stand by again.
    fn ends_a_term(&self) -> bool {
        match self {
            ServeError::Replaced | ServeError::First(_) => true,
            ServeError::Store(error)
            | ServeError::Load(LoadError::Store(error))
            | ServeError::Sequencer(sequencer::Failure::Store(error)) => {
                matches!(error, StoreError::Fenced { .. } | StoreError::Io { .. })
            }
            _ => false,
        }
    }
}

/// Before a replica that had to step down stands by again: whatever made it fail does not make it spin.
const STAND_BY_AFTER: Duration = Duration::from_millis(500);

/// How long a stop waits for the last group in a full etcd: it must not keep a process that was told to end.
const LAST_GROUP: Duration = Duration::from_secs(20);

/// Serves until SIGTERM or SIGINT, or until a write cannot be made durable (an error: the process must not go on). Over a
/// shared store, a replica that was replaced forgets everything and stands by again.
pub async fn run(config: Config) -> Result<(), ServeError> {
    let closing = CancellationToken::new();
    front::until_signal(closing.clone())?;
    let shared = matches!(config.store, StoreChoice::Etcd(_));
    let mut first = true;
    loop {
        let begun = std::time::Instant::now();
        // The store before anything else: who stands by for a leader, or finds the folder taken, shows no sign of life to
        // clients and writes nothing they might read.
        let store = tokio::select! {
            store = open(&config, first) => store?,
            () = closing.cancelled() => return Ok(()),
        };
        match serve_term(store, &config, closing.child_token(), begun).await {
            Err(error) if shared && error.ends_a_term() && !closing.is_cancelled() => {
                tracing::warn!(%error, "standing by again");
                tokio::time::sleep(STAND_BY_AFTER).await;
            }
            ended => return ended,
        }
        first = false;
    }
}

/// Serves for as long as the store is ours. `closing` ends with it: no connection, watch or loop outlives the term.
async fn serve_term(
    store: Box<dyn Store>,
    config: &Config,
    closing: CancellationToken,
    begun: std::time::Instant,
) -> Result<(), ServeError> {
    let _ended = closing.clone().drop_guard();
    let prepared = front::prepare(config.clone()).await?;
    let server = Server::start(store, &prepared, closing.clone()).await?;
    prepared.announce(server.warning.as_deref())?;
    // A standby's time includes its wait for the leader.
    tracing::info!(milliseconds = begun.elapsed().as_millis(), "ready");
    server.serve(prepared, closing).await
}

/// Opens the store on a thread of its own: waiting for leadership can take days, and must not keep a stopping process.
async fn open(config: &Config, first: bool) -> Result<Box<dyn Store>, ServeError> {
    let (choice, folder) = (config.store.clone(), config.data.join("store"));
    let tls = config.etcd.read()?;
    let options = Options { accept_loss: config.accept_data_loss, ..Options::default() };
    let (tell, told) = oneshot::channel();
    let work = move || {
        let opened = open_blocking(choice, tls, &folder, options, first);
        // Nobody listens any more: the process is ending.
        let _ = tell.send(opened);
    };
    std::thread::Builder::new().name("open-store".into()).spawn(work).map_err(ServeError::Thread)?;
    let stopped = || ServeError::Thread(std::io::Error::other("the store could not be opened because of a bug"));
    Ok(told.await.map_err(|_| stopped())??)
}

fn open_blocking(
    choice: StoreChoice,
    tls: etcd::client::Tls,
    folder: &Path,
    options: Options,
    first: bool,
) -> Result<Box<dyn Store>, StoreError> {
    Ok(match choice {
        StoreChoice::Embedded => Box::new(EmbeddedStore::open_folder_with(folder, options)?),
        StoreChoice::Memory => Box::new(MemoryStore::new()),
        StoreChoice::Etcd(address) => {
            let replica = format!("{}-{}", certs::host_name().unwrap_or_default(), std::process::id());
            tracing::info!(address = etcd::redacted(&address), replica, "waiting to lead");
            let mut config = etcd::Config::from_url(&address, &replica)?;
            // Who has led before knows that the address is right, and waits for as long as it takes.
            config.known = !first;
            config.tls = config.tls.map(|_| tls);
            let store = EtcdStore::lead(config)?;
            tracing::info!(replica, "leading");
            Box::new(store)
        }
    })
}

/// What is encrypted in the store; nothing, unless it is configured.
pub fn encryption(config: &Config) -> Result<Encryption, EncryptionError> {
    config.encryption_configuration.as_deref().map_or_else(|| Ok(Encryption::default()), Encryption::load)
}

/// What the configuration says about the families.
pub fn settings(config: &Config) -> Result<families::Settings, ConfigError> {
    let off = |name: &str| config.disable_admission.iter().any(|one| one == name);
    let mut settings = families::Settings {
        capsule: config.capsule.clone(),
        karmada: config.karmada.clone(),
        orgs: families::orgs::Settings { ipv4_addresses: config.orgs.ipv4_addresses },
        ..families::Settings::default()
    };
    let chosen = config.chosen_controllers()?;
    settings.choose_controllers(|name| chosen.runs(name));
    settings.kubernetes.observe_only = off("ResourceQuota");
    settings.kubernetes.ignore_limit_ranges = off("LimitRanger");
    settings.kubernetes.subnamespace_labels = config.subnamespace_labels.clone();
    if let Some(file) = &config.admission_configuration {
        settings.kubernetes.limited = admission::file::limited_resources(file)?;
    }
    Ok(settings)
}

/// Everything behind the front, running.
pub struct Server {
    pub api: Api,
    rbac: Arc<Rbac>,
    authenticator: Arc<Authenticator>,
    metrics: Arc<Metrics>,
    /// How long this replica may answer without asking whether it still leads.
    term: Term,
    /// Whether there is room to write.
    space: Space,
    /// What the door tells the audit trail.
    denials: Arc<orgs::Denials>,
    sequencer: Running<Command, Answer>,
    /// What whoever starts the server must be told.
    warning: Option<String>,
    /// Controllers and the small loops beside them; stopped before the sequencer, which they write to.
    loops: JoinSet<()>,
}

impl Server {
    pub async fn start(
        mut store: Box<dyn Store>,
        prepared: &Prepared,
        closing: CancellationToken,
    ) -> Result<Server, ServeError> {
        let families = families::all(&settings(&prepared.config)?);
        let (engine, cache) = {
            let encryption = Arc::new(encryption(&prepared.config)?);
            Engine::load_encrypted(store.as_mut(), families.clone(), encryption)?
        };
        let outdated = engine.outdated();
        let journals = store.journals();
        journals::retain(&journals);
        let warning = store.dropped().map(|dropped| dropped.to_string());
        if let Some(warning) = &warning {
            tracing::warn!("{warning}");
        }
        let cache = Arc::new(cache);
        let (registry, rbac) = (Arc::new(Registry::new()), Arc::new(Rbac::new()));
        registry::follow(&registry, &cache);
        authz::follow(&rbac, &cache);
        let metrics = Arc::new(Metrics::new(Arc::clone(&registry), &families));
        let store = Box::new(MeasuredStore::new(store, Arc::clone(&metrics)));
        let (term, space) = (store.term(), store.space());
        let maintenance = store.maintenance();
        let (published, counted) = (Arc::clone(&cache), Arc::clone(&metrics));
        let publish = move |publication: Publication| {
            counted.decided(&publication.decided);
            published.publish(publication);
        };
        let (writes, sequencer) =
            sequencer::start(engine, store, publish, Limits::default()).map_err(ServeError::Thread)?;
        let authenticator = prepared.authenticator(Arc::new(CacheAccounts(Arc::clone(&cache))))?;
        let own = families.clone();
        let definitions = families.iter().flat_map(|family| (family.manifest().definitions)()).collect();
        let api = Api::new(Parts {
            cache: Arc::clone(&cache),
            writes: writes.clone(),
            registry,
            families,
            rbac: Arc::clone(&rbac),
            authenticator: Some(Arc::clone(&authenticator)),
            metrics: Arc::clone(&metrics),
            journals: journals.clone(),
            maintenance: maintenance.clone(),
            clock: system_clock,
            closing,
        });
        let ensured = first::ensure(&api.client_as(Identity::internal("start")), &cache, definitions).await;
        first::unless_full(ensured).map_err(ServeError::First)?;
        let root_ca_pem = prepared.pki.authority.certificate.clone();
        let client = api.client_as(Identity::internal("controllers"));
        let event_ttl = Duration::from_secs(prepared.config.event_ttl_seconds.max(1));
        let chosen = prepared.config.chosen_controllers()?;
        let mut loops = controllers::start(client.clone(), controllers::Settings { root_ca_pem, event_ttl, chosen });
        let outbox = outbox::of(journals.clone());
        for controller in own.iter().flat_map(|family| family.controllers(client.clone(), outbox.clone())) {
            loops.spawn(controller);
        }
        loops.spawn(orgs::tiers::run(client.clone(), prepared.config.orgs.tiers.clone()));
        let kept = prepared.config.orgs.event_bytes.unwrap_or(journals::event_bytes(&prepared.config.store));
        loops.spawn(orgs::inventory::run(api.clone(), kept));
        let denials = Arc::<orgs::Denials>::default();
        loops.spawn(Arc::clone(&denials).run(Arc::clone(api.shared_parts())));
        loops.spawn(status::publish(writes.clone(), Arc::clone(&cache)));
        if outdated > 0 {
            loops.spawn(encrypt::run(writes.clone(), outdated, maintenance));
        }
        loops.spawn(journals::run(journals, system_clock));
        loops.spawn(audit::run(writes, Arc::clone(&metrics)));
        loops.spawn(authz::show_aggregates(client, cache));
        Ok(Server { api, rbac, authenticator, metrics, term, space, denials, sequencer, warning, loops })
    }

    /// Answers the network until `closing`, then stops everything, last of all the store.
    pub async fn serve(self, prepared: Prepared, closing: CancellationToken) -> Result<(), ServeError> {
        let built = Built {
            service: self.api.clone(),
            rbac: self.rbac.clone(),
            authenticator: self.authenticator.clone(),
            metrics: self.metrics.clone(),
            term: self.term.clone(),
            space: self.space.clone(),
            denials: Arc::clone(&self.denials),
        };
        let served = {
            let serving = prepared.serve(built, closing.clone());
            tokio::pin!(serving);
            tokio::select! {
                served = &mut serving => served,
                // Nothing can be written any more, so nothing may be answered any more either.
                () = self.sequencer.ended() => {
                    closing.cancel();
                    serving.await
                }
                // Another replica leads, or soon will. Whoever is still connected is told to go.
                () = self.term.lost() => {
                    closing.cancel();
                    let _ended = serving.await;
                    // What it says of the store is known already.
                    let _replaced = self.stop().await;
                    return Err(ServeError::Replaced);
                }
            }
        };
        self.stop().await?;
        Ok(served?)
    }

    /// Stops the controllers, finishes the group under way, closes the store.
    pub async fn stop(self) -> Result<(), ServeError> {
        let Server { sequencer, mut loops, space, .. } = self;
        loops.shutdown().await;
        let stuck = async {
            loop {
                tokio::time::sleep(LAST_GROUP).await;
                if space.is_full() {
                    return;
                }
            }
        };
        tokio::select! {
            ended = sequencer.shutdown() => Ok(ended?),
            () = stuck => Err(ServeError::Stuck),
        }
    }
}
