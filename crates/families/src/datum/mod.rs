//! Datum's quotas (`quota.datumapis.com/v1alpha1`): services define what can be limited, administrators grant it to projects and
//! organizations, workloads claim it, and a meter may tell what is really used.
//!
//! Start reading at [`effective`]: all grants of a project, or of an organization, come to one EffectiveQuotaGrant, which is the
//! policy. [`table`] says which of its accounts a request is charged on, [`charging`] makes accounts and a rule of it, so that a claim
//! is a subject that waits in line, oldest first, until all of it fits. [`catalog`] are the definitions, [`units`] what amounts mean,
//! [`limits`] and [`selector`] what a grant says, [`entity`] which namespaces are whose, [`claim`] what is asked for, [`growth`]
//! what is asked for anew, [`claim_status`] and [`grant_status`] what is told, [`metered`] what meters take off limits, [`records`] what is written down.
//!
//! What is decided once:
//!
//! - **Which grant**: the one a claim names, else those of its project, else those of the project's organization, else the
//!   definition's default; the first that lists the resource, and no other. Several of one entity are added up by selector.
//! - **Which bucket**: the narrowest that matches decides, unless the limit says `AllMatching`. Every bucket that matches counts.
//! - **Granted is granted**: grants that shrink, move or go, and definitions that go, take nothing from anybody. A claim that
//!   grows has to fit at once, or stays as it was.
//! - **What cannot be counted is not granted**: a resource without definition, a bucket that no longer makes sense, a meter
//!   that does not answer.

mod catalog;
mod charging;
mod claim;
mod claim_policy;
mod claim_status;
mod company;
mod definitions;
mod effective;
mod entity;
mod grant_policy;
mod grant_status;
mod growth;
mod limits;
pub mod loops;
mod made;
mod metered;
mod metrics;
mod policy_definitions;
mod records;
mod schemas;
mod selector;
mod table;
mod template;
mod trigger;
mod units;
mod words;

use std::sync::Arc;

use futures::future::BoxFuture;
use kinds::fields::{at, given, items, text};
use rules::{Compiled, GroupResource};
use serde_json::Value;

use crate::kubernetes::hierarchy::SUBNAMESPACE_OF;
use crate::metrics::{Samples, Survey};
use crate::{
    Admission, Affected, Allowances, Balances, Cause, Change, Company, Denial, Family, Manifest, Must, Noted,
    Operation, Outbox, Parsed, Place, Plural, PolicyObject, Projected, Record, Refusal, Remarks, Right, Uncompiled,
    View, Words, World, Writing,
};

pub const GROUP: &str = "quota.datumapis.com";
pub const RESOURCES_GROUP: &str = "resources.datumapis.com";
pub const VERSION: &str = "v1alpha1";
/// Dimensions that every request has: whose it is.
pub const PROJECT_KEY: &str = "resources.datumapis.com/project";
pub const ORGANIZATION_KEY: &str = "resources.datumapis.com/organization";

const DEFINITIONS: Plural = Plural(GROUP, "servicequotadefinitions");
const CLAIMS: Plural = Plural(GROUP, "resourcequotaclaims");
const GRANTS: Plural = Plural(GROUP, "resourcequotagrants");
const EFFECTIVE: Plural = Plural(GROUP, "effectivequotagrants");
const CLAIM_POLICIES: Plural = Plural(GROUP, "claimcreationpolicies");
const GRANT_POLICIES: Plural = Plural(GROUP, "grantcreationpolicies");
const PLANS: Plural = Plural(GROUP, "quotaplans");
const NAMESPACES: Plural = Plural("", "namespaces");
const PROJECTS: Plural = Plural(RESOURCES_GROUP, "projects");
const ORGANIZATIONS: Plural = Plural(RESOURCES_GROUP, "organizations");

/// What an operator may set about this family.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The loops that run, by name.
    pub loops: Vec<&'static str>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { loops: loops::NAMES.to_vec() }
    }
}

/// The family.
pub struct Datum {
    settings: Settings,
    decisions: metrics::Decisions,
    denials: Allowances,
}

impl Datum {
    pub fn new(settings: Settings) -> Self {
        Self { settings, decisions: metrics::Decisions::default(), denials: records::allowances() }
    }
}

impl Default for Datum {
    fn default() -> Self {
        Self::new(Settings::default())
    }
}

