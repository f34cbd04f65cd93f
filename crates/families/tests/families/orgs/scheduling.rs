//! The scheduler's plans carried out on the engine in memory, with nodes that do as they are told.

use std::collections::BTreeMap;

use families::orgs::Dimension;
use families::orgs::commands::{Op, Problem};
use families::orgs::names::*;
use families::orgs::scheduler::plan::{Action, Memory, plan};
use families::orgs::scheduler::state::{Objects, Seen, groups, rooms};
use serde_json::{Value, json};

use super::platform::Platform;

struct Cluster {
    platform: Platform,
    memory: Memory,
    /// Reports are made at once, unless a test wants to see what is between.
    agents: bool,
    attempts: usize,
}

impl Cluster {
    fn new(nodes: &[(&str, i64)]) -> Cluster {
        let mut platform = Platform::new();
        for (name, memory) in nodes {
            let node = json!({"allocatable_memory_bytes": memory, "cpu_cores": 4});
            platform.run("", Op::RegisterNode, &[("node", name)], node).unwrap();
        }
        Cluster { platform, memory: Memory::default(), agents: true, attempts: 0 }
    }

    /// An organization with an environment that wants so many of a release of 64 MiB, with 64 more for what runs it.
    fn org(&mut self, org: &str, desired: i64) {
        self.platform.with_org(org, "standard");
        self.platform.run(org, Op::CreateApp, &[], json!({"name": "shop"})).unwrap();
        let release = json!({"processes": {"web": {"memory_bytes": 64 << 20, "cpu": 0.5}}});
        self.platform.run(org, Op::CreateRelease, &[("app", "shop")], release).unwrap();
        self.env(org, "prod", desired).unwrap();
    }

    fn env(&mut self, org: &str, env: &str, desired: i64) -> Result<(), Problem> {
        self.platform.run(org, Op::CreateEnv, &[("app", "shop")], json!({"name": env}))?;
        let path = [("app", "shop"), ("env", env)];
        self.platform.run(org, Op::CreateDeploy, &path, json!({"release": 1}))?;
        self.scale(org, env, desired)
    }

    fn scale(&mut self, org: &str, env: &str, desired: i64) -> Result<(), Problem> {
        self.platform.pass(1);
        let body = json!({"scales": [{"process_type": "web", "desired": desired}]});
        self.platform.run(org, Op::SetScale, &[("app", "shop"), ("env", env)], body).map(drop)
    }

    fn objects(&self) -> Objects {
        let read = |plural: families::Plural| -> Vec<Seen> {
            let resource = plural.resource();
            let list = self.platform.reading().list(&resource);
            list.map(|object| {
                let value = object.value();
                let mut status = value["status"].clone();
                if plural == NODES && status.is_null() {
                    status = json!({"heartbeat_at_ms": self.platform.now_ms});
                }
                Seen {
                    org: object.key.namespace.to_string(),
                    name: object.key.name.to_string(),
                    spec: value["spec"].clone(),
                    status,
                }
            })
            .collect()
        };
        Objects {
            nodes: read(NODES),
            orgs: read(ORGS),
            envs: read(ENVS),
            instances: read(INSTANCES),
            attachments: read(ATTACHMENTS),
            volumes: read(VOLUMES),
            deploys: read(DEPLOYS),
        }
    }

