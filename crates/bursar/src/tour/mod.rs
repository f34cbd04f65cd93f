//! `bursar tour`: a family's example played step by step, for someone with no cluster, no kubectl and five minutes.
//!
//! The steps are the files under `examples/`; the tests play the same ones. Each step prints the command as one would
//! type it, the server's real answer, and one sentence of what just happened and why.

mod examples;
mod kubectl;
mod play;

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use anyhow::Context as _;
use examples::{Example, find, names};
use kube::Client;
use kubectl::Kubectl;

#[derive(clap::Args)]
pub struct Args {
    /// Which family's tour; all of them when not given
    family: Option<String>,
}

pub fn run(args: Args) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start threads")?;
    runtime.block_on(tour(args.family.as_deref(), &mut std::io::stdout().lock()))
}

/// Plays the tour of `family`, or all of them, on the server that KUBECONFIG names, or else on one that is gone afterwards.
async fn tour(family: Option<&str>, out: &mut dyn Write) -> anyhow::Result<()> {
    let wanted: Vec<&Example> = match family {
        Some(name) => {
            let known = || format!("there is no tour {name:?}; there are: {}", names().join(", "));
            vec![find(name).with_context(known)?]
        }
        None => examples::ALL.iter().collect(),
    };
    if std::env::var_os("KUBECONFIG").is_some_and(|path| !path.is_empty()) {
        let client = Client::try_default().await.context("KUBECONFIG names a server that cannot be used")?;
        writeln!(out, "Using the server that KUBECONFIG names.\n")?;
        return play_all(&wanted, client, out).await;
    }
    let server = ThrowAway::start()?;
    let kubeconfig = kube::config::Kubeconfig::read_from(server.folder.path().join("kubeconfig"))?;
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await?;
    writeln!(out, "Started a throw-away server at {}\n", config.cluster_url)?;
    play_all(&wanted, Client::try_from(config)?, out).await
}

/// A server that keeps nothing and ends with the tour.
struct ThrowAway {
    process: Child,
    folder: tempfile::TempDir,
}

impl ThrowAway {
    fn start() -> anyhow::Result<ThrowAway> {
        let folder = tempfile::tempdir().context("a folder for the throw-away server")?;
        let mut process = Command::new(std::env::current_exe()?)
            .args(["serve", "--store", "memory", "--listen", "127.0.0.1:0", "--log", "error", "--data"])
            .arg(folder.path().join("data"))
            .arg("--kubeconfig")
            .arg(folder.path().join("kubeconfig"))
            .stdout(Stdio::piped())
            .spawn()
            .context("the throw-away server cannot be started")?;
        let lines = process.stdout.take().map(BufReader::new).context("the throw-away server says nothing")?;
        let ready = lines.lines().map_while(Result::ok).any(|line| line.contains("ready at"));
        let server = ThrowAway { process, folder };
        anyhow::ensure!(ready, "the throw-away server ended before it was ready");
        Ok(server)
    }
}

impl Drop for ThrowAway {
    fn drop(&mut self) {
        // It holds nothing worth a graceful end.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

async fn play_all(examples: &[&Example], client: Client, out: &mut dyn Write) -> anyhow::Result<()> {
    for example in examples {
        play::play(example, &Kubectl::new(client.clone(), example), out).await?;
    }
    Ok(())
}