static MANIFEST: Manifest = Manifest {
    name: "datum",
    definitions: definitions::definitions,
    policies: &[EFFECTIVE],
    made: &[EFFECTIVE],
    projected: &[CLAIMS, GRANTS, DEFINITIONS],
    shaped: &[EFFECTIVE, CLAIMS, GRANTS, NAMESPACES],
    watched: &[NAMESPACES, GRANTS, PROJECTS, ORGANIZATIONS, GRANT_POLICIES, PLANS, DEFINITIONS, EFFECTIVE, CLAIMS],
    making: &[GRANT_POLICIES, PLANS, NAMESPACES],
    limiting: &[GRANTS],
    accompanies: true,
    meaning: &[DEFINITIONS],
    metrics: metrics::ALL,
    checked: &[ORGANIZATIONS, CLAIMS, NAMESPACES],
    recorded: &[CLAIMS],
    records_refusals: true,
    ..Manifest::EMPTY
};

impl Family for Datum {
    fn manifest(&self) -> &Manifest {
        &MANIFEST
    }

    fn compile(&self, policy: &PolicyObject<'_>, world: &dyn World) -> Result<Compiled, Uncompiled> {
        Ok(charging::compile(policy, world))
    }

    fn affected(&self, cause: &Cause<'_>, view: &dyn View) -> Vec<Affected> {
        match cause {
            Cause::Written(change) if CLAIMS.is(change.resource) => {
                // Only one that is on its way out, or waits for what is no more, has to be anything else.
                let leaves = change.new.is_some_and(|claim| claim::leaves(claim) || company::outlived(claim, view));
                leaves.then(|| Affected::Object(place_of(change))).into_iter().collect()
            }
            Cause::Written(change) => {
                let concerned =
                    effective::concerned(change, view).into_iter().chain(grant_policy::concerned(change, view));
                let mut affected: Vec<Affected> = concerned.map(Affected::Object).collect();
                if NAMESPACES.is(change.resource) {
                    affected.extend(moved(change, view));
                }
                if DEFINITIONS.is(change.resource) {
                    affected.extend(grants_that_name(change, view));
                    affected.extend(all_waiting(view));
                }
                if EFFECTIVE.is(change.resource) {
                    affected.extend(waiting(change, view));
                    affected.extend(change.new.into_iter().flat_map(grants_of));
                }
                affected
            }
            // What is used of an entity is told by its grants.
            Cause::Shown { resource, object } if EFFECTIVE.is(resource) => grants_of(object),
            Cause::Shown { .. } | Cause::Moved { .. } | Cause::Refused(_) => Vec::new(),
        }
    }

    /// What others write concerns no claim that no policy asks for.
    fn may_concern(&self, resource: &GroupResource, _namespace: &str, world: &dyn World) -> bool {
        crate::holds(MANIFEST.watched, resource) || claim_policy::looks_at(resource, world)
    }

    fn limited_from(&self, namespace: &str, world: &dyn World) -> Vec<Arc<str>> {
        grant_policy::homes_of(namespace, world)
    }

    fn must_be(&self, object: &PolicyObject<'_>, view: &dyn View) -> Result<Must, Refusal> {
        if EFFECTIVE.is(object.resource) {
            return Ok(effective::must_be(object.name, object.object, view));
        }
        if GRANTS.is(object.resource) {
            return Ok(grant_policy::must_be(object.namespace, object.name, object.object, view));
        }
        if NAMESPACES.is(object.resource) {
            return Ok(grant_policy::namespace(object.name, object.object, view));
        }
        Ok(match CLAIMS.is(object.resource) && !object.object.is_null() {
            true => claim::must_be(object, view),
            false => Must::AsItIs,
        })
    }

    fn check(&self, change: &Change<'_>, view: &dyn View) -> Result<(), Refusal> {
        match change.resource {
            resource if DEFINITIONS.is(resource) => catalog::check(change, view),
            resource if CLAIMS.is(resource) => {
                company::check(change, view)?;
                let Some(new) = change.new else { return Ok(()) };
                growth::check(change.old, new, change.namespace, view).map_err(Refusal::forbidden)
            }
            resource if EFFECTIVE.is(resource) => effective::check(change, view),
            resource if ORGANIZATIONS.is(resource) => grant_policy::check_home(change, view),
            resource if NAMESPACES.is(resource) => check_author(change, view),
            _ => Ok(()),
        }
    }

    fn accompany(&self, writing: &Writing<'_>, view: &dyn View) -> Result<Company, Refusal> {
        company::company(writing, view)
    }

    fn rights(&self, change: &Change<'_>, world: &dyn World) -> Vec<Right> {
        rights(change, world)
    }

