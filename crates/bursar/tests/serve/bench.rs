//! The benchmarks run, at sizes that say nothing about speed: what breaks them breaks a test, not a measurement.

use std::collections::BTreeMap;
use std::process::Command;

fn figures(arguments: &str) -> BTreeMap<String, f64> {
    let run = Command::new(env!("CARGO_BIN_EXE_bursar")).arg("bench").args(arguments.split(' ')).output();
    let output = run.expect("bursar runs");
    let (said, trouble) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "bench {arguments}\n{said}\n{trouble}");
    let figure = |line: &str| {
        let (name, value) = line.strip_prefix("figure ")?.split_once(' ')?;
        Some((name.to_owned(), value.parse().expect("a number")))
    };
    said.lines().filter_map(figure).collect()
}

#[test]
fn ledger() {
    let figures = figures("ledger --rounds 1 --millis 50 --without-peers --without-sizes");
    assert!(figures["hot_over_spread"] > 0.0 && figures["claims_per_sync_64"] >= 1.0, "{figures:?}");
}

#[test]
fn serve() {
    let figures = figures("serve --rounds 1 --millis 50 --without-peers --objects 300 --listed 20 --watchers 3");
    // So few objects may fit into memory that the server had already.
    assert!(figures.contains_key("bytes_per_object") && figures["restart_seconds"] > 0.0, "{figures:?}");
}

#[test]
fn quota() {
    let figures = figures("quota --rounds 1 --millis 500 --without-peers --namespaces 5");
    for name in ["p50_q1_over_none", "p50_q4_over_none", "p50_q16_over_none"] {
        assert!(figures[name] > 0.0, "{figures:?}");
    }
    assert_eq!(figures["leaked_charges"], 0.0, "{figures:?}");
}

#[test]
fn karmada() {
    let figures = figures("karmada --rounds 1 --millis 200 --bindings 50 --scheduled 60");
    for name in ["binding_growth_10k", "scheduled_per_second", "wake_across_members_ms"] {
        assert!(figures[name] > 0.0, "{figures:?}");
    }
}

#[test]
fn datum() {
    let figures = figures("datum --rounds 1 --millis 200 --denied 300 --raised 120");
    for name in ["claim_over_create", "object_with_claim_over_create", "raise_100k_ms", "raise_100k_worst_write_ms"] {
        assert!(figures[name] > 0.0, "{figures:?}");
    }
}

#[test]
fn orgs() {
    let figures = figures("orgs --rounds 1 --millis 300 --orgs 70 --instances 2");
    for name in ["commands64_per_second", "commands64_vs_postgres", "scale_growth_orgs"] {
        assert!(figures[name] > 0.0, "{figures:?}");
    }
}

#[test]
fn operator() {
    let figures = figures("operator --rounds 1 --millis 300 --stored 50");
    // What is added may be lost in the noise of so few.
    assert!(figures.contains_key("added_p50_ms") && figures["throughput_kept_64"] > 0.0, "{figures:?}");
    assert!(figures["operator_start_seconds"] > 0.0 && figures["operator_resident_mb"] > 0.0, "{figures:?}");
}

#[test]
fn stall() {
    let figures = figures("stall --millis 200 --pods 6600 --claims 600 --waiting-claims 60");
    let claims =
        ["claims_bucket", "claims_dimension", "waiting_bucket", "waiting_dimension", "claims_move", "claims_pool"];
    for phase in ["idle", "install", "relabel", "audit", "delete"].into_iter().chain(claims) {
        assert!(figures[&format!("worst_stall_ms_{phase}")] > 0.0, "{figures:?}");
    }
}
