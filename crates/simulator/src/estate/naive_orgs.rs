//! What the accounts of organizations must say, counted from the stored objects alone.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::naive::{Expected, ONE, Stored, name_of, namespace_of, policy, uid};

const COMPUTE: [&str; 3] = ["max_instances", "max_total_memory_bytes", "max_total_cpu_request"];
const DIMENSIONS: [&str; 17] = [
    "max_instances",
    "max_total_memory_bytes",
    "max_total_cpu_request",
    "max_envs",
    "max_apps",
    "max_routes",
    "max_public_ports",
    "max_ipv4_allocations",
    "max_hostnames",
    "max_volumes",
    "max_total_volume_bytes",
    "max_volume_attachments",
    "max_snapshots_per_volume",
    "max_restore_jobs",
    "max_log_streams",
    "max_exec_sessions",
    "max_exec_sessions_per_hour",
];
pub const ORGS: &str = "orgs.orgs.bursar.dev";
const PER_VOLUME: &str = "max_snapshots_per_volume";

fn shelf(name: &str) -> String {
    format!("{name}.orgs.bursar.dev")
}

/// Billionths of a decimal, by hand.
fn decimal(value: &Value) -> i128 {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let (whole, part) = text.split_once('.').unwrap_or((&text, ""));
    let part: String = part.chars().chain("000000000".chars()).take(9).collect();
    whole.parse::<i128>().unwrap_or(0) * ONE + part.parse::<i128>().unwrap_or(0)
}

type Three = [i128; 3];

fn takes(resources: &Value) -> Three {
    let bytes = |field: &str| i128::from(resources[field].as_i64().unwrap_or(0));
    [ONE, (bytes("memory_bytes") + bytes("vmm_overhead_bytes")) * ONE, decimal(&resources["cpu"])]
}

impl Stored {
    pub fn orgs(&self, out: &mut Expected) {
        for org in self.all(ORGS) {
            let limits = self.org_limits(org);
            let account = policy(ORGS, org);
            for (name, limit) in &limits {
                let limit = if *name == PER_VOLUME { None } else { *limit };
                out.limits.insert((account.clone(), (*name).into()), limit);
            }
            for name in COMPUTE {
                out.limits.insert((account.clone(), format!("counted.{name}")), limits[name]);
            }
            out.limits.insert((account.clone(), "records".into()), Some(20_000 * ONE));
            out.limits.insert((account.clone(), "idempotency_keys".into()), Some(10_000 * ONE));
            out.limits.insert((account.clone(), "record_bytes".into()), Some(64 * 1024 * 1024 * ONE));
            self.org_counts(org, &account, out);
        }
        for volume in self.all(&shelf("volumes")) {
            let account = policy(&shelf("volumes"), volume);
            let org = self.named(ORGS, namespace_of(volume), namespace_of(volume));
            let limit = match org {
                Some(org) => self.org_limits(org)[PER_VOLUME],
                // Whatever it was when the organization went.
                None => volume["spec"]["snapshots_max"].as_i64().map(|most| i128::from(most) * ONE),
            };
            out.limits.insert((account.clone(), PER_VOLUME.into()), limit);
            for snapshot in self.all(&shelf("snapshots")) {
                let is_ours =
                    namespace_of(snapshot) == namespace_of(volume) && snapshot["spec"]["volume"] == name_of(volume);
                if is_ours && is_open(snapshot) {
                    let lines = out.charged.entry(uid(snapshot)).or_default();
                    lines.insert((account.clone(), PER_VOLUME.into(), String::new()), ONE);
                }
            }
        }
    }

