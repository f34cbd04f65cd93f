//! Organizations on a platform: tiers and overrides limit what each may have in seventeen dimensions; apps, environments,
//! instances, routes, volumes and sessions take it.
//!
//! ```text
//!   command ─▶ commands: what is written, which events ─▶ one step: objects, charges, events, or nothing
//!   Tier, Org.spec.overrides ─▶ limits::effective ─▶ accounts of the Org     Env, Instance, Route … ─▶ usage ─▶ charges
//! ```
//!
//! Start reading at [`limits`] (what is allowed), [`usage`] (what counts) and [`groups`] (what is promised and not allocated
//! yet). [`commands`] turns a request into writes and events and is as pure as the rest; the server's REST API and the tests
//! carry out what it says. [`guard`] keeps references whole and lets only the service write: every change is an event.
//!
//! What an Org's accounts count: a dimension each, under its name, with what is reserved; and for instances, memory and vCPUs a
//! second one, `counted.…`, of what is allocated. A command is refused by the first, an allocation by the second.

pub mod bindings;
pub mod commands;
mod definitions;
pub mod dimensions;
pub mod footprint;
pub mod groups;
pub mod guard;
pub mod ipv4;
pub mod limits;
pub mod metrics;
pub mod moment;
pub mod names;
pub mod numbers;
pub mod scheduler;
pub mod status;
pub mod tiers;
pub mod usage;
pub mod words;

use std::sync::Arc;

use futures::future::BoxFuture;
use kinds::field_error::FieldError;
use kinds::fields::{given, text};
use rules::{Account, Compiled, GroupResource, Reach, Rule};
use serde_json::{Value, json};

pub use definitions::fields_of;
pub use dimensions::Dimension;
use limits::{Cap, Effective, Tier, effective};
use names::*;

use crate::metrics::{Samples, Survey};
use crate::{
    Admission, Affected, Balances, Cause, Change, Denial, Family, Manifest, Must, Operation, Outbox, Parsed, Place,
    Plural, PolicyObject, Projected, Refusal, Remarks, Uncompiled, View, Words, World,
};

/// The family.
#[derive(Default)]
pub struct Orgs {
    settings: Settings,
    counts: Arc<scheduler::counts::Counts>,
}

impl Orgs {
    pub fn new(settings: Settings) -> Orgs {
        Orgs { settings, ..Orgs::default() }
    }
}

/// What an operator may set about organizations.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The IPv4 addresses that the platform has; as many as are asked for, where nobody says.
    pub ipv4_addresses: Option<u64>,
}

static MANIFEST: Manifest = Manifest {
    name: "orgs",
    policies: &[ORGS, VOLUMES],
    shaped: &[ENVS, ROUTES, VOLUMES, HOSTNAMES, LOG_STREAMS, IDEMPOTENCY_KEYS],
    watched: &[TIERS, ORGS, INSTANCES, ROUTES, LOG_STREAMS, IDEMPOTENCY_KEYS],
    meaning: &[TIERS],
    definitions: definitions::definitions,
    checked: guard::CHECKED,
    metrics: metrics::ALL,
    ..Manifest::EMPTY
};

/// What of an organization is asked for over all of them.
pub struct OrgFacts {
    pub name: String,
    pub tier: String,
    pub reserves: bool,
}

impl OrgFacts {
    /// Whether an organization reserves what it accepts; one that is not there does.
    pub fn reserves(org: &str, world: &dyn World) -> bool {
        let facts = world.parsed_one(&ORGS.resource(), org, org, &parse_org);
        facts.and_then(|facts| facts.downcast::<OrgFacts>().ok()).is_none_or(|facts| facts.reserves)
    }
}

pub fn parse_org(org: &Value) -> Parsed {
    Arc::new(OrgFacts {
        name: text(org, &["metadata", "name"]).into(),
        tier: text(org, &["spec", "tier"]).into(),
        reserves: groups::reserves(org),
    })
}

