//! A real etcd, and what any program of a test needs: a free port, and an end.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
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
    peers: [u16; 3],
    folder: PathBuf,
}

impl Cluster {
    pub fn start(folder: &Path) -> Cluster {
        Cluster::start_limited(folder, None)
    }

    /// `small`: the member that fails, as on a full disk, when a file of its gets longer than 64 MB, which is as much as etcd
    /// takes for its log from the beginning.
    pub fn start_limited(folder: &Path, small: Option<usize>) -> Cluster {
        let (ports, peers) = ([(); 3].map(|()| free_port()), [(); 3].map(|()| free_port()));
        let mut cluster = Cluster { ports, members: Vec::new(), peers, folder: folder.to_owned() };
        cluster.members = (0..3).map(|index| cluster.member(index, small == Some(index))).collect();
        cluster
    }

    fn member(&self, index: usize, small: bool) -> Ended {
        let client = format!("http://127.0.0.1:{}", self.ports[index]);
        // In halves of a kilobyte.
        let limit = if small { "ulimit -f 125000; " } else { "" };
        Ended::start(
            Command::new("sh")
                .args(["-c", &format!("{limit}exec \"$@\""), "sh"])
                .arg(part("etcd"))
                .arg(format!("--data-dir={}", self.data(index).display()))
                .args([format!("--listen-client-urls={client}"), format!("--advertise-client-urls={client}")])
                .arg(format!("--listen-peer-urls=http://127.0.0.1:{}", self.peers[index]))
                .args(self.identity(index)),
        )
    }

    fn data(&self, index: usize) -> PathBuf {
        self.folder.join(format!("etcd{index}"))
    }

    /// Who a member is, for etcd and for a restore of it.
    fn identity(&self, index: usize) -> Vec<String> {
        let peer = |index: usize| format!("http://127.0.0.1:{}", self.peers[index]);
        let all: Vec<String> = (0..3).map(|index| format!("m{index}={}", peer(index))).collect();
        vec![
            format!("--name=m{index}"),
            format!("--initial-advertise-peer-urls={}", peer(index)),
            format!("--initial-cluster={}", all.join(",")),
        ]
    }

    /// Saves what one member has, as docs/etcd.md says.
    pub fn save(&self, snapshot: &Path) {
        let mut command = Command::new(part("etcdctl"));
        command.arg(format!("--endpoints=127.0.0.1:{}", self.ports[0])).args(["snapshot", "save"]).arg(snapshot);
        succeed(&mut command);
    }

    /// Stops all members, puts each back to the snapshot, and starts them.
    pub fn restore(&mut self, snapshot: &Path) {
        self.members.clear();
        for index in 0..3 {
            std::fs::remove_dir_all(self.data(index)).expect("its data");
            let mut command = Command::new(part("etcdutl"));
            command
                .args(["snapshot", "restore"])
                .arg(snapshot)
                .arg(format!("--data-dir={}", self.data(index).display()));
            succeed(command.args(self.identity(index)));
        }
        self.members = (0..3).map(|index| self.member(index, false)).collect();
    }
}

fn succeed(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}
