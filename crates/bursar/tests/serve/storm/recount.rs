//! What every policy should show, added up from the stored objects by plain loops over whole numbers.

use std::collections::{BTreeMap, BTreeSet};

use kube::Client;
use serde_json::{Value, json};

use super::send;

/// Thousandths, so that `100m` is whole.
type Amounts = BTreeMap<String, i64>;

/// Everything that is stored, by kind.
struct World {
    namespaces: Vec<Value>,
    pods: Vec<Value>,
    maps: Vec<Value>,
    secrets: Vec<Value>,
    claims: Vec<Value>,
    trees: Vec<Value>,
    quotas: Vec<Value>,
    cluster_quotas: Vec<Value>,
    tree_quotas: Vec<Value>,
    custom_quotas: Vec<Value>,
    global_quotas: Vec<Value>,
    pools: Vec<Value>,
}

/// A line for every number that is not what the objects add up to.
pub async fn differences(client: &Client) -> Vec<String> {
    let world = match World::read(client).await {
        Some(world) => world,
        None => return vec!["the server does not answer".into()],
    };
    if let Some(leaving) = world.namespaces.iter().find(|one| !one["metadata"]["deletionTimestamp"].is_null()) {
        return vec![format!("{} is still leaving", leaving["metadata"]["name"])];
    }
    let mut wrong = Vec::new();
    world.check_quotas(&mut wrong);
    world.check_cluster_quotas(&mut wrong);
    world.check_tree_quotas(&mut wrong);
    world.check_custom_quotas(&mut wrong);
    world.check_pools(&mut wrong);
    wrong
}

impl World {
    async fn read(client: &Client) -> Option<World> {
        let list = async |path: &str| -> Option<Vec<Value>> {
            let (code, answer) = send(client, "GET", path, &Value::Null).await?;
            if code == 200 { answer["items"].as_array().cloned() } else { None }
        };
        Some(World {
            namespaces: list("/api/v1/namespaces").await?,
            pods: list("/api/v1/pods").await?,
            maps: list("/api/v1/configmaps").await?,
            secrets: list("/api/v1/secrets").await?,
            claims: list("/apis/capsule.clastix.io/v1beta2/resourcepoolclaims").await?,
            trees: list("/apis/hnc.x-k8s.io/v1alpha2/hierarchyconfigurations").await?,
            quotas: list("/api/v1/resourcequotas").await?,
            cluster_quotas: list("/apis/quota.openshift.io/v1/clusterresourcequotas").await?,
            tree_quotas: list("/apis/hnc.x-k8s.io/v1alpha2/hierarchicalresourcequotas").await?,
            custom_quotas: list("/apis/capsule.clastix.io/v1beta2/customquotas").await?,
            global_quotas: list("/apis/capsule.clastix.io/v1beta2/globalcustomquotas").await?,
            pools: list("/apis/capsule.clastix.io/v1beta2/resourcepools").await?,
        })
    }

    /// What is used in a namespace of the names that the storm's quotas have.
    fn used_in(&self, namespace: &str, scopes: &[String]) -> Amounts {
        // What is no pod is in no scope.
        let inside = |one: &&Value| scopes.is_empty() && one["metadata"]["namespace"] == namespace;
        let here = |list: &[Value]| list.iter().filter(inside).count() as i64;
        let pods = self.pods.iter().filter(|pod| pod["metadata"]["namespace"] == namespace);
        let pods = pods.filter(|pod| pod["status"]["phase"] != "Succeeded" && pod["status"]["phase"] != "Failed");
        let pods: Vec<&Value> = pods.filter(|pod| scopes.iter().all(|scope| in_scope(pod, scope))).collect();
        let cpu = pods.iter().flat_map(|pod| pod["spec"]["containers"].as_array().into_iter().flatten());
        let cpu = cpu.map(|container| milli(&container["resources"]["requests"]["cpu"])).sum();
        Amounts::from([
            ("pods".to_owned(), pods.len() as i64 * 1000),
            ("requests.cpu".to_owned(), cpu),
            ("count/configmaps".to_owned(), here(&self.maps) * 1000),
            ("secrets".to_owned(), here(&self.secrets) * 1000),
        ])
    }

    fn used_over(&self, namespaces: &BTreeSet<String>) -> Amounts {
        let mut total = Amounts::new();
        for namespace in namespaces {
            for (name, amount) in self.used_in(namespace, &[]) {
                *total.entry(name).or_default() += amount;
            }
        }
        total
    }

    fn selected(&self, labels: &Value) -> BTreeSet<String> {
        let matches = |namespace: &&Value| {
            let wanted = labels.as_object().into_iter().flatten();
            wanted.into_iter().all(|(name, value)| namespace["metadata"]["labels"][name] == *value)
        };
        self.namespaces.iter().filter(matches).map(|one| text(&one["metadata"]["name"])).collect()
    }

