//! What an operator may set.

use serde::Deserialize;

use super::interpret::Reserve;
use super::loops;

/// What an operator may set about this family, as the section `karmada` of the configuration has it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Settings {
    /// Whether `overall` is enforced. Without it only static assignments work.
    pub enforcement: bool,
    /// Whether a template whose growth does not fit is refused when it is applied, and not only its binding later.
    pub deny_templates: bool,
    /// Whether what was evicted counts until its task is done, beside what replaced it.
    pub count_evicting: bool,
    /// How many executors of a SparkApplication that grows by itself are reserved: `initial`, `min` or `max`.
    pub reserve: Reserve,
    /// How often a member is asked whether it is well.
    pub heartbeat_seconds: u64,
    /// How long a member may not answer before it is taken for unreachable.
    pub grace_seconds: u64,
    /// For how long a member may use what it was lent without being told anew.
    pub lease_seconds: u64,
    /// Whether workloads that do not tolerate a NoExecute taint are evicted from its cluster.
    pub evict: bool,
    /// Whether pods wait at a scheduling gate where a slice says so, instead of being refused: for servers that are members.
    pub gate_pods: bool,
    /// The loops that run, by name. Which of them do is said with all other controllers.
    #[serde(skip)]
    pub loops: Vec<&'static str>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            enforcement: true,
            deny_templates: false,
            count_evicting: false,
            reserve: Reserve::default(),
            heartbeat_seconds: 10,
            grace_seconds: 40,
            lease_seconds: 60,
            evict: true,
            gate_pods: false,
            loops: loops::NAMES.to_vec(),
        }
    }
}
