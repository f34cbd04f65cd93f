//! From a configuration to a running server and to its clean end.

use std::convert::Infallible;
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::body::Body;
use http::{Request, Response};
use store::{Space, Term};
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tower::Service;

use super::{Gate, Guard, Watches};
use crate::authn::{Accounts, Authenticator, TokenFile, TokenFileError, TokenSigner, TokenSignerError};
use crate::authz::Rbac;
use crate::certs::{self, CertError, Pki};
use crate::config::Config;
use crate::inflight::InFlight;
use crate::listen;
use crate::metrics::Metrics;
use crate::orgs::Denials;
use crate::tls::{self, ServingCert, TlsError};

/// How often the age of the certificates is looked at. They are renewed weeks before they expire, but clocks jump: a machine
/// that slept for a month must not show an expired certificate for long after it woke.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(60);

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("cannot listen on {listen}: {source}; choose another address with --listen HOST:PORT (port 0 takes any)")]
    Listen { listen: String, source: std::io::Error },
    #[error(transparent)]
    Certificates(#[from] CertError),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error(transparent)]
    Tokens(#[from] TokenFileError),
    #[error(transparent)]
    Signer(#[from] TokenSignerError),
    #[error("cannot wait for signals: {0}")]
    Signals(std::io::Error),
}

/// Bound, certified, not yet serving. Nothing outside the data folder has been written yet.
pub struct Prepared {
    pub config: Config,
    pub pki: Pki,
    pub address: SocketAddr,
    /// Where clients reach us; what the admin kubeconfig says.
    pub url: String,
    names: Vec<String>,
    listener: TcpListener,
}

/// What the front needs of the server behind it.
pub struct Built<S> {
    pub service: S,
    pub rbac: Arc<Rbac>,
    pub authenticator: Arc<Authenticator>,
    pub metrics: Arc<Metrics>,
    pub term: Term,
    pub space: Space,
    pub denials: Arc<Denials>,
}

pub async fn prepare(config: Config) -> Result<Prepared, StartError> {
    tls::install_provider();
    // With keys and state elsewhere nobody else makes it, and the kubeconfig goes there.
    certs::create_private_dir(&config.data)?;
    let failed = |source| StartError::Listen { listen: config.listen.clone(), source };
    let listener = TcpListener::bind(&config.listen).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let host = config.listen.rsplit_once(':').map_or("", |(host, _)| host);
    let mut names = certs::default_names(host);
    names.extend(config.server_names.iter().cloned());
    let pki = Pki::open(&config.pki_folder(), &names, now_seconds())?;
    let url = config.advertise.clone().unwrap_or_else(|| url_of(host, address));
    Ok(Prepared { config, pki, address, url, names, listener })
}

fn url_of(host: &str, address: SocketAddr) -> String {
    let port = address.port();
    match host {
        "" | "0.0.0.0" | "[::]" => format!("https://127.0.0.1:{port}"),
        host => format!("https://{host}:{port}"),
    }
}

impl Prepared {
    pub fn authenticator(&self, accounts: Arc<dyn Accounts>) -> Result<Arc<Authenticator>, StartError> {
        let tokens = match &self.config.token_file {
            Some(path) => TokenFile::load(path)?,
            None => TokenFile::default(),
        };
        let signer = TokenSigner::new(&self.pki.token_key, &self.config.token_issuer)?;
        Ok(Arc::new(Authenticator::new(tokens, signer, accounts)))
    }

    /// Writes the admin kubeconfig and returns where it is.
    pub fn write_kubeconfig(&self) -> Result<PathBuf, StartError> {
        let path = self.config.kubeconfig_file();
        certs::write_private(&path, certs::admin_kubeconfig(&self.pki, &self.url).as_bytes())?;
        Ok(path)
    }

    /// What a person reads after starting the server.
    pub fn greeting(&self) -> String {
        let kubeconfig = self.config.kubeconfig_file();
        let kubeconfig = std::path::absolute(&kubeconfig).unwrap_or(kubeconfig);
        format!(
            "Bursar is ready at {url}, data in {data}\n\n  export KUBECONFIG={kubeconfig}\n  kubectl create namespace \
             team-a\n  kubectl -n team-a create quota small --hard=pods=2,requests.cpu=1\n  kubectl -n team-a describe \
             quota small\n\n",
            url = self.url,
            data = self.config.data.display(),
            kubeconfig = shell_word(&kubeconfig.display().to_string()),
        )
    }

    /// Writes the admin kubeconfig and prints how to use it, and before that what an operator must know of this start.
    pub fn announce(&self, warning: Option<&str>) -> Result<(), StartError> {
        match self.write_kubeconfig() {
            // Whoever can still be served from a full disk is.
            Err(StartError::Certificates(CertError::File { path, source, .. }))
                if source.kind() == std::io::ErrorKind::StorageFull =>
            {
                tracing::error!(path = %path.display(), "the disk is full: the admin kubeconfig is not up to date");
            }
            written => drop(written?),
        }
        let warning = warning.map(|warning| format!("WARNING: {warning}\n\n")).unwrap_or_default();
        let mut out = std::io::stdout().lock();
        // Whoever closed our standard output does not want to read this.
        let _ = out.write_all((warning + &self.greeting()).as_bytes()).and_then(|()| out.flush());
        Ok(())
    }

    /// Serves until `closing` is cancelled and what was under way is finished.
    pub async fn serve<S>(self, built: Built<S>, closing: CancellationToken) -> Result<(), StartError>
    where
        S: Service<Request<Body>, Response = Response<Body>, Error = Infallible> + Clone + Send + 'static,
        S::Future: Send,
    {
        let serving = ServingCert::new(&self.pki.serving)?;
        let tls = tls::server_config(Arc::clone(&serving), &self.pki.authority.certificate)?;
        let watches = Arc::new(Watches::new(built.term.clone(), closing.clone()));
        let (watched, counted) = (Arc::clone(&watches), Arc::clone(&built.metrics));
        let doubts = tokio::spawn(async move { watched.run(|| counted.doubted()).await });
        let authenticator = Arc::clone(&built.authenticator);
        let gate = Arc::new(Gate {
            authenticator: built.authenticator,
            rbac: built.rbac,
            in_flight: Arc::new(InFlight::new(self.config.limits.in_flight())),
            metrics: built.metrics,
            clock: now_seconds,
            term: built.term,
            space: built.space,
            denials: built.denials,
            watches,
            closing: closing.clone(),
        });
        let limits = self.config.limits.listen();
        let reload = tokio::spawn(reload(hangups()?, self.config.token_file.clone(), authenticator));
        let renewal = tokio::spawn(renew(self.config, self.names, self.pki.admin, self.url, serving));
        listen::serve(self.listener, tls, Guard::new(gate, built.service), closing, limits).await;
        renewal.abort();
        doubts.abort();
        reload.abort();
        Ok(())
    }
}

/// Cancels `closing` at SIGTERM or SIGINT. The handlers are in place when this returns.
pub fn until_signal(closing: CancellationToken) -> Result<(), StartError> {
    let mut terminate = signal(SignalKind::terminate()).map_err(StartError::Signals)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(StartError::Signals)?;
    // One that comes before anybody listens has nothing to reload, and must not end us either.
    drop(hangups()?);
    // A file that may not grow as long as it has to is a full disk, which the store can live with.
    let _kept_from_ending_us =
        signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw())).map_err(StartError::Signals)?;
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("stopping: no new connections, finishing what is under way");
        closing.cancel();
    });
    Ok(())
}

