//! The configuration of `bursar serve`: a YAML file in which everything is optional, with flags on top.
//! `docs/configuration.md` describes it; a test compares the two.

mod limits;
mod storage;

use std::path::{Path, PathBuf};

use serde::Deserialize;

pub use limits::Limits;
pub use storage::{EtcdFiles, StoreChoice};

use crate::authn::DEFAULT_ISSUER;
use crate::files;

/// No configuration anybody wrote is larger.
pub const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// As long as Kubernetes keeps events.
const EVENT_TTL_SECONDS: u64 = 3600;
/// Ten years; there is no event anybody asks for after that.
const EVENT_TTL_SECONDS_MAX: u64 = 10 * 366 * 24 * 3600;

#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read the configuration {path}: {source}")]
    Read { path: PathBuf, source: std::io::Error },
    #[error("the configuration {path} is not valid: {why}")]
    Parse { path: PathBuf, why: String },
    #[error(
        "{0:?} is not a store: use embedded, memory, or etcd://HOST:PORT[,HOST:PORT…][/CLUSTER], with etcds:// for TLS"
    )]
    Store(String),
    #[error("cannot read {path} for TLS with etcd: {source}")]
    EtcdFile { path: PathBuf, source: std::io::Error },
    #[error("a certificate for etcd needs its key, and a key its certificate: set both certFile and keyFile")]
    EtcdPair,
    #[error("{0:?} is not an address to listen on: use HOST:PORT")]
    Listen(String),
    #[error("{field} is {value}: use a number from {least} to {most}")]
    Number { field: &'static str, value: u64, least: u64, most: u64 },
    #[error("{0:?} is no admission step that can be left out; those are {known}", known = ADMISSION_STEPS.join(", "))]
    Admission(String),
    #[error("{0:?} is not a log level: use {levels}, or one of them by module as warn,server=debug", levels = LOG_LEVELS.join(", "))]
    Log(String),
    #[error(transparent)]
    Controllers(#[from] controllers::UnknownController),
}

/// The admission steps that can be left out.
pub const ADMISSION_STEPS: [&str; 2] = ["ResourceQuota", "LimitRanger"];
const LOG_LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// Everything `bursar serve` can be told.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Config {
    /// Where objects, the ledger and the server's keys are kept.
    pub data: PathBuf,
    /// Address and port; port 0 takes any free one.
    pub listen: String,
    /// The address clients are told to use, when it is not the one listened on: `https://HOST:PORT`.
    pub advertise: Option<String>,
    /// Further names and addresses the serving certificate is good for.
    pub server_names: Vec<String>,
    /// Where the admin kubeconfig is written; `admin.kubeconfig` in the data folder when not set.
    pub kubeconfig: Option<PathBuf>,
    /// The folder of certificates and keys; `pki` in the data folder when not set.
    pub pki: Option<PathBuf>,
    /// Static bearer tokens, one `token,user,uid,"group1,group2"` per line.
    pub token_file: Option<PathBuf>,
    /// The issuer, and own audience, of service account tokens.
    pub token_issuer: String,
    /// What holds the state.
    pub store: StoreChoice,
    /// Certificates for an etcd that wants TLS.
    pub etcd: EtcdFiles,
    /// Admission steps left out, by name.
    pub disable_admission: Vec<String>,
    /// An AdmissionConfiguration as kube-apiserver takes it, for `limitedResources` of ResourceQuota.
    pub admission_configuration: Option<PathBuf>,
    /// An EncryptionConfiguration as kube-apiserver takes it: what is encrypted in the store, and with which keys.
    pub encryption_configuration: Option<PathBuf>,
    /// How long an event is kept after it was last written.
    pub event_ttl_seconds: u64,
    /// Which built-in controllers run, as kube-controller-manager is told: `*`, `name`, `-name`.
    pub controllers: Vec<String>,
    /// Labels and annotations that an anchor may put on its subnamespace, by name.
    pub subnamespace_labels: Vec<String>,
    /// How much is logged: error, warn, info, debug, trace, or per module as `warn,server=debug`.
    pub log: String,
    pub limits: Limits,
    pub capsule: families::capsule::Settings,
    pub karmada: families::karmada::Settings,
    pub orgs: Orgs,
    /// Go on without acknowledged writes that are missing at the end of the log. A flag only: it is for one start.
    #[serde(skip)]
    pub accept_data_loss: bool,
}