    fn admit(&self, request: &mut Admission<'_>, world: &dyn World) -> Result<(), String> {
        if CLAIMS.is(request.resource) && request.operation == Operation::Create {
            claim::admit(request);
            company::own(request, world);
        }
        Ok(())
    }

    fn validate(&self, request: &Admission<'_>, world: &dyn World) -> Remarks {
        if request.operation == Operation::Status || !request.subresource.is_empty() {
            return Remarks::default();
        }
        // What is stored already may be written again, and leave.
        let leaves = given(request.object, &["metadata", "deletionTimestamp"]).is_some();
        let is_same = request.old.is_some_and(|old| old.get("spec") == request.object.get("spec"));
        if leaves || is_same {
            return Remarks::default();
        }
        let mut errors = match request.resource {
            resource if DEFINITIONS.is(resource) => catalog::validate(request.object, request.old),
            resource if CLAIMS.is(resource) => claim::validate(request.object),
            resource if GRANTS.is(resource) => grant_errors(request.object),
            resource if CLAIM_POLICIES.is(resource) => claim_policy::validate(request.object, world),
            resource if GRANT_POLICIES.is(resource) => {
                grant_policy::GrantPolicy::read(request.object).err().unwrap_or_default()
            }
            resource if PLANS.is(resource) => grant_policy::plan_errors(request.object),
            resource if PROJECTS.is(resource) && request.old.is_none() => {
                grant_policy::name_errors(&entity::Entity::project(request.name))
            }
            resource if ORGANIZATIONS.is(resource) && request.old.is_none() => {
                grant_policy::name_errors(&entity::Entity::organization(request.name))
            }
            _ => Vec::new(),
        };
        let makes = [CLAIM_POLICIES, GRANT_POLICIES, PLANS].iter().any(|one| one.is(request.resource));
        if makes && request.old.is_none() {
            errors.extend(made::maker_errors(request.name));
        }
        errors.into()
    }

    fn project(&self, resource: &GroupResource, object: &mut Value, balances: &dyn Balances) -> Projected {
        match resource {
            _ if CLAIMS.is(resource) => claim_status::project(object, balances),
            _ if GRANTS.is(resource) => grant_status::grant(object, balances),
            _ if DEFINITIONS.is(resource) => grant_status::definition(object, balances),
            _ if EFFECTIVE.is(resource) => grant_status::effective(object, balances),
            _ => Projected::Unchanged,
        }
    }

    fn words(&self, denial: &Denial) -> Words {
        words::words(denial).into()
    }

    fn controllers(&self, client: kube::Client, outbox: Arc<dyn Outbox>) -> Vec<BoxFuture<'static, ()>> {
        loops::start(client, outbox, &self.settings.loops, &self.decisions)
    }

    fn records(&self, noted: &Noted<'_>, view: &dyn View) -> Vec<Record> {
        let denials = records::Denials { allowances: &self.denials, decisions: &self.decisions };
        match noted {
            Noted::Written { change, revision } => {
                self.decisions.note(change);
                records::of_claim(change, *revision, view, &denials)
            }
            Noted::Refused(note) => {
                // What was refused for another reason than its amounts was decided by nobody's quota.
                if note.reason != "Forbidden" {
                    self.decisions.note_denied(note.reason);
                }
                records::refused(note, view, &denials)
            }
        }
    }

    fn sample(&self, survey: &dyn Survey, out: &mut Samples) {
        metrics::sample(&self.decisions, survey, out);
    }
}

fn place_of(change: &Change<'_>) -> Place {
    Place::new(change.resource.clone(), change.namespace, change.name)
}

/// The grants that are added up in an object: they tell what is used, and whether that is known.
fn grants_of(effective: &Value) -> Vec<Affected> {
    let grants = items(effective, &["spec", "grants"]).iter();
    let place = |one: &Value| Place::new(GRANTS.resource(), text(one, &["namespace"]), text(one, &["name"]));
    grants.map(|one| Affected::Status(place(one))).collect()
}

/// Waiting claims whose words are mended when what they wait for changes. Those further back tell older numbers a little longer.
const WAITING_MENDED_MAX: usize = 1000;
/// The same where not only numbers change. All of them, but for a bound of what one step may do.
const WAITING_TURNED_MAX: usize = 100_000;

/// The claims that wait for what changed.
fn waiting(change: &Change<'_>, view: &dyn View) -> Vec<Affected> {
    let policy = rules::policy_name(change.resource, "", change.name);
    let max = if metered::turns(change) { WAITING_TURNED_MAX } else { WAITING_MENDED_MAX };
    view.in_line(&policy, max).into_iter().map(Affected::Status).collect()
}

