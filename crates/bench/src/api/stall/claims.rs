//! The same while what may wait is counted again: many claims of one project, and of one pool, with and without some that wait.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use bytes::Bytes;
use serde_json::{Value, json};

use super::super::load::{self, Stop, Work};
use super::{Bench, FILL_CONNECTIONS, Options};

const DATUM: &str = "/apis/quota.datumapis.com/v1alpha1";
const CAPSULE: &str = "/apis/capsule.clastix.io/v1beta2";
const CPU: &str = "compute.example.com/cpu";
const PROJECT: &str = "resources.datumapis.com/project";

/// There are at most 4000 claims in a namespace.
const NAMESPACES: u64 = 12;
const POOLED: u64 = 4;
/// Claims of the pool, of four of the project.
const POOLED_SHARE: u64 = 4;

/// By when a status follows what it tells.
const TOLD: Duration = Duration::from_secs(60);

/// What is there, and is going to be.
pub(super) struct Claims {
    granted: u64,
    waiting: u64,
    /// In each namespace of the project.
    first: u64,
}

impl Bench {
    /// Makes the project with all its claims granted, and the pool.
    pub(super) async fn fill_claims(&mut self, options: &Options) -> anyhow::Result<Claims> {
        let granted = options.claims.max(NAMESPACES);
        let definition = json!({
            "serviceRef": {"name": "compute"}, "resourceName": CPU, "unit": "cores", "allowedDimensions": ["region"],
        });
        self.make(DATUM, "servicequotadefinitions", "ServiceQuotaDefinition", "cpu", definition).await?;
        for (namespace, project) in
            (0..NAMESPACES).map(|number| (of_many(number), "many")).chain([("other".into(), "other")])
        {
            self.namespace(&namespace, json!({PROJECT: project})).await?;
        }
        for (namespace, project, cpu) in [(of_many(1), "many", granted), ("other".into(), "other", 10 * granted)] {
            let spec = json!({
                "resourceRef": {"kind": "Project", "name": project},
                "limits": [{"name": CPU, "dimensionLabels": ["region"], "buckets": [{"value": cpu.to_string()}]}],
            });
            let plural = format!("namespaces/{namespace}/resourcequotagrants");
            self.make(DATUM, &plural, "ResourceQuotaGrant", "g", spec).await?;
        }
        self.claim_all(granted).await?;
        let pooled = granted / POOLED_SHARE;
        for number in 0..POOLED {
            self.namespace(&of_pool(number), json!({"pool": "many"})).await?;
        }
        let pool = json!({
            "selectors": [{"matchLabels": {"pool": "many"}}], "quota": {"hard": {"requests.cpu": format!("{pooled}m")}},
        });
        self.make(CAPSULE, "resourcepools", "ResourcePool", "many", pool).await?;
        let body = json!({
            "apiVersion": "capsule.clastix.io/v1beta2", "kind": "ResourcePoolClaim", "metadata": {"generateName": "c-"},
            "spec": {"pool": "many", "claim": {"requests.cpu": "1m"}},
        });
        let body = Bytes::from(body.to_string());
        let work = move |number: u64| {
            let path = format!("{CAPSULE}/namespaces/{}/resourcepoolclaims", of_pool(number % POOLED));
            Work { path, body: body.clone(), class: 0 }
        };
        load::run(&self.target, FILL_CONNECTIONS, Stop::Requests(pooled), 1, work).await?;
        self.connection = self.target.connect().await?;
        println!("{granted} claims in {NAMESPACES} namespaces of a project; {pooled} of a pool in {POOLED}");
        Ok(Claims { granted, waiting: options.waiting_claims, first: granted.div_ceil(NAMESPACES) })
    }

    async fn claim_all(&mut self, count: u64) -> anyhow::Result<()> {
        let body = json!({
            "apiVersion": "quota.datumapis.com/v1alpha1", "kind": "ResourceQuotaClaim", "metadata": {"generateName": "c-"},
            "spec": {
                "resourceRef": {"kind": "Instance", "name": "i"}, "dimensions": {"region": "eu"},
                "resources": [{"name": CPU, "quantity": "1"}],
            },
        });
        let body = Bytes::from(body.to_string());
        let work = move |number: u64| {
            let path = format!("{DATUM}/namespaces/{}/resourcequotaclaims", of_many(number % NAMESPACES));
            Work { path, body: body.clone(), class: 0 }
        };
        load::run(&self.target, FILL_CONNECTIONS, Stop::Requests(count), 1, work).await?;
        // It has been silent for too long, where filling takes its time.
        self.connection = self.target.connect().await?;
        Ok(())
    }