    /// One pass; what it did, and why groups wait.
    fn pass(&mut self) -> (usize, BTreeMap<String, String>) {
        let objects = self.objects();
        let (mut did, mut reasons) = (0, BTreeMap::new());
        for action in plan(&objects, &self.memory, self.platform.now_ms) {
            let run = |platform: &mut Platform, org: &str, op, path: &[(&'static str, &str)], body| {
                platform.run(org, op, path, body)
            };
            let done = match &action {
                Action::Allocate { org, body, group } => {
                    self.attempts += 1;
                    let done = run(&mut self.platform, org, Op::AllocateInstance, &[], body.clone());
                    if let Err(problem) = &done {
                        let dimension = Dimension::parse(problem.dimension().unwrap()).unwrap();
                        let all = groups(&objects);
                        let group = all.iter().find(|one| one.key() == *group).unwrap();
                        self.memory.block(group, &rooms(&objects.orgs)[org], dimension, self.platform.now_ms);
                    }
                    done
                }
                Action::SetState { org, instance, state, reason } => {
                    let body = json!({"desired_state": state, "reason": reason});
                    run(&mut self.platform, org, Op::SetInstanceState, &[("instance", instance)], body)
                }
                Action::Remove { org, instance } => {
                    run(&mut self.platform, org, Op::RemoveInstance, &[("instance", instance)], Value::Null)
                }
                Action::Deploy { org, deploy, state, message } => {
                    let mut body = json!({"state": state});
                    if let Some(message) = message {
                        body["message"] = json!(message);
                    }
                    run(&mut self.platform, org, Op::SetDeployState, &[("deploy", deploy)], body)
                }
                Action::Status { org, env, groups } => {
                    for group in groups.as_array().unwrap() {
                        if let Some(reason) = group["unschedulable_reason"].as_str() {
                            let key = format!("{org}/{env} {}", group["unmet_replicas"]);
                            reasons.insert(key, reason.to_owned());
                        }
                    }
                    continue;
                }
            };
            did += usize::from(done.is_ok());
        }
        if self.agents {
            self.report();
        }
        (did, reasons)
    }

    /// Nodes start what is to run, and stop what is to stop.
    fn report(&mut self) {
        for seen in self.objects().instances {
            let (wanted, is) = (&seen.spec["desired_state"], &seen.spec["reported"]["status"]);
            let status = match wanted.as_str().unwrap() {
                "running" if is == "booting" => "ready",
                "draining" | "stopped" if is != "stopped" => "stopped",
                _ => continue,
            };
            let path = [("instance", seen.name.as_str())];
            self.platform.run(&seen.org, Op::ReportInstance, &path, json!({"status": status})).unwrap();
        }
    }

    /// Passes until nothing is left to do. Never is more allocated than a limit allows.
    fn settle(&mut self) -> BTreeMap<String, String> {
        for _ in 0..200 {
            self.platform.pass(100);
            let (did, reasons) = self.pass();
            if did == 0 {
                return reasons;
            }
        }
        panic!("it comes to no rest");
    }

    fn nodes_of(&self, org: &str) -> Vec<String> {
        let list = self.platform.list(INSTANCES, org);
        let running = list.iter().filter(|one| one["spec"]["desired_state"] == "running");
        running.map(|one| one["spec"]["node"].as_str().unwrap().to_owned()).collect()
    }
}

const GIB: i64 = 1 << 30;

#[test]
fn what_was_granted_is_placed_and_spread_the_same_way_each_time() {
    let run = || {
        let mut cluster = Cluster::new(&[("n1", GIB), ("n2", GIB), ("n3", GIB)]);
        cluster.org("acme", 5);
        assert_eq!(cluster.settle(), BTreeMap::new());
        let mut nodes = cluster.nodes_of("acme");
        nodes.sort();
        (nodes, cluster.platform.units("acme", "counted.max_instances"))
    };
    assert_eq!(run(), (["n1", "n1", "n2", "n2", "n3"].map(str::to_owned).to_vec(), 5));
    assert_eq!(run(), run());
}

#[test]
fn a_full_cluster_is_no_matter_of_quota() {
    let mut cluster = Cluster::new(&[("n1", 256 << 20)]);
    cluster.org("acme", 3);
    assert_eq!(cluster.settle(), BTreeMap::from([("acme/shop.prod 1".into(), "no_capacity_memory".into())]));
    assert_eq!(cluster.nodes_of("acme").len(), 2);
    let mut none = Cluster::new(&[]);
    none.org("acme", 1);
    assert_eq!(none.settle(), BTreeMap::from([("acme/shop.prod 1".into(), "no_nodes_active".into())]));
    // Without quota, and without a node: it is told of the quota.
    none.platform.limit("acme", "max_instances", 0);
    assert_eq!(none.settle().into_values().collect::<Vec<_>>(), ["org_quota_exceeded:max_instances"]);
}

#[test]
fn commands_that_only_look_leave_it_to_the_scheduler_to_stop_at_the_limit() {
    let mut cluster = Cluster::new(&[("n1", 64 * GIB)]);
    cluster.org("acme", 0);
    cluster.env("acme", "other", 0).unwrap();
    cluster.settle();
    cluster.platform.run("acme", Op::SetPolicy, &[], json!({"reservations": "check"})).unwrap();
    cluster.platform.limit("acme", "max_instances", 5);
    cluster.scale("acme", "prod", 4).unwrap();
    cluster.scale("acme", "other", 4).unwrap();
    let reasons = cluster.settle();
    assert_eq!(reasons, BTreeMap::from([("acme/shop.other 3".into(), "org_quota_exceeded:max_instances".into())]));
    assert_eq!(cluster.platform.units("acme", "counted.max_instances"), 5);
    let attempts = cluster.attempts;
    for _ in 0..29 {
        cluster.platform.pass(1000);
        cluster.pass();
    }
    assert!(cluster.attempts - attempts <= 1, "{} attempts in half a minute", cluster.attempts - attempts);
    // The other gives way: what waits goes on at once.
    cluster.scale("acme", "prod", 1).unwrap();
    assert_eq!(cluster.settle(), BTreeMap::new());
    assert_eq!(cluster.platform.units("acme", "counted.max_instances"), 5);
}

#[test]
fn a_limit_that_is_lowered_before_anything_is_placed_holds() {
    let mut cluster = Cluster::new(&[("n1", 64 * GIB)]);
    cluster.org("acme", 4);
    cluster.platform.limit("acme", "max_instances", 2);
    let reasons = cluster.settle();
    assert_eq!(reasons, BTreeMap::from([("acme/shop.prod 2".into(), "org_quota_exceeded:max_instances".into())]));
    cluster.platform.limit("acme", "max_instances", 10);
    assert_eq!(cluster.settle(), BTreeMap::new());
}

#[test]
fn a_rollout_without_room_never_has_more_than_the_limit() {
    let mut cluster = Cluster::new(&[("n1", 64 * GIB)]);
    cluster.org("acme", 3);
    cluster.platform.limit("acme", "max_instances", 3);
    cluster.settle();
    let release = json!({"processes": {"web": {"memory_bytes": 32 << 20}}});
    cluster.platform.run("acme", Op::CreateRelease, &[("app", "shop")], release).unwrap();
    let path = [("app", "shop"), ("env", "prod")];
    let deploy = cluster.platform.run("acme", Op::CreateDeploy, &path, json!({"release": 2})).unwrap().body;
    assert_eq!(deploy["processes"]["web"]["mode"], "drain_first");
    for _ in 0..60 {
        cluster.platform.pass(500);
        cluster.pass();
        assert!(cluster.platform.units("acme", "counted.max_instances") <= 3);
    }
    let live = cluster.platform.list(INSTANCES, "acme");
    assert_eq!(
        live.iter()
            .filter(|one| one["spec"]["release"] == "shop.2" && one["spec"]["desired_state"] == "running")
            .count(),
        3
    );
    let deploy = cluster.platform.get(DEPLOYS, "acme", deploy["id"].as_str().unwrap()).unwrap();
    assert_eq!(deploy["spec"]["state"], "succeeded");
}

#[test]
fn a_rollout_with_room_surges_and_is_never_short() {
    let mut cluster = Cluster::new(&[("n1", 64 * GIB)]);
    cluster.org("acme", 3);
    cluster.settle();
    let release = json!({"processes": {"web": {"memory_bytes": 32 << 20}}});
    cluster.platform.run("acme", Op::CreateRelease, &[("app", "shop")], release).unwrap();
    let path = [("app", "shop"), ("env", "prod")];
    cluster.platform.run("acme", Op::CreateDeploy, &path, json!({"release": 2})).unwrap();
    for _ in 0..60 {
        cluster.platform.pass(500);
        cluster.pass();
        let ready =
            cluster.platform.list(INSTANCES, "acme").into_iter().filter(|one| {
                one["spec"]["desired_state"] == "running" && one["spec"]["reported"]["status"] == "ready"
            });
        assert!(ready.count() >= 3);
        assert!(cluster.platform.units("acme", "counted.max_instances") <= 4);
    }
    let all = cluster.platform.list(INSTANCES, "acme");
    assert!(all.iter().all(|one| one["spec"]["release"] == "shop.2"), "{all:?}");
}

#[test]
fn a_thousand_of_one_do_not_stand_before_one_of_another() {
    let mut cluster = Cluster::new(&[("n1", 4096 * GIB)]);
    cluster.org("loud", 0);
    cluster.platform.limit("loud", "max_instances", 2000);
    cluster.platform.limit("loud", "max_total_cpu_request", 2000);
    cluster.platform.limit("loud", "max_total_memory_bytes", 2048 * GIB);
    cluster.scale("loud", "prod", 100).unwrap();
    for n in 0..9 {
        cluster.env("loud", &format!("e{n}"), 100).unwrap();
    }
    cluster.org("quiet", 1);
    cluster.pass();
    assert_eq!(cluster.nodes_of("quiet").len(), 1, "one pass is enough");
    assert!(cluster.nodes_of("loud").len() >= 60);
}

#[test]
fn what_a_lost_node_ran_runs_elsewhere_even_over_a_lowered_limit() {
    let mut cluster = Cluster::new(&[("n1", GIB), ("n2", GIB)]);
    cluster.org("acme", 4);
    cluster.settle();
    cluster.platform.limit("acme", "max_instances", 2);
    let lost = json!({"state": "offline", "reason": "silent"});
    cluster.platform.run("", Op::SetNodeState, &[("node", "n1")], lost).unwrap();
    cluster.settle();
    assert_eq!(cluster.nodes_of("acme"), ["n2"; 4]);
    assert_eq!(cluster.platform.units("acme", "counted.max_instances"), 4);
}