/// Everybody who waits: a definition decides in which words. They are looked at again, and not counted.
fn all_waiting(view: &dyn View) -> Vec<Affected> {
    let policies = view.list(&EFFECTIVE.resource(), "");
    let names =
        policies.iter().map(|one| rules::policy_name(&EFFECTIVE.resource(), "", text(one, &["metadata", "name"])));
    names.flat_map(|policy| view.in_line(&policy, WAITING_TURNED_MAX)).map(Affected::Status).collect()
}

/// The claims of a namespace that is another project's now: they say whose they are.
fn moved(change: &Change<'_>, view: &dyn View) -> Vec<Affected> {
    let Some(new) = change.new.filter(|_| !change.old.is_null()) else { return Vec::new() };
    if entity::project_of(change.old) == entity::project_of(new) {
        return Vec::new();
    }
    let names = view.names(&CLAIMS.resource(), change.name);
    names.iter().map(|name| Affected::Status(Place::new(CLAIMS.resource(), change.name, name))).collect()
}

/// Grants whose status speaks of a definition.
fn grants_that_name(change: &Change<'_>, view: &dyn View) -> Vec<Affected> {
    let object = change.new.unwrap_or(change.old);
    let name = text(object, &["spec", "resourceName"]);
    let grants = view.parsed_everywhere(&GRANTS.resource(), &|grant| -> Parsed {
        Arc::new(Arc::new(effective::Grant::read(grant)))
    });
    let grants = grants.iter().filter_map(|one| one.downcast_ref::<Arc<effective::Grant>>());
    let naming = grants.filter(|grant| grant.limits.iter().any(|one| one.name == name));
    naming.map(|grant| Affected::Status(Place::new(GRANTS.resource(), &grant.namespace, &grant.name))).collect()
}

/// What is wrong with a grant whatever is defined.
fn grant_errors(object: &Value) -> Vec<kinds::field_error::FieldError> {
    use kinds::field_error::{FieldError, Path};
    let (mut errors, spec) = (Vec::new(), Path::new("spec"));
    let reference = spec.child("resourceRef");
    match text(object, &["spec", "resourceRef", "kind"]) {
        "Project" | "Organization" => {}
        other => {
            errors.push(FieldError::not_supported(reference.child("kind"), other, &["Organization", "Project"]));
        }
    }
    if text(object, &["spec", "resourceRef", "name"]).is_empty() {
        errors.push(FieldError::required(reference.child("name"), "whose the grant is"));
    }
    let name = text(object, &["spec", "resourceRef", "name"]);
    claim::check_length(name, claim::NAME_BYTES_MAX, &reference.child("name"), &mut errors);
    limits::read(given(object, &["spec"]), &spec, &mut errors);
    errors
}

/// Who grants to somebody, or moves a namespace to another project, needs a right on whom it concerns: the right to write in a
/// namespace is not enough to make quota.
fn rights(change: &Change<'_>, world: &dyn World) -> Vec<Right> {
    let both = || [Some(change.old), change.new].into_iter().flatten().filter(|object| !object.is_null());
    if GRANTS.is(change.resource) {
        // Whom it is owned by, what holds it and what made it decide about its life as a deletion does.
        let of_life = |object: &Value| {
            let metadata = |path: &[&str]| at(object, &["metadata"]).and_then(|of| given(of, path)).cloned();
            let made_by =
                [claim_policy::POLICY_LABEL, grant_policy::PLAN_LABEL].map(|label| metadata(&["labels", label]));
            (object.get("spec").cloned(), metadata(&["ownerReferences"]), metadata(&["finalizers"]), made_by)
        };
        let is_same = change.new.is_some_and(|new| !change.old.is_null() && of_life(change.old) == of_life(new));
        let entities = both()
            .filter(|_| !is_same)
            .filter_map(|grant| entity::Entity::referred(given(grant, &["spec", "resourceRef"])?));
        return entities.map(|entity| right("grant", &entity)).collect();
    }
    if change.resource.is("", "namespaces") {
        let project = |namespace: &Value| entity::project_of(namespace).to_owned();
        let Some(new) = change.new.map(project) else { return Vec::new() };
        let old = (!change.old.is_null()).then(|| project(change.old));
        // A namespace of its own is nobody else's business, unless anything of a project of that name is there already.
        let is_own = old.is_none() && new == change.name && !exists(&entity::Entity::project(&new), world);
        let moves = (!is_own && old.as_ref() != Some(&new)).then(|| old.into_iter().chain([new]));
        let moves = moves.into_iter().flatten().map(|project| entity::Entity::project(&project));
        return moves.chain(grant_policy::enters_home(change, world)).map(|entity| right("move", &entity)).collect();
    }
    if DEFINITIONS.is(change.resource) {
        return change.new.map_or_else(Vec::new, |new| rights_of_definition(change.old, new));
    }
    // An object on its way out may stay for as long as anybody likes who may write a finalizer: its claim is let go of by whom the
    // project trusts to know that nothing is left of it.
    if CLAIMS.is(change.resource) && company::lets_go(change) {
        let entities = entity::Entities::of(world);
        let project = entities.project(change.namespace).map(entity::Entity::project);
        return project.iter().map(|project| right("release", project)).collect();
    }
    if PROJECTS.is(change.resource) || ORGANIZATIONS.is(change.resource) {
        return rights_of_entity(change, world);
    }
    Vec::new()
}

