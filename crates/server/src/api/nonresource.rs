//! Paths that name no resource: health, version, discovery, metrics, and the audit of the ledger.

use axum::body::Body;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};
use serde_json::json;

use super::negotiate::aggregated_discovery;
use super::options::Query;
use super::{Api, ApiError, ApiResult, response};
use crate::identity::Identity;
use crate::registry::Document;
use crate::request::RequestInfo;
use crate::serve::audit::audit;

/// The Kubernetes whose behaviour is reproduced; clients choose their requests by it.
const KUBERNETES_MAJOR: &str = "1";
const KUBERNETES_MINOR: &str = "36";

impl Api {
    pub(super) async fn nonresource(
        &self,
        method: &Method,
        info: &RequestInfo,
        query: &Query,
        headers: &HeaderMap,
        identity: &Identity,
    ) -> ApiResult<Response<Body>> {
        if !matches!(*method, Method::GET | Method::HEAD) {
            return Err(ApiError::method_not_allowed());
        }
        let path = info.path.trim_end_matches('/');
        let segments: Vec<&str> = path.split('/').skip(1).collect();
        let snapshot = self.parts().registry.snapshot();
        let discovery = || snapshot.discovery();
        match segments.as_slice() {
            [] | [""] => Ok(response::value(StatusCode::OK, &json!({"paths": PATHS}))),
            ["healthz" | "livez" | "readyz", ..] => Ok(self.health()),
            ["version"] => Ok(response::value(StatusCode::OK, &version())),
            ["api"] => Ok(either(headers, &discovery().core_aggregated, &discovery().core_versions)),
            ["apis"] => Ok(either(headers, &discovery().groups_aggregated, &discovery().groups)),
            ["apis", group] => found(headers, discovery().group.get(*group)),
            ["api", version] => found(headers, discovery().resources.get(&("".into(), (*version).into()))),
            ["apis", group, version] => {
                found(headers, discovery().resources.get(&((*group).into(), (*version).into())))
            }
            [".well-known", "openid-configuration"] => self.openid_configuration(),
            ["openid", "v1", "jwks"] => self.openid_keys(),
            ["openapi", "v2"] => Ok(super::openapi::version_two(headers, KUBERNETES_MINOR)),
            ["openapi", "v3", rest @ ..] => self.openapi(headers, &rest.join("/")),
            ["metrics"] => self.metrics().await,
            ["bursar", "backup"] => self.backup(identity).await,
            ["bursar", "denials"] => self.denials(query).await,
            ["debug", "audit"] => self.audit(identity).await,
            _ => Err(ApiError::no_such_path()),
        }
    }

    /// Where a relying party finds the keys of service account tokens, by OpenID Connect Discovery.
    fn openid_configuration(&self) -> ApiResult<Response<Body>> {
        let authenticator = self.parts().authenticator.as_ref().ok_or_else(ApiError::no_such_path)?;
        let issuer = authenticator.signer().issuer();
        Ok(response::value(
            StatusCode::OK,
            &json!({
                "issuer": issuer,
                "jwks_uri": format!("{}/openid/v1/jwks", issuer.trim_end_matches('/')),
                "response_types_supported": ["id_token"],
                "subject_types_supported": ["public"],
                "id_token_signing_alg_values_supported": ["ES256"],
            }),
        ))
    }

    fn openid_keys(&self) -> ApiResult<Response<Body>> {
        let authenticator = self.parts().authenticator.as_ref().ok_or_else(ApiError::no_such_path)?;
        let mut answer = response::value(StatusCode::OK, &authenticator.signer().key_set());
        answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/jwk-set+json"));
        Ok(answer)
    }

    fn health(&self) -> Response<Body> {
        let (code, text) = match self.parts().closing.is_cancelled() {
            true => (StatusCode::SERVICE_UNAVAILABLE, "shutting down"),
            false => (StatusCode::OK, "ok"),
        };
        let mut response = Response::new(Body::from(text));
        *response.status_mut() = code;
        let plain = HeaderValue::from_static("text/plain; charset=utf-8");
        response.headers_mut().insert(header::CONTENT_TYPE, plain);
        response
    }

    /// Recounts the ledger from the stored objects. For those who run the server: it looks at everything.
    async fn audit(&self, identity: &Identity) -> ApiResult<Response<Body>> {
        if !identity.is_master() {
            let message = format!("forbidden: User {:?} cannot get path \"/debug/audit\"", identity.user);
            return Err(ApiError::forbidden_as_said("", "", "", message));
        }
        let parts = self.parts();
        let report = audit(&parts.writes, &parts.metrics).await.map_err(ApiError::internal)?;
        Ok(response::value(
            StatusCode::OK,
            &json!({
                "revision": report.revision,
                "objects": report.objects,
                "subjects": report.subjects,
                "accounts": report.accounts,
                "kept": report.kept,
                "missing": report.missing,
                "differing": report.differing,
                "differences": report.differences,
                "broken": report.broken,
                "over": report.over,
            }),
        ))
    }
}

const PATHS: &[&str] = &[
    "/.well-known/openid-configuration",
    "/api",
    "/api/v1",
    "/apis",
    "/bursar/backup",
    "/bursar/denials",
    "/debug/audit",
    "/healthz",
    "/livez",
    "/metrics",
    "/openapi/v2",
    "/openapi/v3",
    "/openid/v1/jwks",
    "/readyz",
    "/version",
];

fn version() -> serde_json::Value {
    let own = env!("CARGO_PKG_VERSION");
    json!({
        "major": KUBERNETES_MAJOR,
        "minor": KUBERNETES_MINOR,
        "gitVersion": format!("v{KUBERNETES_MAJOR}.{KUBERNETES_MINOR}.4+bursar-{own}"),
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "none",
        "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, arch()),
    })
}

/// Go's name of the machine, which is what clients expect here.
fn arch() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn either(headers: &HeaderMap, aggregated: &Document, legacy: &Document) -> Response<Body> {
    match aggregated_discovery(headers) {
        Some(version) => {
            let kind = format!("application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList");
            document(headers, aggregated, &kind)
        }
        None => document(headers, legacy, "application/json"),
    }
}

fn found(headers: &HeaderMap, document_: Option<&Document>) -> ApiResult<Response<Body>> {
    document_.map(|one| document(headers, one, "application/json")).ok_or_else(ApiError::no_such_path)
}

/// A prepared document, or the news that the client has it already.
pub(super) fn document(headers: &HeaderMap, document: &Document, kind: &str) -> Response<Body> {
    let known = headers.get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let fresh = known.split(',').any(|tag| tag.trim() == &*document.etag);
    let mut response = Response::new(if fresh { Body::empty() } else { Body::from(document.body.clone()) });
    if fresh {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    }
    let map = response.headers_mut();
    for (name, value) in [(header::CONTENT_TYPE, kind), (header::ETAG, &*document.etag)] {
        if let Ok(value) = HeaderValue::from_str(value) {
            map.insert(name, value);
        }
    }
    map.insert(header::VARY, HeaderValue::from_static("Accept"));
    map.insert(header::CACHE_CONTROL, HeaderValue::from_static("public"));
    response
}
