//! `bursar serve`: flags over the configuration file, then the server until a signal.

use std::io::IsTerminal;
use std::path::PathBuf;

use server::config::Config;
use tracing_subscriber::EnvFilter;

#[derive(clap::Args)]
pub struct Args {
    /// Where objects, the ledger and the server's keys are kept [default: ~/.local/share/bursar]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Address of the API; port 0 takes any free port [default: 127.0.0.1:6443]
    #[arg(long, value_name = "HOST:PORT")]
    listen: Option<String>,
    /// Where the admin kubeconfig is written [default: admin.kubeconfig in the data folder]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// What holds the state: embedded, memory, or etcd://HOST:PORT[,HOST:PORT…][/CLUSTER], etcds:// for TLS
    /// [default: embedded]
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
    /// Admission steps to leave out
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    disable_admission: Vec<String>,
    /// What is encrypted in the store, as kube-apiserver's EncryptionConfiguration (docs/encryption.md)
    #[arg(long, value_name = "FILE")]
    encryption_provider_config: Option<PathBuf>,
    /// Start although acknowledged writes are missing at the end of the log, once, and go on with what is left
    #[arg(long)]
    accept_data_loss: bool,
    /// Built-in controllers to run: * for all, NAME, or -NAME to leave one out [default: *]
    #[arg(long, value_name = "LIST", value_delimiter = ',', allow_hyphen_values = true)]
    controllers: Vec<String>,
    /// Everything else, in YAML; flags win over it (docs/configuration.md)
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// How much is logged: error, warn, info, debug, trace, or per module [default: info]
    #[arg(long, value_name = "LEVEL")]
    log: Option<String>,
}

impl Args {
    fn into_config(self) -> anyhow::Result<Config> {
        let mut config = match &self.config {
            Some(path) => Config::load(path)?,
            None => Config::default(),
        };
        config.data = self.data.unwrap_or(config.data);
        config.listen = self.listen.unwrap_or(config.listen);
        config.kubeconfig = self.kubeconfig.or(config.kubeconfig);
        // Not parsed by clap, which would show a password that stands in it.
        if let Some(store) = &self.store {
            config.store = store.parse()?;
        }
        config.etcd.ca_file = self.etcd_cafile.or(config.etcd.ca_file);
        config.etcd.cert_file = self.etcd_certfile.or(config.etcd.cert_file);
        config.etcd.key_file = self.etcd_keyfile.or(config.etcd.key_file);
        config.encryption_configuration = self.encryption_provider_config.or(config.encryption_configuration);
        config.log = self.log.unwrap_or(config.log);
        if !self.disable_admission.is_empty() {
            config.disable_admission = self.disable_admission;
        }
        config.accept_data_loss = self.accept_data_loss;
        if !self.controllers.is_empty() {
            config.controllers = self.controllers;
        }
        config.check()?;
        Ok(config)
    }
}

/// The client inside the server logs whole answers, other people's objects and Secrets among them, when it cannot read one.
/// What it has to say reaches us as an error as well.
const QUIET: [&str; 2] = ["kube_client=off", "kube_client::client=off"];
/// The TLS library warns of every client that connects to an address instead of a name, as most of ours do.
const QUIET_UNLESS_NAMED: &str = "rustls::msgs::handshake=error";

fn filter(log: &str) -> anyhow::Result<EnvFilter> {
    let mut asked = EnvFilter::try_new(log).map_err(|error| anyhow::anyhow!("{log:?} is not a log level: {error}"))?;
    if !log.contains("rustls") {
        asked = asked.add_directive(QUIET_UNLESS_NAMED.parse()?);
    }
    QUIET.into_iter().try_fold(asked, |filter, quiet| Ok(filter.add_directive(quiet.parse()?)))
}

/// Logs go to standard error: standard output is for what a person, or a script, is to read.
pub fn start_log(level: &str) -> anyhow::Result<()> {
    let filter = filter(level)?;
    let colours = std::io::stderr().is_terminal();
    tracing_subscriber::fmt().with_env_filter(filter).with_ansi(colours).with_writer(std::io::stderr).init();
    Ok(())
}

pub fn run(args: Args) -> anyhow::Result<()> {
    let config = args.into_config()?;
    start_log(&config.log)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| anyhow::anyhow!("cannot start threads: {error}"))?;
    runtime.block_on(server::serve::run(config))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl Write for Written {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn no_level_logs_what_clients_were_answered() {
        for log in ["info", "debug", "trace", "kube_client=trace", "warn,kube_client::client=warn"] {
            let written = Written::default();
            let to = written.clone();
            let subscriber = tracing_subscriber::fmt().with_env_filter(filter(log).unwrap());
            tracing::subscriber::with_default(subscriber.with_writer(move || to.clone()).finish(), || {
                tracing::warn!(target: "kube_client::client", "a whole list");
                tracing::warn!(target: "server", "a line of our own");
            });
            let text = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
            assert!(!text.contains("a whole list"), "{log}: {text}");
            assert!(text.contains("a line of our own") || log.starts_with("kube"), "{log}: {text}");
        }
    }
}
