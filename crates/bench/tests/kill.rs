//! kill -9 of a ledger under load, again and again: whatever was acknowledged is there afterwards, whatever was not is there
//! whole or not at all, and the books add up.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rand::{Rng, SeedableRng, rngs::StdRng};

/// Kills in one run of the tests; `BURSAR_KILLS=10000` for a long one.
const KILLS: u64 = 100;

/// How soon a successor must be ready. The state is small; this allows for a machine that does other things as well.
const READY_WITHIN: Duration = Duration::from_secs(10);

/// What is known of a claim from the lines that were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    /// Acknowledged: it must be there.
    Live,
    /// Acknowledged as released, or denied: it must not be there.
    Gone,
    /// Under way when the process died: both are right, until its successor has said which it is.
    Either,
}

struct Process {
    child: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
}

impl Process {
    fn start(folder: &std::path::Path, round: u64) -> Process {
        let mut child = Command::new(env!("CARGO_BIN_EXE_ledger-under-load"))
            .arg(folder)
            .arg(round.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Process { child, lines }
    }

    /// The next whole line; `None` at the end.
    fn line(&mut self) -> Option<(String, u128)> {
        let line = self.lines.next()?.unwrap();
        let (word, id) = line.split_once(' ').unwrap_or((&line, "0"));
        Some((word.to_owned(), id.parse().unwrap()))
    }
}

/// Reads up to `ready` and compares what is there with what must be.
fn check_live(process: &mut Process, claims: &mut BTreeMap<u128, Known>, seed: u64, round: u64) -> bool {
    let mut live = BTreeSet::new();
    loop {
        match process.line() {
            Some((word, _)) if word == "ready" => break,
            Some((word, id)) if word == "live" => drop(live.insert(id)),
            Some(other) => panic!("seed {seed} round {round}: unexpected {other:?}"),
            // Killed before it was ready.
            None => return false,
        }
    }
    for (id, known) in claims.iter_mut() {
        let found = if live.remove(id) { Known::Live } else { Known::Gone };
        assert!(
            *known == Known::Either || *known == found,
            "seed {seed} round {round}: claim {id} {known:?}, {found:?}"
        );
        *known = found;
    }
    assert!(live.is_empty(), "seed {seed} round {round}: nobody asked for {live:?}");
    claims.retain(|_, known| *known == Known::Live);
    true
}

#[test]
fn nothing_acknowledged_is_lost_and_nothing_is_half_there() {
    let kills = std::env::var("BURSAR_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(KILLS);
    let seed = std::env::var("BURSAR_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or_else(rand::random);
    println!("BURSAR_SEED={seed} BURSAR_KILLS={kills} cargo test -p bench --test kill");
    let folder = tempfile::tempdir().unwrap();
    let mut random = StdRng::seed_from_u64(seed);
    let mut claims = BTreeMap::new();
    let (mut acknowledged, mut denied, mut unready) = (0, 0, 0);
    let mut slowest = Duration::ZERO;
    for round in 0..kills {
        let mut process = Process::start(folder.path(), round);
        if random.random_range(0..8) == 0 {
            // In the middle of its recovery, or wherever it has got to.
            std::thread::yield_now();
            process.child.kill().unwrap();
        }
        let started = Instant::now();
        if check_live(&mut process, &mut claims, seed, round) {
            slowest = slowest.max(started.elapsed());
            let lines = random.random_range(0..6000);
            for count in 0.. {
                if count == lines {
                    process.child.kill().unwrap();
                }
                // What is in the pipe was said before the end.
                let Some((word, id)) = process.line() else { break };
                acknowledged += u64::from(word == "granted" || word == "released");
                denied += u64::from(word == "denied");
                let known = match word.as_str() {
                    "claim" | "release" => Known::Either,
                    "granted" => Known::Live,
                    "denied" | "released" => Known::Gone,
                    other => panic!("seed {seed} round {round}: unexpected {other}"),
                };
                claims.insert(id, known);
            }
        } else {
            unready += 1;
        }
        let _dead = process.child.kill();
        process.child.wait().unwrap();
    }
    println!("{acknowledged} acknowledged, {denied} denied, {unready} killed before ready, slowest start {slowest:?}");
    assert!(slowest < READY_WITHIN);
    assert!(acknowledged > 100 * kills && denied > 0, "the load was no load");

    // And a graceful end: whatever was accepted is answered, and the exit says so.
    let mut process = Process::start(folder.path(), kills);
    assert!(check_live(&mut process, &mut claims, seed, kills));
    drop(process.child.stdin.take());
    let mut last = String::new();
    let mut open = BTreeSet::new();
    while let Some((word, id)) = process.line() {
        match word.as_str() {
            "claim" | "release" => drop(open.insert(id)),
            _ => drop(open.remove(&id)),
        }
        last = word;
    }
    assert_eq!(last, "stopped");
    assert!(open.is_empty(), "never answered: {open:?}");
    assert!(process.child.wait().unwrap().success());
}
