//! Amberflo and OpenMeter, and what goes wrong with either.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use metering::{Condition, Failure, Reading, Service};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::{meter, one_of, question};

/// What a server was asked: the line, the headers and the body of each request.
pub type Heard = Arc<Mutex<Vec<String>>>;

/// Answers every request so; a negative status never answers.
pub async fn serve(status: i32, body: &'static str) -> (String, Heard) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let heard = Heard::default();
    let noted = heard.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = Vec::new();
            let mut buffer = [0; 4096];
            loop {
                let read = stream.read(&mut buffer).await.unwrap_or(0);
                request.extend_from_slice(&buffer[..read]);
                let text = String::from_utf8_lossy(&request).to_ascii_lowercase();
                let length =
                    text.split("content-length: ").nth(1).and_then(|rest| rest.split("\r\n").next()?.parse().ok());
                let body_at = text.find("\r\n\r\n").map(|at| at + 4);
                if read == 0 || body_at.is_some_and(|at| request.len() >= at + length.unwrap_or(0)) {
                    break;
                }
            }
            noted.lock().expect("no panic").push(String::from_utf8_lossy(&request).into_owned());
            if status < 0 {
                // Held open, and silent.
                std::mem::forget(stream);
                continue;
            }
            let answer = format!(
                "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                body.len()
            );
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    (format!("http://{address}"), heard)
}

pub fn first(heard: &Heard) -> String {
    heard.lock().expect("no panic").first().cloned().unwrap_or_default()
}

const AT: i64 = 1_700_000_000_000;

#[tokio::test]
async fn amberflo_tells_the_present_rate() {
    let (url, heard) = serve(200, "{\"rate\": 920.25, \"request\": {}}").await;
    let answer = meter(Service::Amberflo, &url).ask(&question("cpu", "customerId", &[])).await;
    assert_eq!(answer, Ok(Reading { nanos: 920_250_000_000, at_ms: AT }));
    let heard = first(&heard);
    assert!(heard.starts_with("GET /usage/current-usage-rate?meterApiName=cpu&customerId=proj-abc "), "{heard}");
    assert!(heard.contains("x-api-key: s3cret"), "{heard}");
}

#[tokio::test]
async fn amberflo_filters_what_it_can_and_the_rest_is_chosen_here() {
    let body = "{\"clientMeters\": [
        {\"group\": {\"groupInfo\": {\"tier\": \"gold\"}}, \"values\": [
            {\"secondsSinceEpochUtc\": 3, \"value\": 0}, {\"secondsSinceEpochUtc\": 1, \"value\": 99},
            {\"secondsSinceEpochUtc\": 2, \"value\": 5}]},
        {\"group\": {\"groupInfo\": {\"tier\": \"free\"}}, \"values\": [{\"secondsSinceEpochUtc\": 2, \"value\": 7}]},
        {\"group\": {\"groupInfo\": {}}, \"values\": [{\"secondsSinceEpochUtc\": 2, \"value\": 1.5}]}]}";
    let (url, heard) = serve(200, body).await;
    let conditions = [("loc", one_of(&["dfw", "lhr"])), ("tier", Condition::NotIn(vec!["free".into()]))];
    let answer = meter(Service::Amberflo, &url).ask(&question("cpu", "customerId", &conditions)).await;
    assert_eq!(
        answer.map(|one| one.nanos),
        Ok(6_500_000_000),
        "of gold what was so an hour ago, for this hour is filled up"
    );
    let heard = first(&heard);
    assert!(heard.starts_with("POST /usage "), "{heard}");
    for part in [
        "\"customerId\":[\"proj-abc\"]",
        "\"loc\":[\"dfw\",\"lhr\"]",
        "\"groupBy\":[\"tier\"]",
        "\"aggregation\":\"MAX\"",
    ] {
        assert!(heard.contains(part), "{part} in {heard}");
    }
}

#[tokio::test]
async fn openmeter_tells_the_total_of_a_subject() {
    let body = "{\"data\": [{\"value\": 12, \"subject\": \"proj-abc\", \"groupBy\": {\"kind\": \"a\"}},
        {\"value\": \"0.5\", \"groupBy\": {\"kind\": \"b\"}}, {\"value\": 100, \"groupBy\": {\"kind\": \"c\"}}]}";
    let (url, heard) = serve(200, body).await;
    let conditions = [("loc", one_of(&["dfw"])), ("kind", one_of(&["a", "b"]))];
    let answer = meter(Service::OpenMeter, &url).ask(&question("cores", "subject", &conditions)).await;
    assert_eq!(answer.map(|one| one.nanos), Ok(12_500_000_000));
    let heard = first(&heard);
    assert!(
        heard.starts_with("GET /api/v1/meters/cores/query?subject=proj-abc&filterGroupBy%5Bloc%5D=dfw&groupBy=kind "),
        "{heard}"
    );
    assert!(heard.to_lowercase().contains("authorization: bearer s3cret"), "{heard}");
}

#[tokio::test]
async fn every_digit_of_a_number_counts() {
    // As a float it would be one less.
    let body = "{\"rate\": 9007199254740993.0, \"data\": [{\"value\": 9007199254740993.0}],
        \"clientMeters\": [{\"values\": [{\"secondsSinceEpochUtc\": 2, \"value\": 9007199254740993.0}]}]}";
    for (service, label) in
        [(Service::Amberflo, "customerId"), (Service::Amberflo, "tenant"), (Service::OpenMeter, "subject")]
    {
        let (url, _) = serve(200, body).await;
        let answer = meter(service, &url).ask(&question("bytes", label, &[])).await;
        assert_eq!(answer.map(|one| one.nanos), Ok(9_007_199_254_740_993_000_000_000), "{service:?} {label}");
    }
}

#[tokio::test]
async fn what_is_no_answer_is_no_number() {
    for service in [Service::Prometheus, Service::Amberflo, Service::OpenMeter] {
        for (status, body, may_help) in [
            (429, "{}", true),
            (500, "{}", true),
            (503, "<html>sorry</html>", true),
            (401, "{\"message\": \"who are you\"}", false),
            (404, "{}", false),
            (200, "<html>hello</html>", true),
            (200, "{}", true),
            (200, "[]", true),
            (
                200,
                "{\"rate\": \"NaN\", \"status\": \"success\", \"data\": {\"resultType\": \"vector\", \"result\": [{\"value\": [1, \"NaN\"]}]}}",
                true,
            ),
        ] {
            let (url, _) = serve(status, body).await;
            let answer = meter(service, &url).ask(&question("m", "l", &[])).await;
            let Err(failure) = answer else { panic!("{service:?} {status} {body}: {answer:?}") };
            let is_wrong = matches!(failure, Failure::Wrong(_));
            // An answer without success is Prometheus' own word for a wrong question.
            let said_no = service == Service::Prometheus
                && status == 200
                && body.starts_with(['{', '['])
                && !body.contains("NaN");
            assert_eq!(is_wrong, !may_help || said_no, "{service:?} {status} {body}: {failure:?}");
        }
        let (url, _) = serve(-1, "").await;
        let mut silent = meter(service, &url);
        silent.timeout = Duration::from_millis(100);
        let answer = silent.ask(&question("m", "l", &[])).await;
        assert!(matches!(answer, Err(Failure::Unavailable(_))), "{service:?} {answer:?}");
        let nobody = meter(service, "http://127.0.0.1:1").ask(&question("m", "l", &[])).await;
        assert!(matches!(nobody, Err(Failure::Unavailable(_))), "{service:?} {nobody:?}");
    }
}
