//! Taking what all share and not giving it back. Bytes are tried where they are counted; here it is seats.

use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;

use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::json;

use crate::land::Land;

const MAPS: &str = "/api/v1/namespaces/team-a/configmaps";
const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

/// Posts to a path as somebody and keeps the body back.
async fn begin(land: &Land, who: &str, path: &str) -> StreamOwned<ClientConnection, TcpStream> {
    let config = land.config().await;
    let mut roots = RootCertStore::empty();
    for der in config.root_cert.iter().flatten() {
        roots.add(CertificateDer::from(der.clone())).expect("a certificate");
    }
    let tls = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let (host, port) = (config.cluster_url.host().expect("a host"), config.cluster_url.port_u16().expect("a port"));
    let name = ServerName::try_from(host.to_owned()).expect("a name");
    let connection = ClientConnection::new(Arc::new(tls), name).expect("TLS");
    let mut stream = StreamOwned::new(connection, TcpStream::connect((host, port)).expect("a connection"));
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {who}-token-0123456789\r\n\
         Content-Type: application/json\r\nContent-Length: 100\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).expect("sent");
    stream.flush().expect("sent");
    stream
}

/// How many requests of a kind are being worked on.
async fn in_flight(land: &Land, work: &str) -> u64 {
    let (_, text) = land.send("root", "GET", "/metrics", "", "").await;
    let line = format!("bursar_requests_in_flight{{work=\"{work}\"}} ");
    let number = text.lines().find_map(|one| one.strip_prefix(&line)).expect("the metric");
    number.parse().expect("a number")
}

/// Whoever may ask what he may do, may ask it slowly. It takes no right at all, and must not take the place of those who write.
#[tokio::test]
async fn bodies_that_never_come_keep_nobody_from_writing() {
    let mut land = Land::start_with("limits: {writesInFlight: 16}\n").await;
    let mut held = Vec::new();
    for _ in 0..24 {
        held.push(begin(&land, "stranger", REVIEWS).await);
    }
    while in_flight(&land, "write").await < 12 {
        tokio::task::yield_now().await;
    }
    for name in ["h0", "h1", "h2"] {
        let body = json!({"metadata": {"name": name}}).to_string();
        land.attempt(("edit", "POST", MAPS, "", &body), "201").await;
    }
    assert_eq!(in_flight(&land, "write").await, 12, "the last quarter is for others");
    drop(held);
    land.end().await;
}
