//! A storm of edits: definitions, grants, projects, namespaces and claims come, change and go in any order, with restarts between. After
//! each of them everything is counted again here, from the objects' own words and without a look at how the family counts.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

/// A stream of numbers from a seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) % bound
    }

    fn of<'a>(&mut self, list: &[&'a str]) -> &'a str {
        list[usize::try_from(self.below(list.len() as u64)).unwrap()]
    }
}

const RESOURCES: [&str; 3] = ["x.example.com/a", "x.example.com/b", "x.example.com/c"];
const NAMESPACES: [&str; 4] = ["n1", "n2", "p", "q"];
const PROJECT: [&str; 3] = ["p", "q", "r"];
const LOCATIONS: [&str; 3] = ["dfw", "lhr", ""];

fn selectors() -> [Value; 4] {
    [
        json!({}),
        json!({"matchLabels": {LOCATION: "dfw"}}),
        json!({"matchExpressions": [{"key": LOCATION, "operator": "In", "values": ["dfw", "lhr"]}]}),
        json!({"matchExpressions": [{"key": LOCATION, "operator": "DoesNotExist"}]}),
    ]
}

fn random_grant(dice: &mut Dice) -> Value {
    let mut limits = Vec::new();
    for name in RESOURCES {
        if dice.below(3) == 0 {
            continue;
        }
        let mut buckets = Vec::new();
        for selector in selectors() {
            if dice.below(2) == 0 {
                buckets.push((dice.below(16).to_string(), selector));
            }
        }
        if buckets.is_empty() {
            continue;
        }
        let buckets: Vec<(&str, Value)> =
            buckets.iter().map(|(value, selector)| (value.as_str(), selector.clone())).collect();
        let mut one = limit(name, &buckets);
        one["bucketPolicy"] = json!(dice.of(&["MostSpecific", "MostSpecific", "AllMatching"]));
        limits.push(one);
    }
    match dice.below(3) {
        0 => grant("Organization", "acme", &limits),
        _ => grant("Project", dice.of(&PROJECT), &limits),
    }
}

fn random_claim(dice: &mut Dice) -> Value {
    let amount = |dice: &mut Dice| (1 + dice.below(4)).to_string();
    let mut requests = vec![(dice.of(&RESOURCES), amount(dice))];
    if dice.below(3) == 0 {
        let other = dice.of(&RESOURCES);
        if other != requests[0].0 {
            requests.push((other, amount(dice)));
        }
    }
    let requests: Vec<(&str, &str)> = requests.iter().map(|(name, amount)| (*name, amount.as_str())).collect();
    let location = dice.of(&LOCATIONS);
    let mut claim = claim(&requests, at(location, ""));
    if dice.below(8) == 0 {
        claim["spec"]["grantRef"] = json!({"namespace": dice.of(&NAMESPACES), "name": format!("o{}", dice.below(6))});
    }
    claim
}

fn random_definition(dice: &mut Dice, name: &str) -> Value {
    let default = (dice.below(2) == 0).then(|| dice.below(6).to_string());
    let mut definition = definition(name, "count", default.as_deref());
    if dice.below(8) == 0 {
        definition["spec"]["allowedDimensions"] = json!([TYPE]);
    }
    definition
}

