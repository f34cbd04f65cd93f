//! What an endpoint is: its path, what it does, which right it takes, and what its document may say; and how a request finds its own
//! among [`ENDPOINTS`].

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::LazyLock;

use families::Plural;
use families::orgs::commands::Op;
use families::orgs::names::env_name;
use http::Method;

pub use super::endpoints::ENDPOINTS;
use crate::request::percent_decode;

#[derive(Clone, Copy, Debug)]
pub enum Action {
    Run(Op),
    List(Plural),
    Get(Plural, &'static str),
    ListOrgs,
    GetOrg,
    Quotas,
    Usage,
    Events,
    AllEvents,
    Audit,
    AllAudit,
    Views,
    Inventory,
    EnvStatus,
    Stream,
    Heartbeat,
    OpenApi,
}

/// Who may ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// Whoever has the right in the organization's namespace.
    Org,
    /// Whoever has it everywhere: no right within an organization reaches its own limits, nodes or instances.
    Operator,
}

/// A field of a document: name, JSON type, whether it has to be there.
pub type Field = (&'static str, &'static str, bool);

#[derive(Debug)]
pub struct Endpoint {
    pub method: &'static str,
    pub path: &'static str,
    pub action: Action,
    pub who: Who,
    pub verb: &'static str,
    pub resource: &'static str,
    pub subresource: &'static str,
    pub about: &'static str,
    pub fields: &'static [Field],
}

