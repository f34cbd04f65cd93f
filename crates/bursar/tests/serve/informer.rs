//! A kube-rs informer that lives through restarts of the server under it.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, PostParams};
use kube::runtime::{WatchStreamExt, reflector, watcher};
use kube::{Client, ResourceExt};
use serde_json::json;

use crate::harness::Server;
use crate::object;

async fn client(server: &Server) -> Client {
    server::tls::install_provider();
    let kubeconfig = kube::config::Kubeconfig::read_from(server.kubeconfig()).expect("a kubeconfig");
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await.expect("a configuration");
    Client::try_from(config).expect("a client")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_informer_agrees_after_every_restart() {
    let mut server = Server::start();
    let maps: Api<ConfigMap> = Api::namespaced(client(&server).await, "default");
    for streaming in [false, true] {
        let config = watcher::Config::default().labels("made=here");
        let config = if streaming { config.streaming_lists() } else { config };
        let (store, writer) = reflector::store();
        let stream = reflector(writer, watcher(maps.clone(), config)).default_backoff().touched_objects();
        let informer = tokio::spawn(stream.for_each(|_| std::future::ready(())));
        for round in 0..3 {
            for number in 0..5 {
                let name = format!("m{streaming}-{round}-{number}");
                let map = object(json!({"metadata": {"name": name, "labels": {"made": "here"}}, "data": {"a": "b"}}));
                maps.create(&PostParams::default(), &map).await.expect("created");
            }
            maps.delete(&format!("m{streaming}-{round}-0"), &DeleteParams::default()).await.expect("deleted");
            if round == 1 {
                server.stop_and_restart();
            } else {
                server.kill_and_restart();
            }
            let list = kube::api::ListParams::default().labels("made=here");
            let listed = maps.list(&list).await.expect("a list").items;
            let wanted: BTreeSet<_> = listed.iter().map(|map| (map.name_any(), map.resource_version())).collect();
            let start = Instant::now();
            loop {
                let state = store.state();
                let known: BTreeSet<_> = state.iter().map(|map| (map.name_any(), map.resource_version())).collect();
                if known == wanted {
                    break;
                }
                assert!(start.elapsed() < Duration::from_secs(60), "the informer knows {known:?}, not {wanted:?}");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        informer.abort();
    }
}
