//! Who gets a backup over the network, and how many at once.

use axum::body::Body;
use http::{Request, Response};
use http_body_util::BodyExt;
use store::embedded::Archive;
use tower::{Service, ServiceExt};

use crate::harness::{Server, request};

async fn ask(server: &Server, groups: &[&str]) -> Response<Body> {
    let mut service = server.as_user("somebody", groups);
    let service = ServiceExt::<Request<Body>>::ready(&mut service).await.expect("infallible");
    service.call(request("GET /bursar/backup", "")).await.expect("infallible")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_is_for_masters_and_one_at_a_time() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Server::start_in(&folder.path().join("store"));
    server.play("POST /api/v1/namespaces\n  {\"metadata\": {\"name\": \"a\"}}\n  201\n").await;
    // Not even whoever may read every path.
    for groups in [&[][..], &["system:authenticated"], &["system:nodes", "system:serviceaccounts"]] {
        assert_eq!(ask(&server, groups).await.status(), 403, "{groups:?}");
    }
    let first = ask(&server, &["system:masters"]).await;
    assert_eq!(first.status(), 200);
    // Nobody reads it: no more than a few pieces of it are in memory, and the next has to wait.
    let second = ask(&server, &["system:masters"]).await;
    assert_eq!(second.status(), 429);
    assert!(second.headers().contains_key("retry-after"));
    // Whoever goes away gives the turn back.
    drop(first);
    let whole = loop {
        let answer = ask(&server, &["system:masters"]).await;
        if answer.status() == 200 {
            break answer.into_body().collect().await.expect("a whole backup").to_bytes();
        }
        tokio::task::yield_now().await;
    };
    let saved = folder.path().join("saved");
    std::fs::write(&saved, &whole).expect("writes");
    Archive::open(&saved).expect("a backup");
}

#[tokio::test]
async fn what_is_not_in_a_folder_is_not_backed_up_here() {
    let server = Server::start();
    assert_eq!(ask(&server, &["system:masters"]).await.status(), 501);
    assert_eq!(ask(&server, &[]).await.status(), 403);
}