    /// Changes what counts them, in turn; the longest that anybody waited each time.
    pub(super) async fn move_claims(&mut self, claims: &Claims) -> anyhow::Result<Vec<(&'static str, Duration)>> {
        let (granted, waiting) = (claims.granted, claims.waiting);
        let mut worst = Vec::new();
        self.calm_down(0).await?;
        for (bucket, dimension, region, zone) in [
            ("claims_bucket", "claims_dimension", "us", "zone"),
            ("waiting_bucket", "waiting_dimension", "asia", "rack"),
        ] {
            let more = async |bench: &mut Bench| bench.more_buckets(granted, region).await;
            worst.push((bucket, self.during(bucket, more).await?));
            self.used_by("many", granted).await?;
            let more = async |bench: &mut Bench| bench.more_dimensions(zone).await;
            worst.push((dimension, self.during(dimension, more).await?));
            self.used_by("many", granted).await?;
            if bucket == "claims_bucket" {
                self.claim_all(waiting).await?;
                self.calm_down(waiting).await?;
            }
        }
        let moved = async |bench: &mut Bench| {
            let labels = json!({"metadata": {"labels": {PROJECT: "other"}}});
            bench.connection.merge_patch(&format!("/api/v1/namespaces/{}", of_many(0)), &labels).await
        };
        worst.push(("claims_move", self.during("claims_move", moved).await?));
        let gone = claims.first + waiting.div_ceil(NAMESPACES);
        self.used_by("other", gone).await?;
        self.used_by("many", granted.min(granted + waiting - gone)).await?;
        let more = async |bench: &mut Bench| {
            let hard = json!({"spec": {"quota": {"hard": {"requests.memory": "1Gi"}}}});
            bench.connection.merge_patch(&format!("{CAPSULE}/resourcepools/many"), &hard).await
        };
        worst.push(("claims_pool", self.during("claims_pool", more).await?));
        self.audit().await?;
        Ok(worst)
    }

    async fn more_buckets(&mut self, granted: u64, region: &str) -> anyhow::Result<()> {
        let narrow = json!({"value": "1", "selector": {"matchLabels": {"region": region}}});
        let buckets = json!([{"value": granted.to_string()}, narrow]);
        let limits = json!([{"name": CPU, "dimensionLabels": ["region"], "buckets": buckets}]);
        let grant = format!("{DATUM}/namespaces/{}/resourcequotagrants/g", of_many(1));
        self.connection.merge_patch(&grant, &json!({"spec": {"limits": limits}})).await
    }

    async fn more_dimensions(&mut self, dimension: &str) -> anyhow::Result<()> {
        let dimensions = json!({"spec": {"allowedDimensions": ["region", dimension]}});
        self.connection.merge_patch(&format!("{DATUM}/servicequotadefinitions/cpu"), &dimensions).await
    }

    /// What the ledger says is compared with a count of all objects; what a project's object says of it, with ours.
    async fn used_by(&mut self, project: &str, expected: u64) -> anyhow::Result<()> {
        self.audit().await?;
        let told = expected.to_string();
        let is_it = |one: &Value| {
            let buckets = one["status"]["resources"][0]["buckets"].as_array();
            let whole = buckets.into_iter().flatten().find(|bucket| bucket["used"] != "0");
            whole.is_some_and(|bucket| bucket["used"] == told.as_str())
        };
        self.until(project, &format!("{told} used"), is_it).await
    }

    /// Until so many wait, and the statuses of all have followed.
    async fn calm_down(&mut self, waiting: u64) -> anyhow::Result<()> {
        self.until("many", &format!("{waiting} waiting"), |one| one["status"]["claimsWaiting"] == waiting).await
    }

    async fn until(&mut self, project: &str, what: &str, is_it: impl Fn(&Value) -> bool) -> anyhow::Result<()> {
        let (path, begun) = (format!("{DATUM}/effectivequotagrants/project-{project}"), Instant::now());
        loop {
            let told = self.connection.get_json(&path).await?;
            if is_it(&told) {
                return Ok(());
            }
            ensure!(begun.elapsed() < TOLD, "project {project} does not say {what}: {}", told["status"]);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn namespace(&mut self, name: &str, labels: Value) -> anyhow::Result<()> {
        let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}});
        self.connection.create("/api/v1/namespaces", Bytes::from(body.to_string())).await
    }

    async fn make(&mut self, api: &str, plural: &str, kind: &str, name: &str, spec: Value) -> anyhow::Result<()> {
        let version = api.strip_prefix("/apis/").context("an API of no group")?;
        let object = json!({"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec});
        self.connection.create(&format!("{api}/{plural}"), Bytes::from(object.to_string())).await
    }
}

fn of_many(number: u64) -> String {
    format!("many-{number}")
}

fn of_pool(number: u64) -> String {
    format!("pooled-{number}")
}
