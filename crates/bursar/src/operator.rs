//! `bursar operator`: a guest in an existing cluster, until a signal.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use kube::config::{KubeConfigOptions, Kubeconfig};
use operator::certificates::{Files, Source};
use operator::registration::Address;
use operator::run::{Config, StoreAt};

#[derive(clap::Args)]
pub struct Args {
    /// Where holds and the ledger are kept: a folder of its own, on a volume that outlives the process
    #[arg(long, value_name = "DIR", required_unless_present = "store", conflicts_with = "store")]
    data: Option<PathBuf>,
    /// The same in etcd, for several replicas of which one leads: etcd://HOST:PORT[,HOST:PORT…][/NAME], etcds:// for TLS;
    /// NAME is "operator" where none is given
    #[arg(long, value_name = "STORE")]
    store: Option<String>,
    /// Authority of an etcds:// store's certificates, in PEM
    #[arg(long, value_name = "FILE")]
    etcd_cafile: Option<PathBuf>,
    /// Certificate shown to etcd
    #[arg(long, value_name = "FILE")]
    etcd_certfile: Option<PathBuf>,
    /// Its key
    #[arg(long, value_name = "FILE")]
    etcd_keyfile: Option<PathBuf>,
    /// The cluster [default: the one this runs in, or else the current one of the user's kubeconfig]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Address of the webhook; port 0 takes any free port
    #[arg(long, value_name = "HOST:PORT", default_value = "0.0.0.0:9443")]
    listen: String,
    /// Address where Prometheus finds /metrics, without TLS and open to whoever reaches it [default: nowhere]
    #[arg(long, value_name = "HOST:PORT")]
    metrics: Option<String>,
    /// The Service by which the API server finds the webhook
    #[arg(long, value_name = "NAMESPACE/NAME[:PORT]", conflicts_with = "url")]
    service: Option<String>,
    /// The address by which the API server finds the webhook, where it is outside of the cluster [default: where it listens]
    #[arg(long, value_name = "https://HOST:PORT")]
    url: Option<String>,
    /// The webhook's certificate in PEM, where somebody else makes and renews it [default: made here, under an authority of its own]
    #[arg(long, value_name = "FILE", requires = "tls_key", requires = "tls_ca")]
    tls_cert: Option<PathBuf>,
    /// Its key
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Whom the API server has to trust for it
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_ca: Option<PathBuf>,
    /// Decides about CustomQuotas although Capsule's own webhooks do, too, and leaves pools to Capsule: for the time in which quotas move
    /// from one to the other
    #[arg(long)]
    beside_capsule: bool,
    /// Families that are switched on
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "capsule,kubernetes")]
    families: Vec<String>,
    /// Namespaces whose objects are counted and never refused
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "kube-system,kube-node-lease")]
    exempt: Vec<String>,
    /// How much is logged: error, warn, info, debug, trace, or per module
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    log: String,
}

impl Args {
    fn address(&self) -> anyhow::Result<Option<Address>> {
        if let Some(url) = &self.url {
            let has_host = url.strip_prefix("https://").is_some_and(|host| !host.is_empty());
            anyhow::ensure!(has_host, "--url {url:?}: the API server only calls addresses that begin with https://");
            return Ok(Some(Address::Url(url.clone())));
        }
        let Some(service) = &self.service else { return Ok(None) };
        let wrong = || format!("--service {service:?} is not NAMESPACE/NAME or NAMESPACE/NAME:PORT");
        let (namespace, rest) = service.split_once('/').with_context(wrong)?;
        let (name, port) = match rest.split_once(':') {
            Some((name, port)) => (name, port.parse().with_context(wrong)?),
            None => (rest, 443),
        };
        anyhow::ensure!(!namespace.is_empty() && !name.is_empty(), wrong());
        Ok(Some(Address::Service { namespace: namespace.into(), name: name.into(), port }))
    }

    fn store(&self) -> anyhow::Result<StoreAt> {
        let Some(url) = &self.store else { return Ok(StoreAt::Folder(self.data.clone().unwrap_or_default())) };
        let host = std::env::var("HOSTNAME").unwrap_or_default();
        let mut config = store::etcd::Config::from_url(url, &format!("{host}-{}", std::process::id()))?;
        // A control plane in the same etcd has a name of its own.
        if !url.trim_end_matches('/').ends_with(&format!("/{}", config.cluster)) {
            config.cluster = "operator".into();
        }
        let files = server::config::EtcdFiles {
            ca_file: self.etcd_cafile.clone(),
            cert_file: self.etcd_certfile.clone(),
            key_file: self.etcd_keyfile.clone(),
        };
        let tls = files.read()?;
        config.tls = config.tls.map(|_| tls);
        Ok(StoreAt::Etcd(Box::new(config)))
    }

    fn config(&self) -> anyhow::Result<Config> {
        let known: Vec<&str> = operator::guests::GUESTS.iter().map(|(name, _)| *name).collect();
        if let Some(unknown) = self.families.iter().find(|name| !known.contains(&name.as_str())) {
            anyhow::bail!("--families: {unknown:?} is not among {}", known.join(", "));
        }
        let address = self.address()?;
        let mut left_out = self.exempt.clone();
        // Whoever had to be asked about its own pod could not start again.
        if let Some(Address::Service { namespace, .. }) = &address {
            left_out.push(namespace.clone());
        }
        left_out.retain(|namespace| !namespace.is_empty());
        left_out.sort();
        left_out.dedup();
        Ok(Config {
            store: self.store()?,
            listen: self.listen.clone(),
            metrics: self.metrics.clone(),
            address,
            certificates: match (&self.tls_cert, &self.tls_key, &self.tls_ca) {
                (Some(certificate), Some(key), Some(authority)) => Source::Files(Files {
                    certificate: certificate.clone(),
                    key: key.clone(),
                    authority: authority.clone(),
                }),
                _ => Source::Own,
            },
            beside_capsule: self.beside_capsule,
            left_out,
            families: self.families.clone(),
            settings: families::Settings::default(),
        })
    }
}

async fn client(kubeconfig: Option<&PathBuf>) -> anyhow::Result<kube::Client> {
    let mut config = match kubeconfig {
        None => kube::Config::infer().await?,
        Some(path) => {
            let unusable = |error| anyhow::anyhow!("--kubeconfig {}: {error}", path.display());
            let read = Kubeconfig::read_from(path).map_err(unusable)?;
            kube::Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await.map_err(unusable)?
        }
    };
    // A watch that should have ended by itself is one whose connection has died.
    config.connect_timeout = Some(Duration::from_secs(5));
    config.read_timeout = Some(Duration::from_secs(u64::from(operator::watch::LASTS_SECONDS) + 10));
    Ok(kube::Client::try_from(config)?)
}

async fn stopped() {
    let terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate());
    let Ok(mut terminate) = terminate else { return std::future::pending().await };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
}

pub fn run(args: Args) -> anyhow::Result<()> {
    let config = args.config()?;
    crate::serve::start_log(&args.log)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| anyhow::anyhow!("cannot start threads: {error}"))?;
    runtime.block_on(async {
        let client = client(args.kubeconfig.as_ref()).await?;
        operator::run::run(config, client, stopped(), |address| println!("bursar operator is ready on {address}"))
            .await?;
        Ok(())
    })
}