    fn check_quotas(&self, wrong: &mut Vec<String>) {
        for quota in &self.quotas {
            let namespace = text(&quota["metadata"]["namespace"]);
            let scopes = quota["spec"]["scopes"].as_array().into_iter().flatten().map(text).collect::<Vec<_>>();
            let used = self.used_in(&namespace, &scopes);
            let name = format!("{} {}", named("ResourceQuota", quota), quota["spec"]);
            let before = wrong.len();
            compare(&name, &quota["spec"]["hard"], &quota["status"]["used"], &used, wrong);
            if wrong.len() > before {
                let pods = self.pods.iter().filter(|pod| pod["metadata"]["namespace"] == namespace.as_str());
                wrong.extend(pods.map(|pod| format!("  there is {} {}", pod["spec"], pod["status"])));
            }
        }
    }

    fn check_cluster_quotas(&self, wrong: &mut Vec<String>) {
        for quota in &self.cluster_quotas {
            let name = named("ClusterResourceQuota", quota);
            let hard = &quota["spec"]["quota"]["hard"];
            let namespaces = self.selected(&quota["spec"]["selector"]["labels"]["matchLabels"]);
            compare(&name, hard, &quota["status"]["total"]["used"], &self.used_over(&namespaces), wrong);
            let shown = quota["status"]["namespaces"].as_array().cloned().unwrap_or_default();
            for one in &shown {
                let namespace = text(&one["namespace"]);
                let used = self.used_in(&namespace, &[]);
                compare(&format!("{name} in {namespace}"), hard, &one["status"]["used"], &used, wrong);
            }
            let shown: BTreeSet<String> = shown.iter().map(|one| text(&one["namespace"])).collect();
            if shown != namespaces {
                wrong.push(format!("{name} lists {shown:?} and selects {namespaces:?}: {quota}"));
            }
        }
    }

    /// A namespace and everything below it.
    fn below(&self, root: &str) -> BTreeSet<String> {
        let parent_of = |namespace: &str| {
            let tree = self.trees.iter().find(|tree| tree["metadata"]["namespace"] == namespace)?;
            Some(text(&tree["spec"]["parent"])).filter(|parent| !parent.is_empty())
        };
        let names = self.namespaces.iter().map(|one| text(&one["metadata"]["name"]));
        let is_below = |name: &String| {
            let mut at = Some(name.clone());
            for _ in 0..=self.namespaces.len() {
                match at {
                    Some(here) if here == root => return true,
                    Some(here) => at = parent_of(&here),
                    None => return false,
                }
            }
            false
        };
        names.filter(is_below).collect()
    }

    fn check_tree_quotas(&self, wrong: &mut Vec<String>) {
        for quota in &self.tree_quotas {
            let below = self.below(&text(&quota["metadata"]["namespace"]));
            let used = self.used_over(&below);
            let name = named("HierarchicalResourceQuota", quota);
            compare(&name, &quota["spec"]["hard"], &quota["status"]["used"], &used, wrong);
        }
    }

    fn check_custom_quotas(&self, wrong: &mut Vec<String>) {
        for quota in self.custom_quotas.iter().chain(&self.global_quotas) {
            let namespace = text(&quota["metadata"]["namespace"]);
            let selectors = quota["spec"]["namespaceSelectors"].as_array().cloned().unwrap_or_default();
            let namespaces: BTreeSet<String> = match (namespace.is_empty(), selectors.as_slice()) {
                (false, _) => BTreeSet::from([namespace]),
                (true, []) => self.selected(&json!({})),
                (true, several) => several.iter().flat_map(|one| self.selected(&one["matchLabels"])).collect(),
            };
            let inside = |object: &&Value| namespaces.contains(&text(&object["metadata"]["namespace"]));
            let number = |value: &Value| text(value).parse::<i64>().unwrap_or(0);
            let mut total = 0;
            for source in quota["spec"]["sources"].as_array().into_iter().flatten() {
                let counted = !source["selectors"].is_null();
                let maps = self.maps.iter().filter(inside);
                let maps = maps.filter(|map| !counted || map["metadata"]["labels"]["counted"] == "yes");
                total += match (source["op"].as_str(), source["kind"].as_str()) {
                    (_, Some("Secret")) => self.secrets.iter().filter(inside).count() as i64,
                    (Some("sub"), _) => -maps.map(|map| number(&map["data"]["free"])).sum::<i64>(),
                    _ => maps.map(|map| number(&map["data"]["size"])).sum::<i64>(),
                };
            }
            let shown = text(&quota["status"]["usage"]["used"]);
            if shown != total.max(0).to_string() {
                wrong.push(format!(
                    "{} shows {shown}, the objects add up to {total}",
                    named(&text(&quota["kind"]), quota)
                ));
            }
        }
    }