/// The limits in force for a stored organization, or for one as it would be.
pub fn limits_of(org: &Value, world: &dyn World, now_ms: i64) -> Result<Effective, Vec<FieldError>> {
    let name = text(org, &["spec", "tier"]);
    let tier = world.get(&TIERS.resource(), "", name).ok_or_else(|| {
        vec![FieldError::invalid("spec.tier", name, "there is no such tier: its limits are not known")]
    })?;
    let tier = Tier::read(&tier["spec"]).map_err(|errors| {
        let why = format!("the tier cannot be read: {}", kinds::field_error::join(&errors));
        vec![FieldError::invalid("spec.tier", name, why)]
    })?;
    effective(org, &tier, now_ms)
}

fn account(name: &str, cap: Cap) -> Account {
    Account { resource: name.into(), limit: cap.limit(), limit_text: cap.text().into(), discounts: false }
}

fn compile_org(policy: &PolicyObject<'_>, world: &dyn World) -> Result<Compiled, Vec<FieldError>> {
    let limits = limits_of(policy.object, world, world.now_ms())?;
    let mut accounts: Vec<Account> =
        Dimension::ALL.into_iter().map(|dimension| account(dimension.name(), limits.cap(dimension))).collect();
    // Those are counted for each volume apart.
    accounts[Dimension::SnapshotsPerVolume.at()] = account(Dimension::SnapshotsPerVolume.name(), Cap::NotEnforced);
    for dimension in Dimension::COMPUTE {
        accounts.push(account(dimensions::counted_name(dimension), limits.cap(dimension)));
    }
    let bounds = [
        (usage::RECORDS, usage::RECORDS_MAX),
        (usage::KEYS, usage::KEYS_MAX),
        (usage::RECORD_BYTES, usage::RECORD_BYTES_MAX),
    ];
    for (name, most) in bounds {
        accounts.push(account(name, Cap::Most(quantity::Amount::from_units(most))));
    }
    let resources = usage::COUNTED.iter().map(Plural::resource).collect();
    let reach = Reach::Namespace(policy.namespace.into());
    Ok(Compiled {
        accounts,
        rules: vec![Rule { resources, reach, measure: Arc::new(usage::Usage) }],
        // What is charged follows from the objects alone.
        fingerprint: vec![2],
        until_ms: limits.until_ms,
    })
}

fn compile_volume(policy: &PolicyObject<'_>) -> Result<Compiled, Vec<FieldError>> {
    let cap = match given(policy.object, &["spec", "snapshots_max"]) {
        None => Cap::NotEnforced,
        Some(value) => limits::read_cap(Dimension::SnapshotsPerVolume, value)
            .map_err(|why| vec![FieldError::invalid("spec.snapshots_max", value.clone(), why)])?,
    };
    let measure = Arc::new(usage::SnapshotsOf(policy.name.into()));
    Ok(Compiled {
        accounts: vec![account(Dimension::SnapshotsPerVolume.name(), cap)],
        rules: vec![Rule {
            resources: vec![SNAPSHOTS.resource()],
            reach: Reach::Namespace(policy.namespace.into()),
            measure,
        }],
        fingerprint: vec![1],
        until_ms: None,
    })
}

/// A volume has its organization's limit for snapshots.
fn shape_volume(object: &PolicyObject<'_>, view: &dyn View) -> Must {
    if object.object.is_null() {
        return Must::AsItIs;
    }
    let org = view.get(&ORGS.resource(), object.namespace, object.namespace);
    let limits = org.and_then(|org| limits_of(&org, view, view.now_ms()).ok());
    // An organization whose limits cannot be told keeps the volumes it has as they are.
    let Some(limits) = limits else { return Must::AsItIs };
    let most = match limits.cap(Dimension::SnapshotsPerVolume) {
        Cap::NotEnforced => Value::Null,
        Cap::Unlimited => json!("unlimited"),
        cap => cap.shown(),
    };
    let mut volume = object.object.clone();
    if let Some(Value::Object(spec)) = volume.get_mut("spec") {
        spec.insert("snapshots_max".into(), most);
        // When an override ends, another limit may be in force.
        match limits.until_ms {
            Some(until_ms) => drop(spec.insert("snapshots_expires_at_ms".into(), json!(until_ms))),
            None => drop(spec.remove("snapshots_expires_at_ms")),
        }
    }
    Must::differ(object.object, volume)
}

