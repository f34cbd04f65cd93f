//! A real Prometheus that scrapes real numbers.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use metering::{Condition, Failure, Service};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::{meter, one_of, question};

const NUMBERS: &str = "cores{project=\"proj-abc\",loc=\"dfw\"} 7.5\n\
                       cores{project=\"proj-abc\",loc=\"lhr\"} 4\n\
                       cores{project=\"proj-abc\"} 1\n\
                       cores{project=\"other\",loc=\"dfw\"} 1000\n";

async fn exporter() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.read(&mut [0; 4096]).await;
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/plain; version=0.0.4\r\nconnection: close\r\n";
            let answer = format!("{head}content-length: {}\r\n\r\n{NUMBERS}", NUMBERS.len());
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    address.to_string()
}

/// Ended, by its process id, when dropped.
struct Prometheus(Child);

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(folder: &std::path::Path, target: &str) -> (Prometheus, String) {
    let config = format!(
        "global: {{scrape_interval: 200ms, scrape_timeout: 200ms}}\nscrape_configs:\n- job_name: a\n  static_configs: [{{targets: [\"{target}\"]}}]\n"
    );
    std::fs::write(folder.join("prometheus.yaml"), config).expect("writes");
    let mut child = Command::new("prometheus")
        .args(["--config.file=prometheus.yaml", "--storage.tsdb.path=data", "--web.listen-address=127.0.0.1:0"])
        .current_dir(folder)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("prometheus starts; `make packages` installs it");
    let mut log = BufReader::new(child.stderr.take().expect("a pipe"));
    let mut said = String::new();
    let address = loop {
        let from = said.len();
        assert!(log.read_line(&mut said).expect("a log") > 0, "prometheus ended:\n{said}");
        if let Some((_, address)) = said[from..].split_once("msg=\"Listening on\" address=") {
            break address.trim().to_owned();
        }
    };
    // The rest of the log must not fill the pipe.
    std::thread::spawn(move || log.read_to_string(&mut String::new()));
    (Prometheus(child), format!("http://{address}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_real_prometheus_answers_exactly() {
    let folder = tempfile::tempdir().expect("a folder");
    let (_prometheus, url) = start(folder.path(), &exporter().await);
    let asked = |conditions: &[(&str, Condition)]| {
        let mut one = question("cores", "project", conditions);
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
        one.at_ms = i64::try_from(now.as_millis()).expect("before the end of time");
        one
    };
    let mut meter = meter(Service::Prometheus, &url);
    meter.secret = None;
    let begun = Instant::now();
    let total = loop {
        match meter.ask(&asked(&[])).await {
            Ok(reading) => break reading.nanos,
            Err(failure) => assert!(begun.elapsed() < Duration::from_secs(60), "{failure:?}"),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    assert_eq!(total, 12_500_000_000);
    for (conditions, expected) in [
        (vec![("loc", one_of(&["dfw"]))], 7_500_000_000),
        (vec![("loc", one_of(&["dfw", "lhr"]))], 11_500_000_000),
        (vec![("loc", Condition::NotIn(vec!["dfw".into()]))], 5_000_000_000),
        (vec![("loc", Condition::Exists)], 11_500_000_000),
        (vec![("loc", Condition::DoesNotExist)], 1_000_000_000),
    ] {
        let reading = meter.ask(&asked(&conditions)).await;
        assert_eq!(reading.map(|one| one.nanos), Ok(expected), "{conditions:?}");
    }
    // It tells the last sample for minutes, and of when that is.
    let mut later = asked(&[]);
    let now_ms = later.at_ms;
    later.at_ms += 60_000;
    let reading = meter.ask(&later).await.expect("the last sample");
    assert!(reading.nanos == total && (now_ms - 30_000..now_ms + 30_000).contains(&reading.at_ms), "{reading:?}");
    let nothing = asked(&[("loc", one_of(&["nowhere"]))]);
    assert!(matches!(meter.ask(&nothing).await, Err(Failure::Unavailable(_))));
    meter.empty_is_zero = true;
    assert_eq!(meter.ask(&nothing).await.map(|one| one.nanos), Ok(0));
    let mut wrong = asked(&[]);
    wrong.meter = "1wrong".into();
    assert!(matches!(meter.ask(&wrong).await, Err(Failure::Wrong(_))));
}
