//! A real etcd, and what any program of a test needs: a free port, and an end.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::harness::part;

/// A process that ends with the test.
pub struct Ended(pub Child);

impl Ended {
    /// Starts it without a voice.
    pub fn start(command: &mut Command) -> Ended {
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        Ended(child.unwrap_or_else(|error| panic!("{command:?}: {error}")))
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port").port()
}

pub struct Etcd {
    /// Where clients are heard.
    pub port: u16,
    _process: Ended,
}

impl Etcd {
    pub fn start(folder: &Path) -> Etcd {
        Etcd::start_with(folder, "http", &[])
    }

    /// `scheme` is what clients speak; `more` are further flags.
    pub fn start_with(folder: &Path, scheme: &str, more: &[String]) -> Etcd {
        let (port, peer) = (free_port(), free_port());
        let process = Ended::start(
            Command::new(part("etcd"))
                .arg(format!("--data-dir={}", folder.join("etcd").display()))
                .arg(format!("--listen-client-urls={scheme}://127.0.0.1:{port}"))
                .arg(format!("--advertise-client-urls={scheme}://127.0.0.1:{port}"))
                .arg(format!("--listen-peer-urls=http://127.0.0.1:{peer}"))
                .arg(format!("--initial-advertise-peer-urls=http://127.0.0.1:{peer}"))
                .arg(format!("--initial-cluster=default=http://127.0.0.1:{peer}"))
                .args(more),
        );
        Etcd { port, _process: process }
    }
}

/// Sends a signal by its name, such as `-STOP`.
pub fn signal(process: &Ended, name: &str) {
    let pid = process.0.id().to_string();
    assert!(Command::new("kill").args([name, &pid]).status().expect("kill runs").success());
}

/// An etcd of three members.
pub struct Cluster {
    pub ports: [u16; 3],
    pub members: Vec<Ended>,
}

impl Cluster {
    pub fn start(folder: &Path) -> Cluster {
        let (ports, peers) = ([(); 3].map(|()| free_port()), [(); 3].map(|()| free_port()));
        let peer = |index: usize| format!("http://127.0.0.1:{}", peers[index]);
        let all: Vec<String> = (0..3).map(|index| format!("m{index}={}", peer(index))).collect();
        let member = |index: usize| {
            let client = format!("http://127.0.0.1:{}", ports[index]);
            Ended::start(
                Command::new(part("etcd"))
                    .arg(format!("--name=m{index}"))
                    .arg(format!("--data-dir={}", folder.join(format!("etcd{index}")).display()))
                    .args([format!("--listen-client-urls={client}"), format!("--advertise-client-urls={client}")])
                    .arg(format!("--listen-peer-urls={}", peer(index)))
                    .arg(format!("--initial-advertise-peer-urls={}", peer(index)))
                    .arg(format!("--initial-cluster={}", all.join(","))),
            )
        };
        Cluster { ports, members: (0..3).map(member).collect() }
    }
}
