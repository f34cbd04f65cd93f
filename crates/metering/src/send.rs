//! Usage told to others: CloudEvents for OpenMeter, records for Amberflo's ingest. Each event has an id that is the same whenever it
//! is sent, by which its receiver knows it.

use http::Method;
use serde_json::{Map, Value, json};

use crate::amberflo::KEY;
use crate::{Failure, Meter, Service};

/// Events in one request.
pub const EVENTS_MAX: usize = 100;

/// That usage changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub id: String,
    /// Who says so.
    pub source: String,
    /// The meter it is for.
    pub meter: String,
    /// Whose usage it is.
    pub subject: String,
    pub at_ms: i64,
    /// The same moment as RFC 3339 writes it.
    pub time: String,
    /// By how much, a decimal number: below zero for what was let go of.
    pub value: String,
    /// What else is said, by name.
    pub dimensions: Vec<(String, String)>,
}

impl Meter {
    /// Tells events; all of them are accepted, or none is known to be. More than [`EVENTS_MAX`] are more than one request.
    pub async fn tell(&self, events: &[Event]) -> Result<(), Failure> {
        let told = async {
            match self.service {
                Service::OpenMeter => {
                    let body = Value::Array(events.iter().map(cloud_event).collect()).to_string();
                    let kind = "application/cloudevents-batch+json";
                    self.send_as(kind, Method::POST, "/api/v1/events", None, body).await.map(drop)
                }
                Service::Amberflo => {
                    let all: Vec<String> = events.iter().map(record).collect();
                    let body = format!("[{}]", all.join(","));
                    self.send(Method::POST, "/ingest", Some(KEY), body).await.map(drop)
                }
                Service::Prometheus => Err(Failure::Wrong("Prometheus takes no events".into())),
            }
        };
        match tokio::time::timeout(self.timeout, told).await {
            Ok(told) => told,
            Err(_) => Err(Failure::Unavailable(format!("no answer within {} ms", self.timeout.as_millis()))),
        }
    }
}

fn cloud_event(event: &Event) -> Value {
    let mut data: Map<String, Value> =
        event.dimensions.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
    data.insert("value".into(), json!(event.value));
    json!({
        "specversion": "1.0", "id": event.id, "source": event.source, "type": event.meter, "subject": event.subject,
        "time": event.time, "datacontenttype": "application/json", "data": data,
    })
}

/// The value goes in as it is written: as a float it would be another.
fn record(event: &Event) -> String {
    let dimensions: Map<String, Value> =
        event.dimensions.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
    let rest = json!({
        "customerId": event.subject, "meterApiName": event.meter, "meterTimeInMillis": event.at_ms,
        "uniqueId": event.id, "dimensions": dimensions,
    });
    let rest = rest.to_string();
    format!("{{\"meterValue\":{},{}", event.value, &rest[1..])
}