pub(super) const fn endpoint(
    method: &'static str,
    path: &'static str,
    action: Action,
    who: Who,
    right: (&'static str, &'static str, &'static str),
    about: &'static str,
    fields: &'static [Field],
) -> Endpoint {
    let (verb, resource, subresource) = right;
    Endpoint { method, path, action, who, verb, resource, subresource, about, fields }
}

/// What an endpoint is called on the command line: `create-app`, `list-apps`, `usage`.
pub fn command_name(endpoint: &Endpoint) -> String {
    let words = |text: &str| {
        let mut words = String::new();
        for c in text.chars() {
            if c.is_ascii_uppercase() && !words.is_empty() {
                words.push('-');
            }
            words.push(c.to_ascii_lowercase());
        }
        words
    };
    let last = endpoint.path.rsplit('/').next().unwrap_or_default();
    match endpoint.action {
        Action::Run(op) => words(&format!("{op:?}")),
        Action::List(_) => format!("list-{last}"),
        Action::Get(_, name) => format!("get-{name}"),
        Action::AllEvents => "all-events".into(),
        Action::AllAudit => "all-audit".into(),
        other => words(&format!("{other:?}")),
    }
}

/// An endpoint with the names of a request's path.
#[derive(Clone, Debug)]
pub struct Found {
    pub endpoint: &'static Endpoint,
    /// Its place in [`ENDPOINTS`].
    pub number: usize,
    pub path: BTreeMap<&'static str, String>,
}

/// The name of the object that an endpoint is about, where its path says it: what `resourceNames` of a role are compared with.
pub fn name_of(found: &Found) -> String {
    let part = |name: &str| found.path.get(name).map_or("", String::as_str);
    let parameter = match found.endpoint.resource {
        "envs" if !part("env").is_empty() => return env_name(part("app"), part("env")),
        "releases" if !part("release").is_empty() => return format!("{}.{}", part("app"), part("release")),
        "nodes" => "node",
        "orgs" => "org",
        "apps" => "app",
        "deploys" => "deploy",
        "instances" => "instance",
        "routes" => "route",
        "volumes" => "volume",
        "volumeattachments" => "attachment",
        "snapshots" => "snapshot",
        "restorejobs" => "job",
        "execsessions" => "session",
        _ => return String::new(),
    };
    part(parameter).to_owned()
}

#[derive(Debug)]
pub enum Lookup {
    Found(Found),
    /// The path is known, under other methods.
    OtherMethods(Vec<&'static str>),
    Nothing,
}

/// The endpoint of a request. Segments are decoded one by one, so that no name holds a border.
pub fn find(method: &Method, path: &str) -> Lookup {
    let segments: Option<Vec<Cow<'_, str>>> = path.trim_start_matches('/').split('/').map(percent_decode).collect();
    let Some(segments) = segments.filter(|all| all.iter().all(|one| !one.is_empty() && !one.contains('/'))) else {
        return Lookup::Nothing;
    };
    let wanted = if *method == Method::HEAD { "GET" } else { method.as_str() };
    let mut others = Vec::new();
    for (number, template) in TEMPLATES.get(segments.len()).into_iter().flatten() {
        if !template.iter().zip(&segments).all(|(part, segment)| part.takes(segment)) {
            continue;
        }
        let endpoint = &ENDPOINTS[*number];
        if endpoint.method == wanted {
            let named = template.iter().zip(segments).filter_map(|(part, segment)| match part {
                Part::Name(name) => Some((*name, segment.into_owned())),
                Part::Word(_) => None,
            });
            return Lookup::Found(Found { endpoint, number: *number, path: named.collect() });
        }
        others.push(endpoint.method);
    }
    if others.is_empty() { Lookup::Nothing } else { Lookup::OtherMethods(others) }
}

/// A segment of an endpoint's path.
enum Part {
    Word(&'static str),
    Name(&'static str),
}

impl Part {
    fn takes(&self, segment: &str) -> bool {
        match self {
            Part::Word(word) => *word == segment,
            Part::Name(_) => true,
        }
    }
}

/// A path, with its endpoint's place.
type Template = (usize, Vec<Part>);

/// The paths of [`ENDPOINTS`] by how many segments they have.
static TEMPLATES: LazyLock<Vec<Vec<Template>>> = LazyLock::new(|| {
    let part = |part: &'static str| match part.strip_prefix('{').and_then(|part| part.strip_suffix('}')) {
        Some(name) => Part::Name(name),
        None => Part::Word(part),
    };
    let mut by_length: Vec<Vec<Template>> = Vec::new();
    for (number, endpoint) in ENDPOINTS.iter().enumerate() {
        let parts: Vec<Part> = endpoint.path.trim_start_matches('/').split('/').map(part).collect();
        if by_length.len() <= parts.len() {
            by_length.resize_with(parts.len() + 1, Vec::new);
        }
        by_length[parts.len()].push((number, parts));
    }
    by_length
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lead_to_one_endpoint_each() {
        let found = |method: &str, path: &str| match find(&method.parse().unwrap(), path) {
            Lookup::Found(found) => format!("{:?} {:?}", found.endpoint.action, found.path.get("org")),
            Lookup::OtherMethods(methods) => methods.join(","),
            Lookup::Nothing => String::new(),
        };
        assert_eq!(found("PUT", "/v1/orgs/a/apps/b/envs/c/scale"), "Run(SetScale) Some(\"a\")");
        assert_eq!(found("GET", "/v1/orgs/a"), "GetOrg Some(\"a\")");
        assert_eq!(found("POST", "/v1/orgs/a"), "GET,DELETE");
        for nothing in [
            "/v1",
            "/v1/",
            "/v1/orgs/",
            "/v1/orgs/a//apps",
            "/v1/orgs/a%2Fb/apps/x/y",
            "/v1/orgs/a/b",
            "/v1/orgs/%ff/apps",
        ] {
            assert_eq!(found("GET", nothing), "", "{nothing}");
        }
        for (number, one) in ENDPOINTS.iter().enumerate() {
            let same = ENDPOINTS[number + 1..].iter().any(|other| (other.method, other.path) == (one.method, one.path));
            assert!(!same, "{} {}", one.method, one.path);
        }
    }

    #[test]
    fn what_an_endpoint_is_about_has_the_name_of_its_object() {
        let name = |method: &str, path: &str| match find(&method.parse().unwrap(), path) {
            Lookup::Found(found) => name_of(&found),
            _ => panic!("{path}"),
        };
        assert_eq!(name("POST", "/v1/nodes/n1/heartbeat"), "n1");
        assert_eq!(name("PUT", "/v1/orgs/a/apps/b/envs/c/scale"), "b.c");
        assert_eq!(name("GET", "/v1/orgs/a/apps/b/envs"), "");
        assert_eq!(name("DELETE", "/v1/orgs/a/apps/b/releases/7"), "b.7");
        assert_eq!(name("POST", "/v1/orgs/a/volumes/v/snapshots"), "");
        assert_eq!(name("PUT", "/v1/orgs/a/restore-jobs/j/status"), "j");
        // Whatever is in braces at the end of a path is somebody's name.
        for endpoint in ENDPOINTS.iter().filter(|one| one.path.ends_with('}') && one.subresource.is_empty()) {
            let path = endpoint.path.replace(['{', '}'], "");
            assert!(!name(endpoint.method, &path).is_empty(), "{path}");
        }
    }

    #[test]
    fn what_widens_a_quota_or_stands_for_the_platform_is_an_operators() {
        for endpoint in ENDPOINTS.iter().filter(|one| one.method != "GET") {
            let platform = endpoint.resource == "orgs"
                || endpoint.resource == "nodes"
                || endpoint.resource == "instances"
                || endpoint.subresource == "status";
            assert_eq!(endpoint.who == Who::Operator, platform, "{} {}", endpoint.method, endpoint.path);
        }
    }
}