fn hangups() -> Result<Signal, StartError> {
    signal(SignalKind::hangup()).map_err(StartError::Signals)
}

/// Reads the token file again at every SIGHUP. One that cannot be read changes nothing: those who had access keep it.
async fn reload(mut hangups: Signal, file: Option<PathBuf>, authenticator: Arc<Authenticator>) {
    while hangups.recv().await.is_some() {
        let Some(path) = file.clone() else {
            tracing::info!("SIGHUP: there is no token file to read again");
            continue;
        };
        match tokio::task::spawn_blocking(move || TokenFile::load(&path)).await {
            Ok(Ok(tokens)) => {
                authenticator.replace_tokens(tokens);
                tracing::info!("SIGHUP: the token file was read again");
            }
            Ok(Err(error)) => tracing::error!(%error, "SIGHUP: the tokens stay as they were"),
            Err(error) => tracing::error!(%error, "SIGHUP: the tokens stay as they were"),
        }
    }
}

/// Renews certificates of a server that runs for months.
async fn renew(config: Config, names: Vec<String>, admin: certs::Pair, url: String, serving: Arc<ServingCert>) {
    let mut admin = admin;
    loop {
        tokio::time::sleep(RENEWAL_INTERVAL).await;
        let (folder, wanted) = (config.pki_folder(), names.clone());
        let opened = tokio::task::spawn_blocking(move || Pki::open(&folder, &wanted, now_seconds())).await;
        let pki = match opened {
            Ok(Ok(pki)) => pki,
            Ok(Err(error)) => {
                tracing::error!(%error, "cannot renew certificates");
                continue;
            }
            Err(error) => {
                tracing::error!(%error, "cannot renew certificates");
                continue;
            }
        };
        if let Err(error) = serving.replace(&pki.serving) {
            tracing::error!(%error, "cannot use the renewed certificate");
        }
        if pki.admin != admin {
            let text = certs::admin_kubeconfig(&pki, &url);
            if let Err(error) = certs::write_private(&config.kubeconfig_file(), text.as_bytes()) {
                tracing::error!(%error, "cannot write the renewed admin kubeconfig");
            }
            admin = pki.admin;
        }
    }
}

/// Seconds since 1970, by the machine's clock.
pub fn now_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn shell_word(text: &str) -> String {
    let plain = |character: char| character.is_ascii_alphanumeric() || "/._-+:@%".contains(character);
    if text.chars().all(plain) { text.to_owned() } else { format!("'{}'", text.replace('\'', r"'\''")) }
}
