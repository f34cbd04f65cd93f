//! What the kernel knows of this process, under the names every Prometheus client uses. Elsewhere than on Linux it is
//! left out.

use std::time::Duration;

use families::metrics::Samples;
use quantity::{Amount, Decimal};

use super::names;

/// Ticks a second in `/proc`, which every Linux shows to programs whatever it counts in itself.
const TICKS_MS: i64 = 10;

pub fn sample(started: Duration, out: &mut Samples) {
    let started = i64::try_from(started.as_millis()).unwrap_or_default();
    out.put(&names::PROCESS_START, &[], Decimal(Amount::from_millis(started)));
    if let Some(ticks) = cpu_ticks() {
        out.put(&names::PROCESS_CPU, &[], Decimal(Amount::from_millis(ticks.saturating_mul(TICKS_MS))));
    }
    if let Some(bytes) = resident_bytes() {
        out.put(&names::PROCESS_MEMORY, &[], bytes);
    }
    if let Ok(files) = std::fs::read_dir("/proc/self/fd") {
        out.put(&names::PROCESS_FILES, &[], files.count());
    }
}

/// User and system time: the 12th and 13th field behind the program's name, which may hold spaces.
fn cpu_ticks() -> Option<i64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<i64>().ok();
    ticks()?.checked_add(ticks()?)
}

fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}
