//! What an EffectiveQuotaGrant means beside the catalog: which accounts a request is charged on, or why on none.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kinds::field_error::Path;
use kinds::fields::{given, items, text};
use quantity::Amount;
use serde_json::Value;

use super::catalog::{Catalog, Definition};
use super::claim::{Claim, Request};
use super::entity::{Entity, Level};
use super::limits::{self, BucketPolicy, Limits};
use super::selector::{Dimensions, Selector};
use super::{ORGANIZATION_KEY, PROJECT_KEY};

/// Claims, counted; in a project's grant alone.
pub const CLAIMS: &str = "#claims";
/// What no grant covers is waited for here, where there is none of it.
pub const UNCOVERED: &str = "#uncovered";

/// One account of a resource.
#[derive(Clone, Debug)]
pub struct BucketAccount {
    /// The account's name, and its place among all.
    pub name: Arc<str>,
    pub index: usize,
    pub selector: Selector,
    /// As it is written.
    pub written: Value,
    /// None where nothing limits it.
    pub limit: Option<Amount>,
}

/// One resource.
#[derive(Clone, Debug)]
pub struct Limited {
    pub definition: Arc<Definition>,
    pub policy: BucketPolicy,
    /// Whether a grant lists it; else its definition's default.
    pub is_granted: bool,
    /// Why none of it can be had.
    pub problem: Option<String>,
    /// The narrowest first.
    pub buckets: Vec<BucketAccount>,
}

#[derive(Debug)]
pub struct Table {
    pub entity: Entity,
    pub organization: String,
    pub resources: BTreeMap<String, Limited>,
    /// What the grants list, defined or not: the level that lists a resource decides about it. When a definition comes, an
    /// organization's table is made again before its projects' are; a project that did not know that it lists the resource would
    /// leave it to the organization, which leaves it to the project, and whoever wants it would be charged by nobody.
    listed: BTreeSet<String>,
    /// Of a project: what its organization's grant covers, and what nobody does at this moment of the step.
    organization_limits: BTreeSet<String>,
    unsettled: BTreeSet<String>,
    grants: BTreeSet<(String, String)>,
    organization_grants: BTreeSet<(String, String)>,
    /// Namespaces with their project, and what that project's own grants list.
    pub namespaces: BTreeMap<String, (String, BTreeSet<String>)>,
    /// Since when projects are an organization's, where that is known.
    pub since_ms: BTreeMap<String, i64>,
    pub catalog: Arc<Catalog>,
}

/// Who charges a request.
pub enum Cover<'a> {
    Here(&'a Limited, Dimensions),
    Elsewhere,
    Nobody { reason: &'static str, message: String },
}

/// On which buckets a request is counted.
pub struct Counted<'a> {
    /// Whether it may be granted, as far as this table knows.
    pub is_covered: bool,
    /// The narrowest first, and whether each has a say.
    pub buckets: Vec<(&'a Limited, &'a BucketAccount, bool)>,
}

impl Table {
    pub fn read(name: &str, object: &Value, catalog: Arc<Catalog>) -> Table {
        let entity = Entity::of_object_name(name).unwrap_or_else(|| Entity::project(name));
        let names = |path: &[&str]| texts(object, path);
        let references = |path: &[&str]| {
            let pair = |one: &Value| (text(one, &["namespace"]).to_owned(), text(one, &["name"]).to_owned());
            items(object, path).iter().map(pair).collect::<BTreeSet<_>>()
        };
        let mut namespaces = BTreeMap::new();
        for namespace in names(&["spec", "namespaces"]) {
            namespaces.insert(namespace, (entity.name.clone(), BTreeSet::new()));
        }
        let mut since_ms = BTreeMap::new();
        for project in items(object, &["spec", "projects"]) {
            since_ms.extend(project["since"].as_i64().map(|since| (text(project, &["name"]).to_owned(), since)));
            for namespace in texts(project, &["namespaces"]) {
                namespaces.insert(namespace, (text(project, &["name"]).to_owned(), texts(project, &["lists"])));
            }
        }
        let organization = match entity.level {
            Level::Organization => entity.name.clone(),
            Level::Project => text(object, &["spec", "organization"]).to_owned(),
        };
        let mut table = Table {
            entity,
            organization,
            resources: BTreeMap::new(),
            listed: BTreeSet::new(),
            organization_limits: names(&["spec", "organizationLimits"]),
            unsettled: names(&["spec", "unsettled"]),
            grants: references(&["spec", "grants"]),
            organization_grants: references(&["spec", "organizationGrants"]),
            namespaces,
            since_ms,
            catalog,
        };
        table.fill(&limits::read(given(object, &["spec"]), &Path::new("spec"), &mut Vec::new()));
        table
    }