    /// A pool has given out what its claims have, and keeps in each namespace what was claimed there.
    fn check_pools(&self, wrong: &mut Vec<String>) {
        let has = |claim: &&Value| {
            let conditions = claim["status"]["conditions"].as_array().cloned().unwrap_or_default();
            conditions.iter().any(|one| one["type"] == "Exhausted" && one["status"] == "False")
        };
        for pool in &self.pools {
            let name = text(&pool["metadata"]["name"]);
            let namespaces = self.selected_by_pool(pool);
            let of_pool = |claim: &&Value| claim["status"]["pool"]["name"] == name.as_str();
            let holding: Vec<&Value> = self.claims.iter().filter(of_pool).filter(has).collect();
            let sum = |namespace: Option<&str>| {
                let mut sum = Amounts::new();
                for claim in &holding {
                    if namespace.is_none_or(|wanted| claim["metadata"]["namespace"] == wanted) {
                        for (resource, amount) in claim["spec"]["claim"].as_object().into_iter().flatten() {
                            *sum.entry(resource.clone()).or_default() += milli(amount);
                        }
                    }
                }
                sum
            };
            let hard = &pool["spec"]["quota"]["hard"];
            compare(&format!("pool {name}"), hard, &pool["status"]["allocation"]["used"], &sum(None), wrong);
            for (resource, amount) in sum(None) {
                if amount > milli(&hard[&resource]) {
                    wrong.push(format!(
                        "pool {name} gave out {amount} thousandths of {resource}, of {}",
                        hard[&resource]
                    ));
                }
            }
            for namespace in self.namespaces.iter().map(|one| text(&one["metadata"]["name"])) {
                let kept = self.quotas.iter().find(|quota| {
                    quota["metadata"]["namespace"] == namespace.as_str()
                        && quota["metadata"]["name"] == format!("capsule-pool-{name}")
                });
                let place = format!("the quota of pool {name} in {namespace}");
                match (kept, namespaces.contains(&namespace)) {
                    (None, true) => wrong.push(format!("{place} is missing")),
                    (None, false) => {}
                    // It may stay while something there is used under it; it must not grant anything.
                    (Some(quota), false) => {
                        let used = quota["status"]["used"].as_object().cloned().unwrap_or_default();
                        if used.values().all(|used| milli(used) == 0) {
                            wrong.push(format!("{place} is still there"));
                        }
                    }
                    (Some(quota), true) => {
                        let mut expected = sum(Some(&namespace));
                        for (resource, amount) in pool["spec"]["defaults"].as_object().into_iter().flatten() {
                            *expected.entry(resource.clone()).or_default() += milli(amount);
                        }
                        expected.retain(|resource, amount| *amount != 0 || !quota["spec"]["hard"][resource].is_null());
                        let shown = amounts(&quota["spec"]["hard"]);
                        if shown != expected {
                            wrong.push(format!("{place} says {shown:?}, claimed and granted is {expected:?}"));
                        }
                    }
                }
            }
        }
    }

    fn selected_by_pool(&self, pool: &Value) -> BTreeSet<String> {
        let selectors = pool["spec"]["selectors"].as_array().into_iter().flatten();
        selectors.flat_map(|one| self.selected(&one["matchLabels"])).collect()
    }
}

/// Every name of `hard` is shown with what is used of it.
fn compare(of: &str, hard: &Value, shown: &Value, used: &Amounts, wrong: &mut Vec<String>) {
    for name in hard.as_object().into_iter().flatten().map(|(name, _)| name) {
        let expected = used.get(name).copied().unwrap_or(0);
        if shown[name].is_null() && expected == 0 {
            continue;
        }
        if milli(&shown[name]) != expected {
            wrong.push(format!("{of} shows {name} {}, the objects add up to {expected} thousandths", shown[name]));
        }
    }
}

fn in_scope(pod: &Value, scope: &str) -> bool {
    let containers = pod["spec"]["containers"].as_array().cloned().unwrap_or_default();
    let best_effort =
        containers.iter().all(|one| one["resources"]["requests"].as_object().is_none_or(|all| all.is_empty()));
    let terminating = !pod["spec"]["activeDeadlineSeconds"].is_null();
    match scope {
        "BestEffort" => best_effort,
        "NotBestEffort" => !best_effort,
        "Terminating" => terminating,
        _ => !terminating,
    }
}

fn amounts(list: &Value) -> Amounts {
    list.as_object().into_iter().flatten().map(|(name, amount)| (name.clone(), milli(amount))).collect()
}

/// `3`, `250m`: all that the storm writes.
fn milli(amount: &Value) -> i64 {
    let text = text(amount);
    match text.strip_suffix('m') {
        Some(thousandths) => thousandths.parse().unwrap_or(0),
        None => text.parse::<i64>().unwrap_or(0) * 1000,
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn named(kind: &str, object: &Value) -> String {
    format!("{kind} {}/{}", text(&object["metadata"]["namespace"]), text(&object["metadata"]["name"]))
}