/// One thing that happens; refusals are as good.
fn happen(desk: &mut Desk, dice: &mut Dice) -> String {
    let (namespace, name) = (dice.of(&NAMESPACES), format!("o{}", dice.below(6)));
    match dice.below(23) {
        20..=22 => {
            let all: Vec<Value> =
                desk.all(&claims()).into_iter().filter(|claim| claim["status"]["phase"] == "Granted").collect();
            if all.is_empty() {
                return "nobody is granted anything".into();
            }
            let old = &all[usize::try_from(dice.below(all.len() as u64)).unwrap()];
            let mut new = old.clone();
            new.as_object_mut().unwrap().remove("status");
            new["spec"]["dimensions"] = at(dice.of(&LOCATIONS), "");
            if dice.below(3) == 0 {
                new["spec"]["resources"][0]["quantity"] = json!((1 + dice.below(6)).to_string());
            }
            let (namespace, name) =
                (old["metadata"]["namespace"].as_str().unwrap(), old["metadata"]["name"].as_str().unwrap());
            format!(
                "change {namespace}/{name} to {}: {:?}",
                new["spec"],
                desk.apply(&claims(), namespace, name, new.clone())
            )
        }
        0 => {
            let resource = dice.of(&RESOURCES);
            let object = resource.rsplit('/').next().unwrap();
            let definition = random_definition(dice, resource);
            format!("define {resource}: {:?}", desk.apply(&definitions(), "", object, definition))
        }
        1 => format!("undefine: {:?}", desk.delete(&definitions(), "", dice.of(&["a", "b", "c"]))),
        2..=5 => {
            let grant = random_grant(dice);
            format!("grant {namespace}/{name} {grant}: {:?}", desk.apply(&grants(), namespace, &name, grant.clone()))
        }
        6 => format!("ungrant {namespace}/{name}: {:?}", desk.delete(&grants(), namespace, &name)),
        7 => {
            let project = dice.of(&PROJECT);
            desk.namespace(namespace, &[("resources.datumapis.com/project", project)]);
            format!("move {namespace} to {project}")
        }
        8 => {
            desk.namespace(namespace, &[]);
            format!("free {namespace}")
        }
        9 => {
            let (project, organization) = (dice.of(&PROJECT), dice.of(&["acme", "other"]));
            let object = json!({"spec": {"organizationRef": {"name": organization}}});
            format!("{project} of {organization}: {:?}", desk.apply(&projects(), "", project, object))
        }
        10 => format!("leave: {:?}", desk.delete(&projects(), "", dice.of(&PROJECT))),
        11..=13 => format!("unclaim {namespace}/{name}: {:?}", desk.delete(&claims(), namespace, &name)),
        14 => {
            desk.restart();
            "restart".into()
        }
        _ => {
            let claim = random_claim(dice);
            format!("claim {namespace}/{name} {claim}: {:?}", desk.apply(&claims(), namespace, &name, claim.clone()))
        }
    }
}

/// What a selector says of a location, in the plainest words.
fn selects(selector: &Value, location: Option<&str>) -> bool {
    let labels = selector["matchLabels"][LOCATION].as_str().is_none_or(|wanted| location == Some(wanted));
    let expressions = selector["matchExpressions"].as_array().cloned().unwrap_or_default();
    labels
        && expressions.iter().all(|one| match one["operator"].as_str().unwrap() {
            "In" => {
                location.is_some_and(|location| one["values"].as_array().unwrap().iter().any(|value| value == location))
            }
            "DoesNotExist" => location.is_none(),
            other => panic!("{other}"),
        })
}

/// How narrow the four selectors are.
fn narrowness(selector: &Value) -> usize {
    selectors().iter().position(|one| one == selector).map_or(0, |place| [3, 0, 1, 2][place])
}

type Bucket = (Value, Option<i64>);

/// Entity, resource and selector.
type Key = (String, String, String);

/// How much, and the limit of it.
type Decided = BTreeMap<Key, (i64, Option<i64>)>;

/// Buckets of a resource for an entity, the narrowest first, and whether all decide.
fn buckets(
    grants: &[Value],
    kind: &str,
    entity: &str,
    resource: &str,
    default: Option<i64>,
) -> Option<(Vec<Bucket>, bool)> {
    let mut found: Vec<(Value, i64)> = Vec::new();
    let mut all_decide = false;
    let mut is_listed = false;
    for grant in grants
        .iter()
        .filter(|one| one["spec"]["resourceRef"]["kind"] == kind && one["spec"]["resourceRef"]["name"] == entity)
    {
        for limit in grant["spec"]["limits"].as_array().unwrap().iter().filter(|one| one["name"] == resource) {
            is_listed = true;
            all_decide |= limit["bucketPolicy"] == "AllMatching";
            for bucket in limit["buckets"].as_array().unwrap() {
                let value: i64 = bucket["value"].as_str().unwrap().parse().unwrap();
                match found.iter_mut().find(|(selector, _)| *selector == bucket["selector"]) {
                    Some((_, sum)) => *sum += value,
                    None => found.push((bucket["selector"].clone(), value)),
                }
            }
        }
    }
    if !is_listed {
        return None;
    }
    if let Some(default) = default
        && !found.iter().any(|(selector, _)| *selector == json!({}))
    {
        found.push((json!({}), default));
    }
    found.sort_by_key(|(selector, _)| narrowness(selector));
    Some((found.into_iter().map(|(selector, value)| (selector, Some(value))).collect(), all_decide))
}