    fn fill(&mut self, granted: &[Limits]) {
        let mut index = if self.entity.level == Level::Project { 2 } else { 1 };
        self.listed = granted.iter().map(|one| one.name.clone()).collect();
        for one in granted {
            let Some(definition) = self.catalog.get(&one.name).cloned() else { continue };
            // Places in a grant are told by the grant: here several may be added up.
            let problem = one.problems(&self.catalog).into_iter().next().map(|problem| problem.why);
            let mut buckets = Vec::new();
            for bucket in &one.buckets {
                let limit = bucket.amount(&definition).unwrap_or(Some(Amount::ZERO));
                let (selector, written) = (bucket.selector.clone(), bucket.written.clone());
                buckets.push(account(&one.name, selector, written, limit, &mut index));
            }
            let has_global = buckets.iter().any(|bucket| bucket.selector.is_everything());
            if let Some(default) = definition.default_limit.filter(|_| !has_global) {
                let everything = Value::Object(Default::default());
                buckets.push(account(&one.name, Selector::default(), everything, Some(default), &mut index));
            }
            // Stable: of two that are as narrow and as large the first counts.
            buckets.sort_by_key(|bucket| {
                (bucket.selector.breadth(), bucket.limit.unwrap_or(Amount::from_nanos(i128::MAX)))
            });
            let limited = Limited { definition, policy: one.policy, is_granted: true, problem, buckets };
            self.resources.insert(one.name.clone(), limited);
        }
        if self.entity.level == Level::Organization {
            return;
        }
        for definition in self.catalog.clone().iter() {
            let name = &definition.resource_name;
            let is_known = self.resources.contains_key(name)
                || self.organization_limits.contains(name)
                || self.unsettled.contains(name);
            if let Some(default) = definition.default_limit.filter(|_| !is_known) {
                let everything = Value::Object(Default::default());
                let bucket = account(name, Selector::default(), everything, Some(default), &mut index);
                let (definition, policy) = (definition.clone(), BucketPolicy::MostSpecific);
                let limited = Limited { definition, policy, is_granted: false, problem: None, buckets: vec![bucket] };
                self.resources.insert(name.clone(), limited);
            }
        }
    }

    /// Every account of a resource, in their order.
    pub fn accounts(&self) -> Vec<(&Limited, &BucketAccount)> {
        let all = self.resources.values().flat_map(|one| one.buckets.iter().map(move |bucket| (one, bucket)));
        let mut all: Vec<_> = all.collect();
        all.sort_by_key(|(_, bucket)| bucket.index);
        all
    }