    fn org_limits(&self, org: &Value) -> BTreeMap<&'static str, Option<i128>> {
        let tier = self.named(&shelf("tiers"), "", org["spec"]["tier"].as_str().unwrap_or(""));
        let limit = |name: &str| {
            let own = &org["spec"]["overrides"][name];
            let ends: Option<jiff::Timestamp> = own["expires_at"].as_str().and_then(|text| text.parse().ok());
            let counts = ends.is_none_or(|ends| self.now_ms < ends.as_millisecond()) && !own["limit"].is_null();
            let limit = if counts { &own["limit"] } else { &tier?["spec"]["limits"][name] };
            (!limit.is_null() && *limit != "unlimited").then(|| decimal(limit))
        };
        DIMENSIONS.into_iter().map(|name| (name, limit(name))).collect()
    }

    fn org_counts(&self, org: &Value, account: &str, out: &mut Expected) {
        let namespace = namespace_of(org);
        let mut put = |object: &Value, name: &str, amount: i128| {
            if amount != 0 {
                let lines = out.charged.entry(uid(object)).or_default();
                lines.insert((account.to_owned(), name.to_owned(), String::new()), amount);
            }
        };
        let all = |name: &str| {
            let all = self.all(&shelf(name)).iter().filter(|one| namespace_of(one) == namespace);
            all.cloned().collect::<Vec<_>>()
        };
        for (kind, name) in [
            ("apps", "max_apps"),
            ("envs", "max_envs"),
            ("routes", "max_routes"),
            ("volumes", "max_volumes"),
            ("volumeattachments", "max_volume_attachments"),
            ("idempotencykeys", "idempotency_keys"),
            ("releases", "records"),
            ("deploys", "records"),
            ("snapshots", "records"),
            ("restorejobs", "records"),
            ("secretbundles", "records"),
        ] {
            for one in all(kind) {
                put(&one, name, ONE);
                if matches!(name, "records" | "idempotency_keys") {
                    put(&one, "record_bytes", one["spec"].to_string().len() as i128 * ONE);
                }
            }
        }
        for volume in all("volumes") {
            put(&volume, "max_total_volume_bytes", decimal(&volume["spec"]["size_bytes"]));
        }
        for job in all("restorejobs").iter().filter(|job| is_open(job)) {
            put(job, "max_restore_jobs", ONE);
        }
        for stream in all("logstreams") {
            let is_open = stream["spec"]["expires_at_ms"].as_i64().is_some_and(|at| self.now_ms < at);
            put(&stream, "max_log_streams", i128::from(is_open) * ONE);
        }
        for session in all("execsessions") {
            let spec = &session["spec"];
            let granted = spec["granted_at_ms"].as_i64().unwrap_or(0);
            let lives = spec["expires_at_ms"].as_i64().is_some_and(|at| self.now_ms < at);
            let is_open = lives && (spec["state"] == "connected" || spec["state"] == "granted");
            put(&session, "max_exec_sessions", i128::from(is_open) * ONE);
            let counts = self.now_ms < granted + 3_600_000;
            put(&session, "max_exec_sessions_per_hour", i128::from(counts) * ONE);
        }
        for route in all("routes") {
            put(&route, "max_hostnames", i128::from(route["spec"]["hostname"] != "") * ONE);
            // Which of those that share a binding is charged for it is its own business; that all are, once, is judged apart.
            let ports = route["spec"]["charged_bindings"].as_array().map_or(0, Vec::len);
            put(&route, "max_public_ports", ports as i128 * ONE);
        }
        let instances = all("instances");
        for one in instances.iter().filter(|one| one["spec"]["desired_state"] != "stopped") {
            for (name, amount) in COMPUTE.iter().zip(takes(&one["spec"]["resources"])) {
                put(one, &format!("counted.{name}"), amount);
            }
        }
        for env in all("envs") {
            put(&env, "max_ipv4_allocations", i128::from(env["spec"]["ipv4"]["enabled"] == true) * ONE);
            let held = held(&env, &instances, org["spec"]["reservations"] != "check");
            for (name, amount) in COMPUTE.iter().zip(held) {
                put(&env, name, amount);
            }
        }
    }

    /// Of the routes that share an address and a port exactly one is charged for it.
    pub fn judge_bindings(&self) -> Result<(), String> {
        let mut needed: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        let mut charged: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for route in self.all(&shelf("routes")) {
            let (org, spec) = (namespace_of(route).to_owned(), &route["spec"]);
            let (app, env) = (spec["app"].as_str().unwrap_or(""), spec["env"].as_str().unwrap_or(""));
            let needs = needed.entry(org.clone()).or_default();
            needs.insert(format!("ipv6-shared:{}", spec["listen_port"]));
            if spec["ipv4_required"] == true {
                needs.insert(format!("ipv4:{app}.{env}:{}", spec["listen_port"]));
            }
            let own = spec["charged_bindings"].as_array().into_iter().flatten().filter_map(Value::as_str);
            charged.entry(org).or_default().extend(own.map(str::to_owned));
        }
        for (org, needed) in needed {
            let mut charged = charged.remove(&org).unwrap_or_default();
            charged.sort();
            if charged != needed.iter().cloned().collect::<Vec<_>>() {
                return Err(format!("{org} needs the bindings {needed:?} and is charged for {charged:?}"));
            }
        }
        Ok(())
    }
}

fn is_open(job: &Value) -> bool {
    job["spec"]["status"] == "queued" || job["spec"]["status"] == "running"
}

/// What an environment takes: every slot what fills it, or what is wanted if that is more; and what is beside the slots.
fn held(env: &Value, instances: &[std::sync::Arc<Value>], reserves: bool) -> Three {
    let mut groups: BTreeMap<String, (Three, Vec<Three>, usize, Three)> = BTreeMap::new();
    for one in instances.iter().filter(|one| one["spec"]["desired_state"] != "stopped") {
        let spec = &one["spec"];
        if spec["app"] != env["spec"]["app"] || spec["env"] != env["spec"]["env"] {
            continue;
        }
        let group = groups.entry(spec["process_type"].to_string()).or_default();
        let has = takes(&spec["resources"]);
        if spec["desired_state"] == "draining" && spec["drain_reason"] == "scale_down" {
            (0..3).for_each(|place| group.0[place] += has[place]);
        } else {
            group.1.push(has);
        }
    }
    for (name, process) in env["spec"]["processes"].as_object().into_iter().flatten().filter(|_| reserves) {
        let group = groups.entry(Value::from(name.as_str()).to_string()).or_default();
        let surge = usize::from(process["rollout"]["mode"] == "surge");
        group.2 = process["desired"].as_u64().unwrap_or(0) as usize + surge;
        group.3 = takes(&process["unit"]);
    }
    let mut held = [0; 3];
    for (beside, filling, slots, unit) in groups.values() {
        for place in 0..3 {
            let mut filling: Vec<i128> = filling.iter().map(|one| one[place]).collect();
            filling.sort_unstable();
            filling.resize(filling.len().max(*slots), 0);
            filling.iter_mut().take(*slots).for_each(|has| *has = (*has).max(unit[place]));
            held[place] += beside[place] + filling.iter().sum::<i128>();
        }
    }
    held
}
