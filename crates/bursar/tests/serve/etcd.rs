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