    /// Who charges a request of a claim in a namespace.
    pub fn cover(&self, claim: &Claim, request: &Request, namespace: &str) -> Cover<'_> {
        self.cover_by(claim.grant.as_ref(), request, namespace)
    }

    /// Where a request is counted. One that names a grant which is gone, or says nothing of it any more, is granted by nobody; what
    /// was granted of it is counted as if no grant were named.
    pub fn counted(&self, claim: &Claim, request: &Request, namespace: &str) -> Counted<'_> {
        let cover = self.cover(claim, request, namespace);
        let is_covered = !matches!(cover, Cover::Nobody { .. });
        let cover = match claim.grant {
            Some(_) if !is_covered => self.cover_by(None, request, namespace),
            _ => cover,
        };
        let Cover::Here(limited, dimensions) = cover else { return Counted { is_covered, buckets: Vec::new() } };
        let buckets = limited.matching(&dimensions).map(|(bucket, decides)| (limited, bucket, decides));
        Counted { is_covered, buckets: buckets.collect() }
    }

    fn cover_by(&self, grant: Option<&(String, String)>, request: &Request, namespace: &str) -> Cover<'_> {
        let name = &request.name;
        let nobody = |reason, message: String| Cover::Nobody { reason, message };
        let undefined = || nobody("UnknownResourceName", format!("no ServiceQuotaDefinition defines {name:?}"));
        let Some((project, lists)) = self.namespaces.get(namespace) else { return Cover::Elsewhere };
        let limited = self.resources.get(name);
        let limited = match (self.entity.level, grant) {
            // A grant that is none of its own is the project's to know of, or is gone: then it is counted as if none were named.
            (Level::Organization, grant)
                if lists.contains(name) && !grant.is_some_and(|grant| self.grants.contains(grant)) =>
            {
                return Cover::Elsewhere;
            }
            (Level::Organization, _) => match limited {
                Some(limited) => limited,
                None if self.listed.contains(name) => return undefined(),
                None => return Cover::Elsewhere,
            },
            (Level::Project, Some(grant)) if self.grants.contains(grant) => {
                match limited.filter(|one| one.is_granted) {
                    Some(limited) => limited,
                    None => {
                        return nobody(
                            "GrantNotFound",
                            format!("grant {}/{} does not list {name:?}", grant.0, grant.1),
                        );
                    }
                }
            }
            (Level::Project, Some(grant)) if self.organization_grants.contains(grant) => {
                return match self.organization_limits.contains(name) {
                    true => Cover::Elsewhere,
                    false => nobody("GrantNotFound", format!("grant {}/{} does not list {name:?}", grant.0, grant.1)),
                };
            }
            (Level::Project, Some((of, grant))) => {
                let why = format!("there is no grant {of}/{grant} of {} or of its organization", self.entity);
                return nobody("GrantNotFound", why);
            }
            (Level::Project, None) => match limited {
                Some(limited) => limited,
                None if self.listed.contains(name) => return undefined(),
                None if self.unsettled.contains(name) => {
                    return nobody("Unsettled", format!("{name:?} is being moved"));
                }
                None if self.organization_limits.contains(name) => return Cover::Elsewhere,
                None => {
                    let why = format!(
                        "no grant of {} or of its organization lists {name:?}, and it has no default limit",
                        self.entity
                    );
                    return nobody("GrantNotFound", why);
                }
            },
        };
        if let Some(problem) = &limited.problem {
            return nobody(
                "GrantInvalid",
                format!("the grants of {} cannot be used for {name:?}: {problem}", self.entity),
            );
        }
        let mut dimensions = request.dimensions.clone();
        dimensions.insert(PROJECT_KEY.into(), project.clone());
        if !self.organization.is_empty() {
            dimensions.insert(ORGANIZATION_KEY.into(), self.organization.clone());
        }
        if !limited.buckets.iter().any(|bucket| bucket.selector.matches(&dimensions)) {
            return nobody(
                "NoMatchingBucket",
                format!("no bucket of {} for {name:?} matches its dimensions", self.entity),
            );
        }
        Cover::Here(limited, dimensions)
    }

    /// All that decides what is charged, and nothing that only decides how much may be.
    pub fn fingerprint(&self) -> Vec<u8> {
        let mut said = self.fingerprint_of_all();
        self.namespaces.keys().for_each(|namespace| said.extend(self.fingerprint_of(namespace)));
        said
    }

    /// What of that is about one namespace alone.
    pub fn fingerprint_of(&self, namespace: &str) -> Vec<u8> {
        format!("\n{namespace:?} {:?}", self.namespaces.get(namespace)).into_bytes()
    }

    /// What of that is about all of them.
    pub fn fingerprint_of_all(&self) -> Vec<u8> {
        let mut said = String::new();
        for (name, limited) in &self.resources {
            let buckets = limited.buckets.iter().map(|bucket| format!("{}@{}", bucket.selector.text(), bucket.index));
            let buckets: Vec<String> = buckets.collect();
            let is_whole = limited.problem.is_none();
            said.push_str(&format!("{name}\0{:?}\0{}\0{is_whole}\0{buckets:?}\n", limited.policy, limited.is_granted));
        }
        said.push_str(&format!(
            "{:?}{:?}{:?}{:?}{:?}{:?}",
            self.organization,
            self.organization_limits,
            self.unsettled,
            self.grants,
            self.organization_grants,
            self.meanings()
        ));
        said.into_bytes()
    }
}

impl Table {
    /// Whether it is said here that a resource of a claim cannot be counted, or the claim as a whole. Whatever a project's grants do not
    /// speak of, defined or not, is uncovered in the project; an organization speaks for what it lists, and for that at any moment:
    /// while a definition comes or goes, one of the two knows it before the other.
    pub fn minds(&self, resource: Option<&str>) -> bool {
        self.entity.level == Level::Project || resource.is_some_and(|name| self.listed.contains(name))
    }

    /// What the definitions of all that it speaks of say about amounts. Others concern nobody here ([`super::charging`]).
    fn meanings(&self) -> String {
        let mut names: BTreeSet<&str> = self.resources.keys().map(String::as_str).collect();
        let listed = [&self.listed, &self.organization_limits, &self.unsettled];
        names.extend(listed.into_iter().flatten().map(String::as_str));
        let said = |name: &str| self.catalog.get(name).map(|one| (one.unit_name.as_str(), &one.dimensions));
        names.into_iter().map(|name| format!("{name} {:?}\n", said(name))).collect()
    }
}

impl Limited {
    /// The buckets that match, and whether each has a say.
    fn matching<'a, 'b>(
        &'a self,
        dimensions: &'b Dimensions,
    ) -> impl Iterator<Item = (&'a BucketAccount, bool)> + use<'a, 'b> {
        let matching = self.buckets.iter().filter(|bucket| bucket.selector.matches(dimensions));
        matching.enumerate().map(|(place, bucket)| (bucket, place == 0 || self.policy == BucketPolicy::AllMatching))
    }
}

fn account(name: &str, selector: Selector, written: Value, limit: Option<Amount>, index: &mut usize) -> BucketAccount {
    *index += 1;
    BucketAccount { name: account_name(name, &selector).into(), index: *index - 1, selector, written, limit }
}

/// The name of a bucket's account.
pub fn account_name(resource: &str, selector: &Selector) -> String {
    if selector.is_everything() { resource.to_owned() } else { format!("{resource}{{{}}}", selector.text()) }
}

fn texts(object: &Value, path: &[&str]) -> BTreeSet<String> {
    items(object, path).iter().filter_map(|one| one.as_str().map(str::to_owned)).collect()
}
