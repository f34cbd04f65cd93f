//! The scheduler's plans carried out on the engine in memory, with nodes that do as they are told.

use std::collections::BTreeMap;

use families::orgs::Dimension;
use families::orgs::commands::{Op, Problem};
use families::orgs::dimensions::counted_name;
use families::orgs::names::*;
use families::orgs::scheduler::plan::{Action, Exceeded, Memory, plan};
use families::orgs::scheduler::state::{Objects, Seen, groups};
use serde_json::{Value, json};

use super::platform::Platform;

pub const GIB: i64 = 1 << 30;

pub struct Cluster {
    pub platform: Platform,
    pub memory: Memory,
    /// Reports are made at once, unless a test wants to see what is between.
    pub agents: bool,
    pub attempts: usize,
    /// Nothing that starts comes up.
    pub failing: bool,
}

impl Cluster {
    pub fn new(nodes: &[(&str, i64)]) -> Cluster {
        let mut platform = Platform::new();
        for (name, memory) in nodes {
            let node = json!({"allocatable_memory_bytes": memory, "cpu_cores": 4});
            platform.run("", Op::RegisterNode, &[("node", name)], node).unwrap();
        }
        Cluster { platform, memory: Memory::default(), agents: true, attempts: 0, failing: false }
    }

    /// An organization with an environment that wants so many of a release of 64 MiB, with 64 more for what runs it.
    pub fn org(&mut self, org: &str, desired: i64) {
        self.platform.with_org(org, "standard");
        self.platform.run(org, Op::CreateApp, &[], json!({"name": "shop"})).unwrap();
        let release = json!({"processes": {"web": {"memory_bytes": 64 << 20, "cpu": 0.5}}});
        self.platform.run(org, Op::CreateRelease, &[("app", "shop")], release).unwrap();
        self.env(org, "prod", desired).unwrap();
    }

    pub fn env(&mut self, org: &str, env: &str, desired: i64) -> Result<(), Problem> {
        self.platform.run(org, Op::CreateEnv, &[("app", "shop")], json!({"name": env}))?;
        let path = [("app", "shop"), ("env", env)];
        self.platform.run(org, Op::CreateDeploy, &path, json!({"release": 1}))?;
        self.scale(org, env, desired)
    }

    pub fn scale(&mut self, org: &str, env: &str, desired: i64) -> Result<(), Problem> {
        self.platform.pass(1);
        let body = json!({"scales": [{"process_type": "web", "desired": desired}]});
        self.platform.run(org, Op::SetScale, &[("app", "shop"), ("env", env)], body).map(drop)
    }

    pub fn objects(&self) -> Objects {
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
            sessions: read(EXEC_SESSIONS),
        }
    }

    /// One pass; what it did, and why groups wait.
    pub fn pass(&mut self) -> (usize, BTreeMap<String, String>) {
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
                    if let Some(dimension) = done.as_ref().err().and_then(Problem::dimension) {
                        let dimension = Dimension::parse(dimension).unwrap();
                        let all = groups(&objects);
                        let group = all.iter().find(|one| one.key() == *group).unwrap();
                        let limit = done.as_ref().unwrap_err().violations[0].limit.nanos();
                        let counted = self.platform.used(org, counted_name(dimension));
                        let refused = Exceeded { dimension, counted, limit: Some(limit) };
                        self.memory.block(group, refused, self.platform.now_ms);
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
                Action::Deploy { org, deploy, state, message, drains_first } => {
                    let mut body = json!({"state": state});
                    if *drains_first {
                        body["mode"] = json!("drain_first");
                    }
                    if let Some(message) = message {
                        body["message"] = json!(message);
                    }
                    run(&mut self.platform, org, Op::SetDeployState, &[("deploy", deploy)], body)
                }
                Action::Replace { org, app, env, why, process_types } => {
                    let body = json!({"reason": why, "process_types": process_types});
                    run(&mut self.platform, org, Op::CreateReplacement, &[("app", app), ("env", env)], body)
                }
                Action::Fail { org, instance, reason } => {
                    let body = json!({"status": "failed", "reason": reason});
                    run(&mut self.platform, org, Op::ReportInstance, &[("instance", instance)], body)
                }
                Action::EndSession { org, session, .. } => {
                    run(&mut self.platform, org, Op::EndExec, &[("session", session)], Value::Null)
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
    pub fn report(&mut self) {
        for seen in self.objects().instances {
            let (wanted, is) = (&seen.spec["desired_state"], &seen.spec["reported"]["status"]);
            let status = match wanted.as_str().unwrap() {
                "running" if is == "booting" && self.failing => "failed",
                "running" if is == "booting" => "ready",
                "draining" | "stopped" if is != "stopped" => "stopped",
                _ => continue,
            };
            let path = [("instance", seen.name.as_str())];
            self.platform.run(&seen.org, Op::ReportInstance, &path, json!({"status": status})).unwrap();
        }
    }

    /// Passes until nothing is left to do. Never is more allocated than a limit allows.
    pub fn settle(&mut self) -> BTreeMap<String, String> {
        for _ in 0..200 {
            self.platform.pass(100);
            let (did, reasons) = self.pass();
            if did == 0 {
                return reasons;
            }
        }
        panic!("it comes to no rest");
    }

    pub fn nodes_of(&self, org: &str) -> Vec<String> {
        let list = self.platform.list(INSTANCES, org);
        let running = list.iter().filter(|one| one["spec"]["desired_state"] == "running");
        running.map(|one| one["spec"]["node"].as_str().unwrap().to_owned()).collect()
    }
}
