//! What the machine gives: the disk's syncs, the processes' CPU time, this process' memory.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use anyhow::Context;

/// How long the disk is watched before each run.
const WATCH: Duration = Duration::from_millis(200);

/// Linux counts CPU time in these, whatever the hardware does.
const TICKS_PER_SECOND: u64 = 100;

/// A claim that takes a minute is as bad as one that takes longer.
const LATENCY_NANOS_MAX: u64 = 60_000_000_000;

/// A file for measuring how many syncs a second the disk does on its own.
pub struct Disk(File);

impl Disk {
    pub fn new() -> anyhow::Result<Disk> {
        let file = tempfile::tempfile()?;
        file.write_all_at(&vec![0; 1 << 20], 0)?;
        file.sync_all()?;
        Ok(Disk(file))
    }

    /// Overwrites 4 KiB and syncs, again and again.
    pub fn syncs_per_second(&self) -> anyhow::Result<f64> {
        let started = Instant::now();
        let mut syncs = 0_u32;
        while started.elapsed() < WATCH {
            self.0.write_all_at(&[syncs.to_le_bytes()[0]; 4096], u64::from(syncs % 200) * 4096)?;
            self.0.sync_data()?;
            syncs += 1;
        }
        Ok(f64::from(syncs) / started.elapsed().as_secs_f64())
    }
}

/// CPU time of a process so far; zero for one that is gone.
fn cpu_of(process: &str) -> Duration {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{process}/stat")) else { return Duration::ZERO };
    let fields = fields_behind_name(&stat);
    let ticks: u64 = fields.iter().skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 1000 / TICKS_PER_SECOND)
}

/// The name may contain anything, blanks included, but it ends with the last bracket.
fn fields_behind_name(stat: &str) -> Vec<&str> {
    stat.rsplit_once(')').map(|(_, rest)| rest.split_whitespace().collect()).unwrap_or_default()
}

pub fn own_cpu() -> Duration {
    cpu_of("self")
}

/// CPU time of a process and its children.
pub fn family_cpu(parent: u32) -> Duration {
    let mut sum = cpu_of(&parent.to_string());
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.parse::<u32>().is_ok()
            && let Ok(stat) = std::fs::read_to_string(format!("/proc/{name}/stat"))
            && fields_behind_name(&stat).get(1).and_then(|field| field.parse().ok()) == Some(parent)
        {
            sum += cpu_of(&name);
        }
    }
    sum
}

/// Memory of this process that is really there, in bytes.
pub fn resident_bytes() -> anyhow::Result<u64> {
    resident_bytes_of("self")
}

/// The same of another process.
pub fn resident_bytes_of(process: &str) -> anyhow::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).context("reading memory needs Linux")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kilobytes: u64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kilobytes * 1024)
}

pub fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// Collects how long each claim took.
pub struct Latencies(hdrhistogram::Histogram<u64>);

impl Latencies {
    pub fn new() -> anyhow::Result<Latencies> {
        Ok(Latencies(hdrhistogram::Histogram::new_with_bounds(1, LATENCY_NANOS_MAX, 3)?))
    }

    pub fn record(&mut self, latency: Duration) {
        self.0.saturating_record(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
    }

    pub fn add(&mut self, other: &Latencies) -> anyhow::Result<()> {
        Ok(self.0.add(&other.0)?)
    }

    pub fn at(&self, percent: f64) -> Duration {
        Duration::from_nanos(self.0.value_at_percentile(percent))
    }

    pub fn count(&self) -> u64 {
        self.0.len()
    }
}
