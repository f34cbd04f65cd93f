//! What the API benchmarks can be told.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;

pub struct Options {
    pub rounds: usize,
    pub run: Duration,
    pub peers: bool,
    pub bursar: PathBuf,
    pub objects: u64,
    pub listed: u64,
    pub watchers: usize,
    pub namespaces: u64,
    pub quotas: u64,
    pub waiting: u64,
    pub pods: u64,
    pub claims: u64,
    pub waiting_claims: u64,
    pub bindings: u64,
    pub scheduled: u64,
    pub denied: u64,
    pub raised: u64,
    pub orgs: u64,
    pub instances: u64,
    pub connections: usize,
    pub stored: u64,
}

const USAGE: &str = "usage: bursar bench serve|quota|capsule|karmada|datum|orgs|operator|stall [OPTIONS]
  --rounds N         how often every system has its turn (3)
  --millis N         how long one run takes (2000)
  --without-peers    only ours: no kube-apiserver, no etcd
  --bursar FILE      the program that is measured (this one)
 serve:
  --objects N        objects stored for the memory and the restart (100000)
  --listed N         pods in the list (10000)
  --watchers N       watchers of one namespace (1000)
 quota:
  --namespaces N     namespaces with a quota each (10000)
 capsule:
  --objects N        objects under the quota that is read (100000)
  --quotas N         custom quotas that do not match (1000)
  --waiting N        claims that wait in one pool (10000)
 karmada:
  --bindings N       bindings in the large namespace (10000)
  --scheduled N      bindings that are scheduled (2000)
 datum:
  --denied N         claims that wait for one grant (100000)
  --raised N         how many of them it is raised for (1000)
 orgs:
  --orgs N           organizations (1000)
  --instances N      instances of each, at most 100 (100)
  --connections N    of the service on PostgreSQL to its database, at most 90 (32)
 operator:
  --stored N         pods in the cluster when it starts (100000)
 stall:
  --pods N           pods stored before anything is measured (300000)
  --claims N         claims of one project (40000)
  --waiting-claims N claims that wait besides, from half of it on (2000)";

/// More would measure the ports and descriptors of the machine.
const WATCHERS_MAX: u64 = 8_000;

pub fn parse(arguments: &[String]) -> anyhow::Result<Options> {
    let mut options = Options {
        rounds: 3,
        run: Duration::from_millis(2000),
        peers: true,
        bursar: std::env::current_exe()?,
        objects: 100_000,
        listed: 10_000,
        watchers: 1_000,
        namespaces: 10_000,
        quotas: 1_000,
        waiting: 10_000,
        pods: 300_000,
        claims: 40_000,
        waiting_claims: 2_000,
        bindings: 10_000,
        scheduled: 2_000,
        denied: 100_000,
        raised: 1_000,
        orgs: 1_000,
        instances: 100,
        connections: 32,
        stored: 100_000,
    };
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        let mut word = || arguments.next().context(USAGE);
        let number = |word: &String| word.parse::<u64>().with_context(|| format!("{word:?} is not a number\n{USAGE}"));
        match argument.as_str() {
            "--rounds" => options.rounds = usize::try_from(number(word()?)?)?.max(1),
            "--millis" => options.run = Duration::from_millis(number(word()?)?.max(50)),
            "--without-peers" => options.peers = false,
            "--bursar" => options.bursar = PathBuf::from(word()?),
            "--objects" => options.objects = number(word()?)?,
            "--listed" => options.listed = number(word()?)?.max(1),
            "--watchers" => options.watchers = usize::try_from(number(word()?)?.clamp(1, WATCHERS_MAX))?,
            "--quotas" => options.quotas = number(word()?)?,
            "--waiting" => options.waiting = number(word()?)?,
            "--pods" => options.pods = number(word()?)?,
            "--claims" => options.claims = number(word()?)?,
            "--waiting-claims" => options.waiting_claims = number(word()?)?,
            "--bindings" => options.bindings = number(word()?)?,
            "--scheduled" => options.scheduled = number(word()?)?,
            "--denied" => options.denied = number(word()?)?,
            "--raised" => options.raised = number(word()?)?,
            "--orgs" => options.orgs = number(word()?)?.max(1),
            "--instances" => options.instances = number(word()?)?.min(100),
            "--connections" => options.connections = usize::try_from(number(word()?)?.clamp(1, 90))?,
            "--stored" => options.stored = number(word()?)?.max(1),
            "--namespaces" => options.namespaces = number(word()?)?,
            _ => anyhow::bail!(USAGE),
        }
    }
    Ok(options)
}