/// A subnamespace is made with every right there is, for whoever anchored it: it is nobody's way into a project, or into a home.
fn check_author(change: &Change<'_>, view: &dyn View) -> Result<(), Refusal> {
    let Some(new) = change.new.filter(|_| change.old.is_null()) else { return Ok(()) };
    let is_anchored = at(new, &["metadata", "annotations", SUBNAMESPACE_OF]).is_some();
    if !is_anchored || !change.origin.identity.is_internal() {
        return Ok(());
    }
    match rights(change, view).first() {
        None => Ok(()),
        Some(Right { verb, resource, name, .. }) => Err(Refusal::forbidden(format!(
            "it would be of {name:?}: whoever may {verb} {resource} {name:?} makes the namespace"
        ))),
    }
}

/// Whether a project is there in any way: as an object, by what is granted to it, or by the namespaces it has.
fn exists(project: &entity::Entity, world: &dyn World) -> bool {
    world.get(&PROJECTS.resource(), "", &project.name).is_some()
        || effective::stored(project, world).is_some()
        || !effective::grants_of(project, world).is_empty()
        || !entity::Entities::of(world).namespaces(&project.name).is_empty()
}

/// What opens a meter is sent to the address that a definition names: whoever names either has to be one who may read the secret.
fn rights_of_definition(old: &Value, new: &Value) -> Vec<Right> {
    let mut rights = Vec::new();
    for field in ["usageSource", "usageSink"] {
        let said = |object: &Value, path: &str| given(object, &["spec", field, path]).cloned();
        let Some(secret) = said(new, "credentialsRef") else { continue };
        if ["type", "endpoint", "credentialsRef"].into_iter().any(|path| said(old, path) != said(new, path)) {
            let named = |field: &str| text(&secret, &[field]).to_owned();
            let (resource, namespace, name) = (GroupResource::core("secrets"), named("namespace"), named("name"));
            rights.push(Right { verb: "get", resource, namespace, name });
        }
    }
    rights
}

/// Whoever may write on a project does not by that join an organization, or leave it, nor choose its plan: both are quota. One that
/// is deleted leaves its organization, and its namespaces may stay; one that is made has those that are there.
fn rights_of_entity(change: &Change<'_>, world: &dyn World) -> Vec<Right> {
    let new = change.new.unwrap_or(&Value::Null);
    let own = entity::Entity::project(change.name);
    let takes_over = change.old.is_null()
        && PROJECTS.is(change.resource)
        && (!entity::Entities::of(world).namespaces(&own.name).is_empty()
            || !effective::grants_of(&own, world).is_empty());
    let changed = |of: fn(&Value) -> &str| {
        let (old, new) = (of(change.old).to_owned(), of(new).to_owned());
        let both = if old == new { Vec::new() } else { vec![old, new] };
        both.into_iter().filter(|name| !name.is_empty())
    };
    let organizations =
        changed(entity::organization_of).map(|name| right("move", &entity::Entity::organization(&name)));
    // A plan is left as one likes; what is chosen takes leave.
    let plan = changed(entity::plan_of).filter(|name| name == entity::plan_of(new));
    let plan = plan.map(|name| Right { verb: "use", resource: PLANS.resource(), namespace: String::new(), name });
    organizations.chain(plan).chain(takes_over.then(|| right("move", &own))).collect()
}

fn right(verb: &'static str, entity: &entity::Entity) -> Right {
    let resource = match entity.level {
        entity::Level::Project => PROJECTS.resource(),
        entity::Level::Organization => ORGANIZATIONS.resource(),
    };
    Right { verb, resource, namespace: String::new(), name: entity.name.clone() }
}