/// What no event tells of goes by itself when it counts for nothing any more.
fn shape_passing(object: &PolicyObject<'_>, view: &dyn View) -> Must {
    if has_passed(object.object, view) { Must::Gone } else { Must::AsItIs }
}

fn has_passed(object: &Value, view: &dyn View) -> bool {
    let spec = &object["spec"];
    view.now_ms() >= given(spec, &["expires_at_ms"]).and_then(Value::as_i64).unwrap_or(i64::MAX)
}

/// A hostname is somebody's as long as the route is there.
fn shape_hostname(object: &PolicyObject<'_>, view: &dyn View) -> Must {
    let spec = &object.object["spec"];
    let route = view.get(&ROUTES.resource(), text(spec, &["org"]), text(spec, &["route"]));
    let has = route.is_some_and(|route| text(&route, &["spec", "hostname"]) == object.name);
    if has || object.object.is_null() { Must::AsItIs } else { Must::Gone }
}

fn everything_of(plural: Plural, namespace: &str, view: &dyn View) -> Vec<Affected> {
    let names = view.list(&plural.resource(), namespace);
    let place = |one: &Arc<Value>| Place::new(plural.resource(), namespace, text(one, &["metadata", "name"]));
    names.iter().map(place).map(Affected::Object).collect()
}

/// The same of volumes, of which there may be many: nothing of them is kept in mind but their names.
fn volumes_of(namespace: &str, view: &dyn View) -> Vec<Affected> {
    let name = |volume: &Value| -> Parsed { Arc::new(text(volume, &["metadata", "name"]).to_owned()) };
    let names = view.parsed(&VOLUMES.resource(), namespace, &name);
    let names = names.iter().filter_map(|one| one.downcast_ref::<String>());
    names.map(|name| Affected::Object(Place::new(VOLUMES.resource(), namespace, name))).collect()
}

fn written(change: &Change<'_>, view: &dyn View) -> Vec<Affected> {
    let is = |plural: Plural| plural.is(change.resource);
    if is(INSTANCES) {
        // The group it is of, and the one it was of.
        let specs = [Some(change.old), change.new].into_iter().flatten().map(|object| &object["spec"]);
        let envs = specs.map(|spec| env_name(text(spec, &["app"]), text(spec, &["env"])));
        let mut envs: Vec<String> = envs.filter(|name| name.len() > 1).collect();
        envs.dedup();
        let places = envs.iter().map(|name| Place::new(ENVS.resource(), change.namespace, name));
        return places.map(Affected::Object).collect();
    }
    if is(ROUTES) {
        let mut places = bindings::concerned(change, view);
        let hostname = text(change.old, &["spec", "hostname"]);
        if change.new.is_none() && !hostname.is_empty() {
            places.push(Place::new(HOSTNAMES.resource(), "", hostname));
        }
        return places.into_iter().map(Affected::Object).collect();
    }
    if is(ORGS) {
        let mut all = volumes_of(change.namespace, view);
        if change.new.is_some_and(|new| groups::reserves(new) != groups::reserves(change.old)) {
            all.extend(everything_of(ENVS, change.namespace, view));
        }
        return all;
    }
    if is(TIERS) {
        let snapshots = |tier: &Value| given(tier, &["spec", "limits", Dimension::SnapshotsPerVolume.name()]).cloned();
        if change.new.is_some_and(|new| !change.old.is_null() && snapshots(change.old) == snapshots(new)) {
            return Vec::new();
        }
        let orgs = view.parsed_everywhere(&ORGS.resource(), &parse_org);
        let orgs = orgs.iter().filter_map(|one| one.downcast_ref::<OrgFacts>());
        let having = orgs.filter(|org| org.tier == change.name);
        return having.flat_map(|org| volumes_of(&org.name, view)).collect();
    }
    // One of those that pass.
    match change.new {
        Some(new) if has_passed(new, view) => {
            vec![Affected::Object(Place::new(change.resource.clone(), change.namespace, change.name))]
        }
        _ => Vec::new(),
    }
}