/// Everything that is stored, said plainly.
struct World {
    defaults: BTreeMap<String, Option<i64>>,
    /// Resources of which may be said where they are wanted.
    located: BTreeSet<String>,
    grants: Vec<Value>,
    claims: Vec<Value>,
    project: BTreeMap<String, String>,
    organization: BTreeMap<String, String>,
}

/// Which entity's buckets a request is charged on, each with whether it decides.
struct Charged {
    entity: String,
    buckets: Vec<(Value, Option<i64>, bool)>,
}

impl World {
    fn of(desk: &Desk) -> World {
        let name = |object: &Value| object["metadata"]["name"].as_str().unwrap().to_owned();
        let mut world = World {
            defaults: BTreeMap::new(),
            located: BTreeSet::new(),
            grants: desk.all(&grants()),
            claims: desk.all(&claims()),
            project: BTreeMap::new(),
            organization: BTreeMap::new(),
        };
        for one in desk.all(&definitions()) {
            let default = one["spec"]["defaultLimit"]["value"].as_str().map(|value| value.parse().unwrap());
            let resource = one["spec"]["resourceName"].as_str().unwrap().to_owned();
            if one["spec"]["allowedDimensions"].as_array().unwrap().contains(&json!(LOCATION)) {
                world.located.insert(resource.clone());
            }
            world.defaults.insert(resource, default);
        }
        for one in desk.all(&resource("namespaces")) {
            let label = one["metadata"]["labels"]["resources.datumapis.com/project"].as_str();
            world.project.insert(name(&one), label.map_or_else(|| name(&one), str::to_owned));
        }
        for one in desk.all(&projects()) {
            let organization = one["spec"]["organizationRef"]["name"].as_str().unwrap().to_owned();
            world.organization.insert(name(&one), organization);
        }
        world
    }

    /// Where a request is counted, if anywhere, and whether it may be granted.
    fn charged(&self, claim: &Value, request: &Value) -> (Option<Charged>, bool) {
        let name = request["name"].as_str().unwrap();
        let Some(default) = self.defaults.get(name).copied() else { return (None, false) };
        let may_say_where = self.located.contains(name);
        let project = &self.project[claim["metadata"]["namespace"].as_str().unwrap()];
        let organization = self.organization.get(project);
        let own =
            buckets(&self.grants, "Project", project, name, default).map(|found| (format!("project-{project}"), found));
        let theirs = organization.and_then(|organization| {
            let found = buckets(&self.grants, "Organization", organization, name, default)?;
            Some((format!("organization-{organization}"), found))
        });
        // All grants here speak of locations, and mean nothing where those are not allowed.
        let is_sound = may_say_where || (own.is_none() && theirs.is_none());
        let fallback = || Some((format!("project-{project}"), (vec![(json!({}), Some(default?))], false)));
        let of = |kind: &str, entity: Option<&String>| {
            let reference = &claim["spec"]["grantRef"];
            self.grants.iter().any(|grant| {
                let of = &grant["spec"]["resourceRef"];
                let is_named = ["namespace", "name"].iter().all(|field| grant["metadata"][*field] == reference[*field]);
                is_named && of["kind"] == kind && entity.is_some_and(|entity| of["name"] == **entity)
            })
        };
        let plain = || own.clone().or_else(|| theirs.clone()).or_else(fallback);
        let (level, is_found) = match () {
            () if claim["spec"]["grantRef"].is_null() => (plain(), true),
            () if of("Project", Some(project)) && own.is_some() => (own.clone(), true),
            () if of("Organization", organization) && theirs.is_some() => (theirs.clone(), true),
            () => (plain(), false),
        };
        let Some((entity, (found, all_decide))) = level.filter(|_| is_sound) else { return (None, false) };
        let location = claim["spec"]["dimensions"][LOCATION].as_str();
        let matching = found.into_iter().filter(|(selector, _)| selects(selector, location));
        let buckets: Vec<_> = matching
            .enumerate()
            .map(|(place, (selector, limit))| (selector, limit, place == 0 || all_decide))
            .collect();
        let is_covered = is_found && !buckets.is_empty() && (may_say_where || location.is_none());
        ((!buckets.is_empty()).then_some(Charged { entity, buckets }), is_covered)
    }

