//! What a request asks for, read from its method and URL alone, by the rules of Kubernetes' request info: the verb
//! (list and watch are GETs without a name), group, version, namespace, resource, subresource, name.
//!
//! Authorization and routing must agree on this reading, so it happens once, before both: handlers use the
//! [`RequestInfo`] in the request's extensions and never take the path apart again.

use std::borrow::Cow;

use http::{Method, Uri};
use rules::selector::FieldSelector;

use crate::authz::Attributes;
use crate::orgs::table::{self, Lookup, Who};

/// A path longer than this names nothing we serve; it bounds the work done for a request nobody has authenticated.
pub const PATH_BYTES_MAX: usize = 8 * 1024;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestInfo {
    /// The decoded path; what `nonResourceURLs` match.
    pub path: String,
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`; the lower-case method when
    /// this is not about a resource; empty when a resource does not know the method.
    pub verb: Cow<'static, str>,
    /// Whether the path names an API resource (the fields below are filled).
    pub is_resource: bool,
    pub group: String,
    pub version: String,
    /// Also filled for a Namespace object itself, so that a RoleBinding in it may grant reading it.
    pub namespace: String,
    /// Whether the path puts a namespace before the resource. A Namespace's own path does not, though `namespace` is
    /// filled: only this tells `/namespaces/a` from `/namespaces/a/namespaces/a`.
    pub is_within: bool,
    pub resource: String,
    pub subresource: String,
    pub name: String,
    /// What follows the subresource, with its slashes; no resource of ours has anything there.
    pub rest: String,
    /// The name a list or watch is narrowed to by `fieldSelector=metadata.name=…`; counts for `resourceNames`.
    pub selected_name: String,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadRequest {
    #[error("the path is longer than {PATH_BYTES_MAX} bytes")]
    PathTooLong,
    #[error("the path is not valid percent-encoded UTF-8")]
    PathEncoding,
}

impl RequestInfo {
    pub fn parse(method: &Method, uri: &Uri) -> Result<RequestInfo, BadRequest> {
        let raw = uri.path();
        if raw.len() > PATH_BYTES_MAX {
            return Err(BadRequest::PathTooLong);
        }
        // Segments are decoded one by one: a %2F inside a name stays inside that name and cannot move a border
        // between what was authorized and what is served.
        let mut segments = Vec::with_capacity(8);
        for segment in raw.trim_matches('/').split('/') {
            segments.push(percent_decode(segment).ok_or(BadRequest::PathEncoding)?);
        }
        let mut info = RequestInfo {
            path: percent_decode(raw).ok_or(BadRequest::PathEncoding)?.into_owned(),
            verb: plain_verb(method),
            ..RequestInfo::default()
        };
        let mut parts = match segments.as_slice() {
            [prefix, version, rest @ ..] if prefix == "api" && !rest.is_empty() => {
                info.version = version.to_string();
                rest
            }
            [prefix, group, version, rest @ ..] if prefix == "apis" && !rest.is_empty() => {
                info.group = group.to_string();
                info.version = version.to_string();
                rest
            }
            [prefix, ..] if prefix == "v1" => return Ok(orgs(method, raw, info)),
            _ => return Ok(info),
        };
        if segments.iter().any(|segment| segment.is_empty() || segment.contains('/')) {
            return Ok(RequestInfo { path: info.path, verb: info.verb, ..RequestInfo::default() });
        }
        info.is_resource = true;
        if parts[0] == "namespaces" && parts.len() > 1 {
            info.namespace = parts[1].to_string();
            if parts.len() > 2 && parts[2] != "status" && parts[2] != "finalize" {
                info.is_within = true;
                parts = &parts[2..];
            }
        }
        info.resource = parts[0].to_string();
        info.name = parts.get(1).map(|part| part.to_string()).unwrap_or_default();
        info.subresource = parts.get(2).map(|part| part.to_string()).unwrap_or_default();
        info.rest = parts.get(3..).unwrap_or_default().join("/");
        info.verb = Cow::Borrowed(resource_verb(method, &info.name, uri.query()));
        if matches!(&*info.verb, "list" | "watch" | "deletecollection") {
            info.selected_name = uri.query().and_then(selected_name).unwrap_or_default();
        }
        Ok(info)
    }

    /// Whether the answer is a stream that lasts until the client leaves; such requests hold no seat in flight.
    pub fn is_watch(&self) -> bool {
        self.verb == "watch"
    }

    pub fn attributes(&self) -> Attributes<'_> {
        Attributes {
            verb: &self.verb,
            group: &self.group,
            resource: &self.resource,
            subresource: &self.subresource,
            namespace: &self.namespace,
            name: if self.name.is_empty() { &self.selected_name } else { &self.name },
            path: &self.path,
        }
    }
}

/// What an endpoint of organizations asks for: a right on what it is about, in the organization's namespace or everywhere. It is
/// no resource of the Kubernetes API, and not routed as one.
fn orgs(method: &Method, path: &str, info: RequestInfo) -> RequestInfo {
    let Lookup::Found(found) = table::find(method, path) else { return info };
    let namespace = match found.endpoint.who {
        Who::Org => found.path.get("org").cloned().unwrap_or_default(),
        Who::Operator => String::new(),
    };
    RequestInfo {
        verb: Cow::Borrowed(found.endpoint.verb),
        group: families::orgs::names::GROUP.into(),
        version: families::orgs::names::VERSION.into(),
        resource: found.endpoint.resource.into(),
        subresource: found.endpoint.subresource.into(),
        namespace,
        name: table::name_of(&found),
        ..info
    }
}

fn plain_verb(method: &Method) -> Cow<'static, str> {
    match *method {
        Method::GET => Cow::Borrowed("get"),
        Method::POST => Cow::Borrowed("post"),
        _ => Cow::Owned(method.as_str().to_ascii_lowercase()),
    }
}

fn resource_verb(method: &Method, name: &str, query: Option<&str>) -> &'static str {
    match *method {
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE if name.is_empty() => "deletecollection",
        Method::DELETE => "delete",
        Method::GET | Method::HEAD if !name.is_empty() => "get",
        Method::GET | Method::HEAD if asks_to_watch(query) => "watch",
        Method::GET | Method::HEAD => "list",
        _ => "",
    }
}

/// Kubernetes reads query booleans as: absent is false, `0` and `false` are false, everything else is true.
fn asks_to_watch(query: Option<&str>) -> bool {
    let value = query_values(query.unwrap_or_default(), "watch").next();
    value.is_some_and(|value| !matches!(value.to_ascii_lowercase().as_str(), "0" | "false"))
}

/// Read by the parser that the list itself is selected with: a name that only looks selected, behind an escaped comma,
/// must not count as a right to list everything else.
fn selected_name(query: &str) -> Option<String> {
    let selector = FieldSelector::parse(&query_values(query, "fieldSelector").next()?).ok()?;
    let name = selector.exact("metadata.name")?;
    (!name.is_empty() && !matches!(name, "." | "..") && !name.contains(['/', '%'])).then(|| name.into())
}

/// The decoded values of one query parameter, in order.
pub fn query_values<'q>(query: &'q str, key: &'q str) -> impl Iterator<Item = String> + 'q {
    query.split('&').filter_map(move |pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        (form_decode(name)? == key).then(|| form_decode(value)).flatten()
    })
}

fn form_decode(text: &str) -> Option<String> {
    if text.contains('+') {
        return percent_decode(&text.replace('+', " ")).map(Cow::into_owned);
    }
    percent_decode(text).map(Cow::into_owned)
}

/// Percent-decoding; `None` for a broken escape, a NUL or bytes that are not UTF-8.
pub fn percent_decode(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains('%') {
        return Some(Cow::Borrowed(text));
    }
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        if bytes[at] != b'%' {
            decoded.push(bytes[at]);
            at += 1;
            continue;
        }
        let digits = bytes.get(at + 1..at + 3)?;
        if !digits.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        decoded.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
        at += 3;
    }
    let decoded = String::from_utf8(decoded).ok()?;
    (!decoded.contains('\0')).then_some(Cow::Owned(decoded))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> String {
        let (method, uri) = line.split_once(' ').expect("METHOD URI");
        let method = Method::from_bytes(method.as_bytes()).expect("a method");
        let info = match RequestInfo::parse(&method, &uri.parse().expect("a URI")) {
            Ok(info) => info,
            Err(error) => return format!("error: {error}"),
        };
        if !info.is_resource {
            return format!("{} path {}", info.verb, info.path);
        }
        let a = info.attributes();
        format!("{} g={} ns={} r={} s={} n={}", a.verb, a.group, a.namespace, a.resource, a.subresource, a.name)
    }

    #[test]
    fn method_and_url_are_read_as_kubernetes_does() {
        let cases = [
            ("GET /", "get path /"),
            ("GET /api", "get path /api"),
            ("GET /api/v1", "get path /api/v1"),
            ("GET /apis/apps/v1", "get path /apis/apps/v1"),
            ("POST /healthz", "post path /healthz"),
            ("GET /api/v1/pods", "list g= ns= r=pods s= n="),
            ("HEAD /api/v1/pods", "list g= ns= r=pods s= n="),
            ("GET /api/v1/pods?watch=true", "watch g= ns= r=pods s= n="),
            ("GET /api/v1/pods?watch", "watch g= ns= r=pods s= n="),
            ("GET /api/v1/pods?watch=0", "list g= ns= r=pods s= n="),
            ("GET /api/v1/pods?watch=False", "list g= ns= r=pods s= n="),
            ("GET /api/v1/pods?x=1&%77atch=1", "watch g= ns= r=pods s= n="),
            ("GET /api/v1/namespaces", "list g= ns= r=namespaces s= n="),
            ("GET /api/v1/namespaces/a", "get g= ns=a r=namespaces s= n=a"),
            ("PUT /api/v1/namespaces/a/finalize", "update g= ns=a r=namespaces s=finalize n=a"),
            ("GET /api/v1/namespaces/a/pods/p", "get g= ns=a r=pods s= n=p"),
            ("GET /api/v1/namespaces/a/pods/p?watch=1", "get g= ns=a r=pods s= n=p"),
            ("PATCH /api/v1/namespaces/a/pods/p/status", "patch g= ns=a r=pods s=status n=p"),
            ("DELETE /apis/apps/v1/namespaces/a/deployments", "deletecollection g=apps ns=a r=deployments s= n="),
            ("DELETE /apis/apps/v1/namespaces/a/deployments/d", "delete g=apps ns=a r=deployments s= n=d"),
            ("TRACE /api/v1/pods", " g= ns= r=pods s= n="),
            (
                "GET /apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Adiscovery",
                "get g=rbac.authorization.k8s.io ns= r=clusterroles s= n=system:discovery",
            ),
            ("GET /api/v1/namespaces/a/pods?fieldSelector=metadata.name%3Dp&watch=1", "watch g= ns=a r=pods s= n=p"),
            ("GET /api/v1/namespaces/a/pods?fieldSelector=metadata.name!%3Dp", "list g= ns=a r=pods s= n="),
            (
                "GET /api/v1/namespaces/a/pods?fieldSelector=spec.nodeName!%3Da%5C,metadata.name%3Dp",
                "list g= ns=a r=pods s= n=",
            ),
            (
                "GET /api/v1/namespaces/a/pods?fieldSelector=metadata.name%3D%3Dp,spec.nodeName%3D",
                "list g= ns=a r=pods s= n=p",
            ),
            (
                "DELETE /api/v1/namespaces/a/pods?fieldSelector=metadata.name%3D..",
                "deletecollection g= ns=a r=pods s= n=",
            ),
            ("GET /api/v1/namespaces/a/namespaces/b", "get g= ns=a r=namespaces s= n=b"),
            ("GET /api/v1/namespaces/a%2Fb/pods", "get path /api/v1/namespaces/a/b/pods"),
            ("GET /api/v1//pods", "get path /api/v1//pods"),
            ("GET /api/v1/pods/%zz", "error: the path is not valid percent-encoded UTF-8"),
            ("GET /api/v1/pods/%00", "error: the path is not valid percent-encoded UTF-8"),
        ];
        for (line, expected) in cases {
            assert_eq!(read(line), expected, "{line}");
        }
        let long = format!("GET /api/v1/pods/{}", "x".repeat(PATH_BYTES_MAX));
        assert_eq!(read(&long), "error: the path is longer than 8192 bytes");
    }
}