impl Family for Orgs {
    fn manifest(&self) -> &Manifest {
        &MANIFEST
    }

    fn compile(&self, policy: &PolicyObject<'_>, world: &dyn World) -> Result<Compiled, Uncompiled> {
        let reach = || Reach::Namespace(policy.namespace.into());
        let (compiled, looked_at) = match ORGS.is(policy.resource) {
            true => (compile_org(policy, world), usage::COUNTED),
            false => (compile_volume(policy), &[SNAPSHOTS][..]),
        };
        compiled.map_err(|errors| {
            let would_look_at = looked_at.iter().map(|plural| (plural.resource(), reach())).collect();
            Uncompiled { errors, would_look_at }
        })
    }

    /// A tier means something to the organizations that have it, and to no volume: those say themselves what is theirs.
    fn may_mean_otherwise(&self, change: &Change<'_>, policy: &str) -> bool {
        policy.contains("\"tier\"") && policy.contains(&json!(change.name).to_string())
    }

    fn affected(&self, cause: &Cause<'_>, view: &dyn View) -> Vec<Affected> {
        match cause {
            Cause::Written(change) => written(change, view),
            Cause::Moved { .. } | Cause::Refused(_) | Cause::Shown { .. } => Vec::new(),
        }
    }

    fn must_be(&self, object: &PolicyObject<'_>, view: &dyn View) -> Result<Must, Refusal> {
        let is = |plural: Plural| plural.is(object.resource);
        if is(ENVS) {
            return groups::env(object, view);
        }
        Ok(match () {
            () if is(ROUTES) => bindings::route(object, view),
            () if is(VOLUMES) => shape_volume(object, view),
            () if is(HOSTNAMES) => shape_hostname(object, view),
            () if object.object.is_null() => Must::AsItIs,
            () => shape_passing(object, view),
        })
    }

    fn check(&self, change: &Change<'_>, view: &dyn View) -> Result<(), Refusal> {
        guard::check(change, view)?;
        ipv4::check(self.settings.ipv4_addresses, change, view)
    }

    fn admit(&self, request: &mut Admission<'_>, _world: &dyn World) -> Result<(), String> {
        guard::admit(request)
    }

    fn validate(&self, request: &Admission<'_>, _world: &dyn World) -> Remarks {
        if !TIERS.is(request.resource) || request.operation == Operation::Status {
            return Remarks::default();
        }
        Tier::read(&request.object["spec"]).err().unwrap_or_default().into()
    }

    fn project(&self, resource: &GroupResource, object: &mut Value, balances: &dyn Balances) -> Projected {
        if ORGS.is(resource) { status::project(resource, object, balances) } else { Projected::Unchanged }
    }

    fn controllers(&self, client: kube::Client, _outbox: Arc<dyn Outbox>) -> Vec<BoxFuture<'static, ()>> {
        let thresholds = scheduler::thresholds::run(client.clone());
        vec![Box::pin(scheduler::run::run(client, Arc::clone(&self.counts))), Box::pin(thresholds)]
    }

    fn sample(&self, survey: &dyn Survey, out: &mut Samples) {
        metrics::sample(survey, out);
        self.counts.sample(out);
        ipv4::sample(self.settings.ipv4_addresses, survey, out);
    }

    fn words(&self, denial: &Denial) -> Words {
        words::words(denial).into()
    }
}