    /// What is used of every bucket, by entity, resource and selector.
    fn used(&self) -> BTreeMap<Key, i64> {
        let mut used = BTreeMap::new();
        for claim in self.claims.iter().filter(|claim| claim["status"]["phase"] == "Granted") {
            for request in claim["spec"]["resources"].as_array().unwrap() {
                let amount: i64 = request["quantity"].as_str().unwrap().parse().unwrap();
                let (Some(charged), _) = self.charged(claim, request) else { continue };
                for (selector, ..) in charged.buckets {
                    let key =
                        (charged.entity.clone(), request["name"].as_str().unwrap().to_owned(), selector.to_string());
                    *used.entry(key).or_default() += amount;
                }
            }
        }
        used
    }

    /// How much of a claim goes along on buckets that do not decide.
    fn along(&self, claim: &Value) -> BTreeMap<Key, i64> {
        let mut along = BTreeMap::new();
        for request in claim["spec"]["resources"].as_array().unwrap() {
            let amount: i64 = request["quantity"].as_str().unwrap().parse().unwrap();
            let Some(Charged { entity, buckets }) = self.charged(claim, request).0 else { continue };
            for (selector, ..) in buckets.into_iter().filter(|(.., decides)| !decides) {
                let key = (entity.clone(), request["name"].as_str().unwrap().to_owned(), selector.to_string());
                *along.entry(key).or_default() += amount;
            }
        }
        along
    }

    /// How much of a claim each bucket decides about, with its limit; and how much of it nobody covers.
    fn decided(&self, claim: &Value) -> (Decided, BTreeMap<String, i64>) {
        let (mut decided, mut uncovered) = (Decided::new(), BTreeMap::new());
        for request in claim["spec"]["resources"].as_array().unwrap() {
            let (name, amount) = (request["name"].as_str().unwrap(), request["quantity"].as_str().unwrap());
            let amount: i64 = amount.parse().unwrap();
            let (charged, is_covered) = self.charged(claim, request);
            if !is_covered {
                *uncovered.entry(format!("{name} {}", claim["spec"]["dimensions"])).or_default() += amount;
            }
            let Some(Charged { entity, buckets }) = charged else { continue };
            for (selector, limit, _) in buckets.into_iter().filter(|(.., decides)| *decides) {
                let key = (entity.clone(), name.to_owned(), selector.to_string());
                decided.entry(key).or_insert((0, limit)).0 += amount;
            }
        }
        (decided, uncovered)
    }

    /// Whether all of a claim fits now.
    fn fits(&self, claim: &Value, used: &BTreeMap<Key, i64>) -> bool {
        let mut more: BTreeMap<Key, (i64, Option<i64>)> = BTreeMap::new();
        for request in claim["spec"]["resources"].as_array().unwrap() {
            let amount: i64 = request["quantity"].as_str().unwrap().parse().unwrap();
            let (Some(charged), true) = self.charged(claim, request) else { return false };
            for (selector, limit, decides) in charged.buckets {
                let key = (charged.entity.clone(), request["name"].as_str().unwrap().to_owned(), selector.to_string());
                let entry = more.entry(key).or_insert((0, None));
                entry.0 += amount;
                if decides {
                    entry.1 = limit;
                }
            }
        }
        more.iter()
            .all(|(key, (amount, limit))| limit.is_none_or(|limit| used.get(key).unwrap_or(&0) + amount <= limit))
    }
}

fn granted(world: &World) -> BTreeSet<String> {
    let granted = world.claims.iter().filter(|claim| claim["status"]["phase"] == "Granted");
    granted.map(|claim| claim["metadata"]["uid"].as_str().unwrap().to_owned()).collect()
}

