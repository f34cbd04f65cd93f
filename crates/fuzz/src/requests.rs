//! Whole requests of a tenant and of strangers: method, path, headers, body, several in a row.
//!
//! ```text
//! POST /api/v1/namespaces/team-a/pods
//! Content-Type: application/json
//!
//! {"metadata": {"name": "a"}, ...}
//! ====
//! GET /api/v1/namespaces/team-a/pods
//! ```
//! A request without an Authorization header is the tenant's.

use axum::body::Body;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderName, HeaderValue, Method, Request, Uri};

use crate::tenancy::on_a_server;

const REQUESTS_MAX: usize = 6;
const HEADERS_MAX: usize = 16;

/// Every answer is an answer, nobody else is harmed, and the books are right afterwards.
pub fn check_bytes(bytes: &[u8]) {
    let requests: Vec<_> = split(bytes).into_iter().filter_map(read).collect();
    if requests.is_empty() {
        return;
    }
    on_a_server(|tenancy| async move {
        for request in requests {
            let asked = format!("{} {}", request.method(), request.uri());
            let reply = tenancy.ask(request).await;
            assert!(reply.code.as_u16() != 500, "{asked} is answered {} {}", reply.code, reply.text);
            let hidden = reply.text.contains("hidden-from-tenants");
            assert!(!hidden, "{asked} shows what is the neighbour's: {}", reply.text);
        }
        tenancy.holds().await;
        tenancy.stop().await;
    });
}

fn split(bytes: &[u8]) -> Vec<&[u8]> {
    const BETWEEN: &[u8] = b"\n====\n";
    let (mut parts, mut rest) = (Vec::new(), bytes);
    while parts.len() + 1 < REQUESTS_MAX {
        let Some(at) = rest.windows(BETWEEN.len()).position(|window| window == BETWEEN) else { break };
        parts.push(&rest[..at]);
        rest = &rest[at + BETWEEN.len()..];
    }
    parts.push(rest);
    parts
}

fn read(bytes: &[u8]) -> Option<Request<Body>> {
    let end = bytes.windows(2).position(|window| window == b"\n\n");
    let (head, body) = match end {
        Some(at) => (&bytes[..at], &bytes[at + 2..]),
        None => (bytes, &[][..]),
    };
    let mut lines = head.split(|byte| *byte == b'\n');
    let first = lines.next()?;
    let space = first.iter().position(|byte| *byte == b' ')?;
    let method = Method::from_bytes(&first[..space]).ok()?;
    let uri = Uri::try_from(&first[space + 1..]).ok()?;
    // A watch has no end.
    if uri.query().is_some_and(|query| query.contains("watch") || query.contains('%')) || uri.path().contains("/watch/")
    {
        return None;
    }
    let mut request = Request::new(Body::from(body.to_vec()));
    *request.method_mut() = method;
    *request.uri_mut() = uri;
    for line in lines.take(HEADERS_MAX) {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
        let name = HeaderName::from_bytes(&line[..colon]);
        let value = HeaderValue::from_bytes(line[colon + 1..].trim_ascii());
        if let (Ok(name), Ok(value)) = (name, value) {
            request.headers_mut().append(name, value);
        }
    }
    let headers = request.headers_mut();
    headers.entry(AUTHORIZATION).or_insert(HeaderValue::from_static("Bearer tenant"));
    headers.entry(CONTENT_TYPE).or_insert(HeaderValue::from_static("application/json"));
    Some(request)
}
