//! A cluster fails whose jobs fill the quota with others': at every moment of it somebody tries to get in.

use serde_json::{Value, json};

use super::centre::{Centre, NAMESPACE, bindings};
use super::judge::total;
use super::world::evicted;
use super::{Config, Mutation};
use crate::rng::Rng;

fn job(name: &str, replicas: u64, clusters: Value) -> Value {
    json!({"spec": {
        "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": NAMESPACE, "name": name},
        "replicas": replicas,
        "replicaRequirements": {"resourceRequest": {"cpu": "1"}},
        "placement": {"replicaScheduling": {"replicaSchedulingType": "Divided"}},
        "clusters": clusters,
    }})
}

/// One failover of up to four jobs, in any order; how often the thief tried. `Err` where it got in, or the total moved.
pub fn failover(config: Config) -> Result<u64, String> {
    let mut rng = Rng::new(config.seed);
    let sizes: Vec<u64> = (0..2 + rng.below(3)).map(|_| 1 + rng.below(14)).collect();
    let stays = 1 + rng.below(20);
    let overall = sizes.iter().sum::<u64>() + stays;
    let mut centre = Centre::new(overall, 0, true)?;
    centre.put(&bindings(), "stays", job("stays", stays, json!([{"name": "m1", "replicas": stays}])))?;
    let name = |one: usize| format!("j{one}");
    for (one, size) in sizes.iter().enumerate() {
        centre.put(&bindings(), &name(one), job(&name(one), *size, json!([{"name": "m0", "replicas": size}])))?;
    }
    let (mut stages, mut tries) = (vec![0; sizes.len()], 0);
    while stages.iter().any(|stage| *stage < 3) {
        if rng.one_in(12) {
            centre = centre.restarted();
        }
        for _ in 0..rng.below(3) {
            tries += 1;
            let size = 1 + rng.below(3);
            let thief = job("thief", size, json!([{"name": "m1", "replicas": size}]));
            if centre.put(&bindings(), "thief", thief).is_ok() {
                return Err(format!("a thief got in while jobs were at {stages:?}"));
            }
        }
        let one = rng.index(sizes.len());
        let stored = centre.get(&bindings(), &name(one)).ok_or("a job is gone")?;
        let next = match stages[one] {
            0 if config.mutation == Some(Mutation::EvictionLetsGo) => job(&name(one), sizes[one], json!([])),
            0 => evicted(&stored),
            // Placed anew at once, or in two parts.
            1 => {
                let part = if rng.one_in(2) { sizes[one] } else { rng.below(sizes[one] + 1) };
                let mut next = json!({"spec": stored["spec"]});
                next["spec"]["clusters"] = json!([{"name": "m1", "replicas": part}]);
                if part < sizes[one] {
                    stages[one] -= 1;
                }
                next
            }
            2 => job(&name(one), sizes[one], json!([{"name": "m1", "replicas": sizes[one]}])),
            _ => continue,
        };
        stages[one] += 1;
        centre.put(&bindings(), &name(one), next).map_err(|why| format!("{} is refused: {why}", name(one)))?;
        let total = total(&centre);
        if total != overall || centre.shown() != Some(overall.to_string()) {
            return Err(format!("the total dips to {total}, and {:?} is shown", centre.shown()));
        }
    }
    Ok(tries)
}