/// What can be told about organizations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Orgs {
    /// The file with their tiers; three are built in without one.
    pub tiers: Option<PathBuf>,
    /// The IPv4 addresses that the platform has to give.
    pub ipv4_addresses: Option<u64>,
    /// How much room their events take: the oldest go, when views were written down that need them no more.
    pub event_bytes: Option<u64>,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            data: default_data(),
            listen: "127.0.0.1:6443".into(),
            advertise: None,
            server_names: Vec::new(),
            kubeconfig: None,
            pki: None,
            token_file: None,
            token_issuer: DEFAULT_ISSUER.into(),
            store: StoreChoice::Embedded,
            etcd: EtcdFiles::default(),
            disable_admission: Vec::new(),
            admission_configuration: None,
            encryption_configuration: None,
            event_ttl_seconds: EVENT_TTL_SECONDS,
            controllers: vec!["*".into()],
            subnamespace_labels: Vec::new(),
            log: "info".into(),
            limits: Limits::default(),
            capsule: families::capsule::Settings::default(),
            karmada: families::karmada::Settings::default(),
            orgs: Orgs::default(),
            accept_data_loss: false,
        }
    }
}

impl Config {
    pub fn load(path: &Path) -> Result<Config, ConfigError> {
        Config::parse(&read_file(path)?).map_err(|why| ConfigError::Parse { path: path.into(), why })
    }

    /// An empty file is the default configuration.
    pub fn parse(text: &str) -> Result<Config, String> {
        if text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#')) {
            return Ok(Config::default());
        }
        // Without the line itself: an address in it may hold a password.
        serde_saphyr::from_str(text).map_err(|error| error.without_snippet().to_string())
    }

    pub fn check(&self) -> Result<(), ConfigError> {
        self.chosen_controllers()?;
        let port = self.listen.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
        port.map(|_| ()).ok_or_else(|| ConfigError::Listen(self.listen.clone()))?;
        self.limits.check()?;
        // A member that is asked without a pause, or never given up, helps nobody.
        number("karmada.heartbeatSeconds", self.karmada.heartbeat_seconds, 1, 3600)?;
        number("karmada.graceSeconds", self.karmada.grace_seconds, 1, 86400)?;
        // Times of leases are whole seconds: what is valid for less than two may be over before it has arrived.
        number("karmada.leaseSeconds", self.karmada.lease_seconds, 2, 86400)?;
        number("eventTtlSeconds", self.event_ttl_seconds, 1, EVENT_TTL_SECONDS_MAX)?;
        if let Some(unknown) = self.disable_admission.iter().find(|name| !ADMISSION_STEPS.contains(&name.as_str())) {
            return Err(ConfigError::Admission(unknown.clone()));
        }
        check_log(&self.log)
    }

    /// The controllers that run, those of the families among them.
    pub fn chosen_controllers(&self) -> Result<controllers::Choice, ConfigError> {
        Ok(controllers::Choice::read(&self.controllers, &families::controller_names())?)
    }

    pub fn kubeconfig_file(&self) -> PathBuf {
        self.kubeconfig.clone().unwrap_or_else(|| self.data.join("admin.kubeconfig"))
    }

    pub fn pki_folder(&self) -> PathBuf {
        self.pki.clone().unwrap_or_else(|| self.data.join("pki"))
    }
}

fn number(field: &'static str, value: u64, least: u64, most: u64) -> Result<(), ConfigError> {
    if (least..=most).contains(&value) { Ok(()) } else { Err(ConfigError::Number { field, value, least, most }) }
}

/// A word that is no level would be taken for a module's name, and nothing would be logged.
fn check_log(text: &str) -> Result<(), ConfigError> {
    let good = |part: &str| {
        let level = part.rsplit_once('=').map_or(part, |(_, level)| level).trim();
        LOG_LEVELS.iter().any(|known| known.eq_ignore_ascii_case(level))
    };
    if text.split(',').all(good) { Ok(()) } else { Err(ConfigError::Log(text.to_owned())) }
}

/// A file that somebody wrote for us, of a bounded size.
pub fn read_file(path: &Path) -> Result<String, ConfigError> {
    let failed = |source| ConfigError::Read { path: path.into(), source };
    files::read_text(path, FILE_BYTES_MAX).map_err(failed)
}

