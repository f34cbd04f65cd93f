//! Which resource an apiVersion and kind are. Built-in kinds are known; custom ones are looked up among the stored
//! definitions, and a kind nobody has defined yet is taken for what its definition will most likely call it.

use rules::GroupResource;
use serde_json::Value;

use super::{items, text};
use crate::{Change, World};

/// A kind that a source names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    pub group: String,
    pub version: String,
    pub kind: String,
}

/// What is known of the kind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Resolved {
    pub resource: GroupResource,
    pub namespaced: bool,
    /// False for a kind without definition: nothing of it can be stored, and its name is a guess.
    pub known: bool,
}

impl Target {
    /// Reads `apiVersion`, or `group` and `version`, which the documentation writes as well. Neither means core v1.
    pub fn read(source: &Value) -> Target {
        let api_version = text(source, &["apiVersion"]);
        let (group, version) = match (api_version, api_version.split_once('/')) {
            ("", _) => (text(source, &["group"]), text(source, &["version"])),
            (_, Some(parts)) => parts,
            (version, None) if is_version(version) => ("", version),
            // A group by itself means every version of it.
            (group, None) => (group, ANY_VERSION),
        };
        let version = if version.is_empty() { "v1" } else { version };
        Target { group: group.into(), version: version.into(), kind: text(source, &["kind"]).into() }
    }

    pub fn resolve(&self, world: &dyn World) -> Resolved {
        let same = |resource: &&kinds::builtin::Resource| resource.group == self.group && resource.kind == self.kind;
        if let Some(found) = kinds::builtin::builtin().iter().find(same) {
            let resource = GroupResource::new(found.group, found.plural);
            return Resolved { resource, namespaced: found.namespaced, known: found.stored() };
        }
        let definitions = GroupResource::new("apiextensions.k8s.io", "customresourcedefinitions");
        // A definition is named <plural>.<group>: the usual plural spares reading all of them.
        let guess = guessed_plural(&self.kind);
        let usual = world.get(&definitions, "", &format!("{guess}.{}", self.group));
        let found = usual.filter(|definition| self.is_defined_by(definition)).or_else(|| {
            let all = world.list(&definitions, "");
            all.into_iter().find(|definition| self.is_defined_by(definition))
        });
        match found {
            Some(definition) => Resolved {
                resource: GroupResource::new(&self.group, text(&definition, &["spec", "names", "plural"])),
                namespaced: text(&definition, &["spec", "scope"]) == "Namespaced",
                known: true,
            },
            None => Resolved { resource: GroupResource::new(&self.group, &guess), namespaced: true, known: false },
        }
    }

    fn is_defined_by(&self, definition: &Value) -> bool {
        text(definition, &["spec", "group"]) == self.group
            && text(definition, &["spec", "names", "kind"]) == self.kind
            && items(definition, &["spec", "versions"]).iter().any(|version| version["served"] == true)
    }
}

/// What [`Target::resolve`] goes by of a definition.
#[derive(PartialEq, Eq)]
struct Defined<'a> {
    group: &'a str,
    kind: &'a str,
    plural: &'a str,
    scope: &'a str,
    is_served: bool,
}

impl Defined<'_> {
    fn read(definition: &Value) -> Defined<'_> {
        let of = |field: &str| text(definition, &["spec", "names", field]);
        let is_served = items(definition, &["spec", "versions"]).iter().any(|version| version["served"] == true);
        let (group, scope) = (text(definition, &["spec", "group"]), text(definition, &["spec", "scope"]));
        Defined { group, kind: of("kind"), plural: of("plural"), scope, is_served }
    }

    /// Whether a policy may name it. The names of groups and kinds stand in its text as they are.
    fn is_named_in(&self, policy: &str) -> bool {
        let is_plain = |name: &&str| name.chars().all(|one| one.is_ascii_alphanumeric() || "-.".contains(one));
        [self.kind, self.group].iter().filter(|name| is_plain(name)).all(|name| policy.contains(*name))
    }
}

/// Whether a definition was changed in what policies go by, and this one may name its kind.
pub fn change_what_is_meant(change: &Change<'_>, policy: &str) -> bool {
    let sides = [Some(change.old).filter(|old| !old.is_null()), change.new].map(|side| side.map(Defined::read));
    sides[0] != sides[1] && sides.iter().flatten().any(|side| side.is_named_in(policy))
}

/// Shown where a source leaves the version open.
const ANY_VERSION: &str = "*";

/// `v1`, `v2beta1`: what Kubernetes calls a version. Anything else before a kind is a group.
fn is_version(text: &str) -> bool {
    let Some(rest) = text.strip_prefix('v') else { return false };
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match rest.split_once("alpha").or_else(|| rest.split_once("beta")) {
        Some((major, minor)) => digits(major) && digits(minor),
        None => digits(rest),
    }
}

/// `group/version, Kind=kind`, as Go prints one.
impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}, Kind={}", self.group, self.version, self.kind)
    }
}

/// The plural that generators give a kind.
fn guessed_plural(kind: &str) -> String {
    let singular = kind.to_lowercase();
    match singular.as_bytes() {
        [.., b's' | b'x'] | [.., b'c' | b's', b'h'] => format!("{singular}es"),
        [rest @ .., before, b'y'] if !b"aeiou".contains(before) => {
            format!("{}ies", &singular[..rest.len() + 1])
        }
        _ => format!("{singular}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Nothing;
    use serde_json::json;

    fn resource(source: Value) -> String {
        Target::read(&source).resolve(&Nothing).resource.to_string()
    }

    #[test]
    fn kinds_become_resources() {
        assert_eq!(resource(json!({"kind": "Pod"})), "pods");
        assert_eq!(resource(json!({"apiVersion": "v1", "kind": "Endpoints"})), "endpoints");
        assert_eq!(
            resource(json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress"})),
            "ingresses.networking.k8s.io"
        );
        assert_eq!(resource(json!({"group": "batch", "version": "v1", "kind": "CronJob"})), "cronjobs.batch");
        assert_eq!(
            resource(json!({"apiVersion": "s3.aws.upbound.io/v1beta1", "kind": "Bucket"})),
            "buckets.s3.aws.upbound.io"
        );
        assert_eq!(resource(json!({"apiVersion": "a.b/v1", "kind": "Proxy"})), "proxies.a.b");
        assert_eq!(resource(json!({"apiVersion": "a.b/v1", "kind": "Gateway"})), "gateways.a.b");
        assert_eq!(resource(json!({"apiVersion": "a.b/v1", "kind": ""})), "s.a.b");
        assert_eq!(resource(json!({"apiVersion": "apps", "kind": "Deployment"})), "deployments.apps");
        assert_eq!(resource(json!({"apiVersion": "v1beta1", "kind": "Pod"})), "pods");
        assert_eq!(resource(json!({"apiVersion": "verse.io", "kind": "Song"})), "songs.verse.io");
    }
}
