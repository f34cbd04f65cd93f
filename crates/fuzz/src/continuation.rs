//! Continue tokens that nobody gave out: refused or expired, never objects that the list did not have, and nobody else's
//! list is the worse for it.

use axum::body::Body;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::Request;

use crate::tenancy::{Tenancy, on_a_server};

const OBJECTS: usize = 7;

/// The first byte chooses how the rest becomes a token: as text, or encoded.
pub fn check_bytes(bytes: &[u8]) {
    let &[form, limit, ref rest @ ..] = bytes else { return };
    let token = match form % 3 {
        0 => percent(rest),
        1 => URL_SAFE_NO_PAD.encode(rest),
        _ => URL_SAFE_NO_PAD.encode(format!("{{{}}}", String::from_utf8_lossy(rest))),
    };
    on_a_server(|tenancy| async move {
        for number in 0..OBJECTS {
            let object = format!(r#"{{"metadata": {{"name": "o-{number}"}}}}"#);
            let request = Request::post("/api/v1/namespaces/team-a/secrets").body(Body::from(object));
            assert_eq!(tenancy.server.send(request.expect("a request")).await.code, 201);
        }
        let forged = format!("/api/v1/namespaces/team-a/secrets?limit={}&continue={token}", limit % 5);
        if let Ok(request) = Request::get(&forged).header("Authorization", "Bearer tenant").body(Body::empty()) {
            let reply = tenancy.ask(request).await;
            let code = reply.code.as_u16();
            assert!(matches!(code, 400 | 410) || (code == 200 && token.is_empty()), "{forged}: {code} {}", reply.text);
        }
        assert_eq!(paged(&tenancy).await, OBJECTS, "a paged list is whole");
        tenancy.stop().await;
    });
}

/// How many objects are found page by page.
async fn paged(tenancy: &Tenancy) -> usize {
    let (mut found, mut next) = (0, String::new());
    for _ in 0..=OBJECTS {
        let path = format!("/api/v1/namespaces/team-a/secrets?limit=2&continue={next}");
        let reply = tenancy.server.send(Request::get(path).body(Body::empty()).expect("a request")).await;
        assert_eq!(reply.code, 200, "{}", reply.text);
        found += reply.value["items"].as_array().map_or(0, Vec::len);
        match reply.value["metadata"]["continue"].as_str() {
            Some(token) if !token.is_empty() => next = token.to_owned(),
            _ => break,
        }
    }
    found
}

fn percent(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("%{byte:02X}")).collect()
}
