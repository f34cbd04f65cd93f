//! The real programs that benchmarks run beside ours.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};

/// A program from `scripts/parts`, next to the sources this was built from.
pub fn binary(name: &str) -> anyhow::Result<PathBuf> {
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../scripts/parts");
    let output = Command::new(&script).arg(name).stderr(Stdio::inherit()).output();
    let output = output.with_context(|| format!("{name} comes from {}, which cannot be run", script.display()))?;
    ensure!(output.status.success(), "{} could not provide {name}", script.display());
    Ok(PathBuf::from(String::from_utf8(output.stdout)?.trim()))
}

/// Addresses that nobody listens on. All are held until all are known, so that they differ.
pub fn free_addresses<const N: usize>() -> anyhow::Result<[String; N]> {
    let mut held = Vec::with_capacity(N);
    for _ in 0..N {
        held.push(TcpListener::bind("127.0.0.1:0")?);
    }
    let mut addresses = std::array::from_fn(|_| String::new());
    for (address, listener) in addresses.iter_mut().zip(&held) {
        *address = listener.local_addr()?.to_string();
    }
    Ok(addresses)
}
