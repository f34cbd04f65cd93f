//! The benchmark of this family runs, at a small size. What it measures is for a quiet machine; that it finds the right
//! claims bound, and every object counted, is checked here too.

use std::process::Command;

#[test]
fn the_benchmark_runs_and_gives_its_figures() {
    let output = Command::new(env!("CARGO_BIN_EXE_bursar"))
        .args(["bench", "capsule", "--rounds", "1", "--millis", "500"])
        .args(["--objects", "700", "--quotas", "20", "--waiting", "300"])
        .output()
        .expect("bursar runs");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}\n{err}");
    for name in ["create_custom_over_none", "create_1000_unmatched_over_none", "usage_100k_ms", "bind_10k_waiting_ms"] {
        let line = out.lines().find_map(|line| line.strip_prefix(&format!("figure {name} ")));
        let figure: f64 =
            line.and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("{name} is missing:\n{out}"));
        assert!(figure > 0.0, "{out}");
    }
}
