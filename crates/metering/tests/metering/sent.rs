//! Events told to OpenMeter and Amberflo, in the format each documents.

use metering::{Event, Failure, Service};
use serde_json::Value;

use super::meter;
use super::spoken::{first, serve};

fn event(id: &str, value: &str) -> Event {
    Event {
        id: id.into(),
        source: "bursar".into(),
        meter: "cores".into(),
        subject: "proj-abc".into(),
        at_ms: 1_700_000_000_123,
        time: "2023-11-14T22:13:20.123Z".into(),
        value: value.into(),
        dimensions: vec![("location".into(), "dfw".into())],
    }
}

fn body(request: &str) -> &str {
    request.split_once("\r\n\r\n").expect("a body").1
}

#[tokio::test]
async fn openmeter_gets_cloud_events_in_a_batch() {
    let (url, heard) = serve(204, "").await;
    meter(Service::OpenMeter, &url).tell(&[event("a", "8"), event("b", "-0.5")]).await.expect("accepted");
    let request = first(&heard);
    assert!(request.starts_with("POST /api/v1/events HTTP/1.1"), "{request}");
    assert!(request.to_lowercase().contains("content-type: application/cloudevents-batch+json"), "{request}");
    assert!(request.to_lowercase().contains("authorization: bearer s3cret"), "{request}");
    let events: Value = serde_json::from_str(body(&request)).expect("JSON");
    let expected = serde_json::json!({
        "specversion": "1.0", "id": "a", "source": "bursar", "type": "cores", "subject": "proj-abc",
        "time": "2023-11-14T22:13:20.123Z", "datacontenttype": "application/json",
        "data": {"value": "8", "location": "dfw"},
    });
    assert_eq!((&events[0], &events[1]["data"]["value"]), (&expected, &serde_json::json!("-0.5")));
}

#[tokio::test]
async fn amberflo_gets_records_with_exact_numbers() {
    let (url, heard) = serve(200, "2 records were ingested").await;
    let exact = "-12345678901234567890.000000000000000000000000001";
    meter(Service::Amberflo, &url).tell(&[event("a", exact), event("b", "8")]).await.expect("accepted");
    let request = first(&heard);
    assert!(request.starts_with("POST /ingest HTTP/1.1"), "{request}");
    assert!(request.to_lowercase().contains("x-api-key: s3cret"), "{request}");
    assert!(body(&request).contains(&format!("{{\"meterValue\":{exact},")), "no float on the way: {request}");
    let records: Value = serde_json::from_str(body(&request)).expect("JSON");
    let expected = serde_json::json!({
        "meterValue": 8, "customerId": "proj-abc", "meterApiName": "cores", "meterTimeInMillis": 1_700_000_000_123_i64,
        "uniqueId": "b", "dimensions": {"location": "dfw"},
    });
    assert_eq!(records[1], expected);
}

#[tokio::test]
async fn what_is_not_accepted_is_told_apart_by_whether_it_helps_to_try_again() {
    for (status, helps) in [(503, true), (429, true), (-1, true), (400, false), (401, false)] {
        for service in [Service::OpenMeter, Service::Amberflo] {
            let (url, _) = serve(status, "{}").await;
            let mut meter = meter(service, &url);
            if status < 0 {
                meter.timeout = std::time::Duration::from_millis(200);
            }
            let failure = meter.tell(&[event("a", "1")]).await.expect_err("refused");
            assert_eq!(matches!(failure, Failure::Unavailable(_)), helps, "{status} {failure:?}");
        }
    }
    assert!(meter(Service::Prometheus, "http://127.0.0.1:1").tell(&[]).await.is_err());
}