fn storm(seed: u64, steps: usize) -> (usize, usize, usize) {
    let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut desk = Desk::new();
    NAMESPACES.iter().for_each(|namespace| desk.namespace(namespace, &[]));
    let (mut before, mut earlier) = (BTreeSet::new(), Vec::new());
    let (mut grants_made, mut denials, mut changes) = (0, 0, 0);
    let mut history = Vec::new();
    for step in 0..steps {
        history.push(happen(&mut desk, &mut dice));
        let world = World::of(&desk);
        let used = world.used();
        let now = granted(&world);
        let told = || format!("seed {seed} step {step}\n{}", history[history.len().saturating_sub(12)..].join("\n"));
        // Nobody lost what was granted, but by going.
        let alive: BTreeSet<String> =
            world.claims.iter().map(|claim| claim["metadata"]["uid"].as_str().unwrap().to_owned()).collect();
        let lost: Vec<&String> = before.intersection(&alive).filter(|uid| !now.contains(*uid)).collect();
        let lost: Vec<&Value> =
            world.claims.iter().filter(|one| lost.iter().any(|uid| one["metadata"]["uid"] == **uid)).collect();
        assert!(lost.is_empty(), "{lost:?} {}", told());
        // What is shown is what the granted add up to.
        for one in desk.all(&effective()) {
            let entity = one["metadata"]["name"].as_str().unwrap();
            for resource in one["status"]["resources"].as_array().into_iter().flatten() {
                for bucket in resource["buckets"].as_array().unwrap() {
                    let name = resource["name"].as_str().unwrap().to_owned();
                    let key = (entity.to_owned(), name, bucket["selector"].to_string());
                    let expected = used.get(&key).copied().unwrap_or_default();
                    assert_eq!(bucket["used"], expected.to_string(), "{key:?} {}", told());
                }
            }
        }
        // Of several that come in one after the other, those with a narrower bucket may lift a wider one over what it had left.
        let mut lifted: BTreeMap<Key, i64> = BTreeMap::new();
        for claim in &world.claims {
            let uid = claim["metadata"]["uid"].as_str().unwrap();
            if now.contains(uid) && !before.contains(uid) {
                world.along(claim).into_iter().for_each(|(key, amount)| *lifted.entry(key).or_default() += amount);
            }
        }
        let fits = |key: &Key, limit: Option<i64>| {
            limit.is_none_or(|limit| used[key] - lifted.get(key).copied().unwrap_or_default() <= limit)
        };
        for claim in &world.claims {
            let uid = claim["metadata"]["uid"].as_str().unwrap();
            let is_granted = now.contains(uid);
            let known = earlier.iter().find(|one: &&Value| one["metadata"]["uid"] == uid);
            if let Some(known) =
                known.filter(|known| is_granted && before.contains(uid) && known["spec"] != claim["spec"])
            {
                // It was granted and became another: what it asks anew has to be there.
                changes += 1;
                let ((had, lacked), (has, lacks)) = (world.decided(known), world.decided(claim));
                for (key, (amount, limit)) in has {
                    let grew = amount > had.get(&key).map_or(0, |(amount, _)| *amount);
                    assert!(
                        !grew || limit.is_none_or(|limit| used[&key] <= limit),
                        "{key:?} {known} {claim} {}",
                        told()
                    );
                }
                let grew = lacks.iter().find(|(key, amount)| *amount > lacked.get(*key).unwrap_or(&0));
                assert!(grew.is_none(), "{grew:?} {known} {claim} {}", told());
            }
            if !is_granted {
                denials += 1;
                assert!(!world.fits(claim, &used), "{claim} waits although it fits {}", told());
            } else if !before.contains(uid) {
                grants_made += 1;
                // It came in now: no bucket that had a say is over its limit by it.
                for request in claim["spec"]["resources"].as_array().unwrap() {
                    let (Some(charged), true) = world.charged(claim, request) else { panic!("{claim} {}", told()) };
                    for (selector, limit, decides) in charged.buckets {
                        let key = (
                            charged.entity.clone(),
                            request["name"].as_str().unwrap().to_owned(),
                            selector.to_string(),
                        );
                        assert!(!decides || fits(&key, limit), "{key:?} {limit:?} {claim} {}", told());
                    }
                }
            }
        }
        (before, earlier) = (now, world.claims);
    }
    (grants_made, denials, changes)
}

#[test]
fn whatever_is_edited_everything_adds_up() {
    let (mut granted, mut denied, mut changed) = (0, 0, 0);
    for seed in 1..=50 {
        let (more_granted, more_denied, more_changed) = storm(seed, 120);
        granted += more_granted;
        denied += more_denied;
        changed += more_changed;
    }
    let all = (granted, denied, changed);
    assert!(granted > 300 && denied > 5000 && changed > 100, "{all:?}: the storm has to do all of it");
}