/// `$XDG_DATA_HOME/bursar`, else `~/.local/share/bursar`, else a folder right here.
fn default_data() -> PathBuf {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = || set("HOME").map(|home| home.join(".local/share"));
    set("XDG_DATA_HOME").or_else(home).map_or_else(|| PathBuf::from("bursar-data"), |share| share.join("bursar"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example in the manual names every field, with its default.
    #[test]
    fn the_manual_shows_the_defaults() {
        let manual = include_str!("../../../../docs/configuration.md");
        let example = manual.split("```yaml\n").nth(1).and_then(|rest| rest.split("```").next()).expect("an example");
        let shown = Config::parse(example).expect("the example parses");
        let expected = Config {
            data: "/var/lib/bursar".into(),
            advertise: Some("https://bursar.example.com:6443".into()),
            server_names: vec!["bursar.example.com".into()],
            kubeconfig: Some("/var/lib/bursar/admin.kubeconfig".into()),
            pki: Some("/var/lib/bursar/pki".into()),
            token_file: Some("/etc/bursar/tokens.csv".into()),
            etcd: EtcdFiles {
                ca_file: Some("/etc/bursar/etcd/ca.crt".into()),
                cert_file: Some("/etc/bursar/etcd/client.crt".into()),
                key_file: Some("/etc/bursar/etcd/client.key".into()),
            },
            admission_configuration: Some("/etc/bursar/admission.yaml".into()),
            encryption_configuration: Some("/etc/bursar/encryption.yaml".into()),
            orgs: Orgs {
                tiers: Some("/etc/bursar/tiers.yaml".into()),
                ipv4_addresses: Some(256),
                event_bytes: Some(16 << 30),
            },
            ..Config::default()
        };
        assert_eq!(shown, expected);
        for field in [
            "data",
            "listen",
            "advertise",
            "serverNames",
            "kubeconfig",
            "pki",
            "tokenFile",
            "tokenIssuer",
            "store",
            "etcd",
            "caFile",
            "certFile",
            "keyFile",
            "disableAdmission",
            "admissionConfiguration",
            "encryptionConfiguration",
            "eventTtlSeconds",
            "controllers",
            "subnamespaceLabels",
            "log",
            "limits",
            "connections",
            "readsInFlight",
            "writesInFlight",
            "queuePerUser",
            "watchesPerUser",
            "answerMebibytes",
            "bodyMebibytes",
            "drainSeconds",
            "capsule",
            "reading",
            "observeOnly",
            "namespace",
            "karmada",
            "enforcement",
            "denyTemplates",
            "countEvicting",
            "reserve",
            "heartbeatSeconds",
            "graceSeconds",
            "leaseSeconds",
            "gatePods",
            "evict",
            "orgs",
            "tiers",
            "ipv4Addresses",
            "eventBytes",
        ] {
            assert!(example.contains(&format!("{field}:")), "{field} is not in the manual");
        }
    }

    #[test]
    fn controllers_of_families_are_chosen_in_the_same_list() {
        let loops = |list: &[&str]| {
            let controllers = list.iter().map(|&name| name.to_owned()).collect();
            let config = Config { controllers, ..Config::default() };
            let settings = crate::serve::settings(&config).expect("settings");
            [settings.capsule.loops, settings.karmada.loops, settings.datum.loops].concat()
        };
        assert_eq!(loops(&["*"]), families::controller_names());
        assert!(!loops(&["*", "-resourcepool"]).contains(&"resourcepool"));
        assert!(loops(&["*", "-resourcepool"]).contains(&"resourcepoolclaim"));
        assert_eq!(loops(&["resourcepool-controller"]), ["resourcepool"]);
        assert!(loops(&["deployment"]).is_empty());
    }

    #[test]
    fn mistakes_are_named() {
        let store = Config::parse("store: redis://x").expect_err("no such store");
        assert!(store.contains("is not a store"), "{store}");
        let unknown = Config::parse("lisen: x").expect_err("unknown field");
        assert!(unknown.contains("lisen"), "{unknown}");
        assert_eq!(Config::parse("# nothing\n\n"), Ok(Config::default()));
        let reading = Config::parse("capsule: {reading: hearsay}").expect_err("no such reading");
        assert!(reading.contains("releases"), "{reading}");
        let without =
            |controllers: &str| Config { controllers: vec!["*".into(), controllers.into()], ..Config::default() };
        assert!(without("-deployment").check().is_ok());
        let error = without("-deploy").check().expect_err("no such controller").to_string();
        assert!(error.contains("there is no controller \"deploy\""), "{error}");
        assert_eq!(Config::parse("limits: {connections: 5}").map(|config| config.limits.connections), Ok(5));
        for (field, value, good) in [
            ("leaseSeconds", 0, false),
            ("leaseSeconds", 1, false),
            ("leaseSeconds", 2, true),
            ("leaseSeconds", 86_401, false),
            ("heartbeatSeconds", 0, false),
            ("graceSeconds", 0, false),
        ] {
            let config = Config::parse(&format!("karmada: {{{field}: {value}}}")).expect("a configuration");
            let said = config.check().err().map(|error| error.to_string()).unwrap_or_default();
            assert_eq!(said.contains(&format!("karmada.{field}")), !good, "{field} {value}: {said}");
        }
        for (text, good) in [("a:1", true), ("[::1]:0", true), ("a", false), ("a:b", false), ("a:70000", false)] {
            assert_eq!(Config { listen: text.into(), ..Config::default() }.check().is_ok(), good, "{text}");
        }
        for (text, good) in [
            ("embedded", true),
            ("memory", true),
            ("etcd://a:2379,b:2379", true),
            ("etcds://a:2379/team", true),
            ("etcd://a:2379/team/b", false),
            ("etcd://a", false),
            ("etcd://", false),
            ("", false),
        ] {
            assert_eq!(
                text.parse::<StoreChoice>().map(|store| store.to_string()).ok(),
                good.then(|| text.into()),
                "{text}"
            );
        }
        let hidden = "etcd://bursar:secret@a:1".parse::<StoreChoice>().expect("a store");
        assert_eq!(format!("{hidden} {hidden:?}"), "etcd://bursar:…@a:1 etcd://bursar:…@a:1");
        let wrong = Config::parse("store: etcd://bursar:secret@a").expect_err("no port");
        assert!(!wrong.contains("secret"), "{wrong}");
    }

    #[test]
    fn what_would_be_ignored_or_break_later_stops_the_start() {
        for (text, expected) in [
            ("limits: {connections: 18446744073709551615}", "limits.connections is 18446744073709551615"),
            ("limits: {connections: 0}", "limits.connections is 0: use a number from 1 to 1048576"),
            ("limits: {readsInFlight: 18446744073709551615}", "limits.readsInFlight"),
            ("limits: {readsInFlight: 0}", "limits.readsInFlight is 0"),
            ("limits: {writesInFlight: 18446744073709551615}", "limits.writesInFlight"),
            ("limits: {writesInFlight: 0}", "limits.writesInFlight is 0"),
            ("limits: {queuePerUser: 18446744073709551615}", "limits.queuePerUser"),
            ("limits: {watchesPerUser: 18446744073709551615}", "limits.watchesPerUser"),
            ("limits: {watchesPerUser: 0}", "limits.watchesPerUser is 0"),
            ("limits: {answerMebibytes: 18446744073709551615}", "limits.answerMebibytes"),
            ("limits: {answerMebibytes: 31}", "limits.answerMebibytes is 31: use a number from 32"),
            ("limits: {bodyMebibytes: 0}", "limits.bodyMebibytes"),
            ("limits: {drainSeconds: 18446744073709551615}", "limits.drainSeconds"),
            ("eventTtlSeconds: 18446744073709551615", "eventTtlSeconds"),
            ("eventTtlSeconds: 0", "eventTtlSeconds is 0: use a number from 1"),
            (
                "disableAdmission: [LimitRanger, Foo]",
                "\"Foo\" is no admission step that can be left out; those are ResourceQuota, LimitRanger",
            ),
            ("disableAdmission: [resourcequota]", "no admission step"),
            ("log: shout", "\"shout\" is not a log level: use off, error, warn, info, debug, trace"),
            ("log: info,server", "is not a log level"),
            ("log: server=loud", "is not a log level"),
            ("log: ''", "is not a log level"),
            ("log: warn,server=debug,rustls=ERROR", ""),
            ("disableAdmission: [ResourceQuota]", ""),
            ("limits: {queuePerUser: 0, drainSeconds: 0, answerMebibytes: 32, bodyMebibytes: 32}", ""),
        ] {
            let said = match Config::parse(text).expect(text).check() {
                Ok(()) => String::new(),
                Err(error) => error.to_string(),
            };
            assert_eq!(said.is_empty(), expected.is_empty(), "{text}: {said}");
            assert!(said.contains(expected), "{text}: {said}");
        }
    }
}
