//! What a meter is asked about a bucket, and who is asked.

use std::collections::HashMap;
use std::time::Duration;

use kube::{Api, Client};
use metering::{Condition, Meter, Question, Service};

use super::super::entity::Level;
use super::super::metered::{Source, SourceKind};
use super::super::selector::{Asks, Selector};
use super::super::table::Table;
use super::super::{ORGANIZATION_KEY, PROJECT_KEY};

/// What opens meters, by namespace, name and key of the secret: looked up once for all who are asked about at the same time.
#[derive(Default)]
pub struct Secrets(HashMap<(String, String, String), Option<String>>);

impl Secrets {
    async fn get(&mut self, client: &Client, reference: &(String, String, String)) -> Option<String> {
        if let Some(known) = self.0.get(reference) {
            return known.clone();
        }
        let (namespace, name, key) = reference;
        let secrets: Api<k8s_openapi::api::core::v1::Secret> = Api::namespaced(client.clone(), namespace);
        let found = secrets.get_opt(name).await.ok().flatten();
        let bytes = found.and_then(|secret| secret.data?.remove(key));
        let text = bytes.and_then(|bytes| String::from_utf8(bytes.0).ok()).map(|text| text.trim().to_owned());
        self.0.insert(reference.clone(), text.clone());
        text
    }
}

pub async fn meter(client: &Client, source: &Source, secrets: &mut Secrets) -> Meter {
    let secret = match &source.credentials {
        None => None,
        Some(reference) => secrets.get(client, reference).await,
    };
    Meter {
        service: match source.kind {
            SourceKind::Prometheus => Service::Prometheus,
            SourceKind::Amberflo => Service::Amberflo,
            SourceKind::OpenMeter => Service::OpenMeter,
        },
        endpoint: source.endpoint.clone(),
        secret,
        timeout: Duration::from_millis(u64::try_from(source.timeout_ms).unwrap_or(2_000)),
        empty_is_zero: source.empty_is_zero,
    }
}

/// What is asked about a bucket; or why nobody can be.
pub fn question(source: &Source, table: &Table, selector: &Selector, at_ms: i64) -> Result<Question, String> {
    let entity = &table.entity;
    let entity_label = source.label_of(entity.level).ok_or_else(|| {
        "it is asked about by project alone: usageSource.organizationLabel says how organizations are named".to_owned()
    })?;
    let mut conditions = Vec::new();
    for (key, asks) in selector.asks() {
        let own = match (key, entity.level) {
            (PROJECT_KEY, Level::Project) => Some(&entity.name),
            (ORGANIZATION_KEY, _) => Some(&table.organization),
            _ => None,
        };
        // Whose it is, is asked for already.
        if let Some(own) = own {
            if !asks.holds(Some(own).filter(|own| !own.is_empty()).map(String::as_str)) {
                return Err(format!("the bucket is about others than {entity}"));
            }
            continue;
        }
        let label = if key == PROJECT_KEY { source.entity_label.clone() } else { source.label(key) };
        conditions.push((label, condition(asks)));
    }
    Ok(Question {
        meter: source.meter.clone(),
        entity_label: entity_label.to_owned(),
        entity: entity.name.clone(),
        conditions,
        at_ms,
    })
}

fn condition(asks: &Asks) -> Condition {
    let values = |values: &std::collections::BTreeSet<String>| values.iter().cloned().collect::<Vec<_>>();
    match asks {
        Asks::In(one) => Condition::In(values(one)),
        Asks::NotIn(one) => Condition::NotIn(values(one)),
        Asks::Exists => Condition::Exists,
        Asks::DoesNotExist => Condition::DoesNotExist,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use kinds::field_error::Path;
    use serde_json::{Value, json};

    use super::*;

    fn asked(object: &str, source: Value, selector: Value) -> Result<String, String> {
        let path = Path::new("x");
        let source = Source::read(Some(&source), &path, &mut Vec::new()).expect("a source");
        let spec = json!({"spec": {"organization": "acme"}});
        let table = Table::read(object, &spec, Arc::default());
        let selector = Selector::read(Some(&selector), &path, &mut Vec::new());
        let Question { entity_label, entity, conditions, .. } = question(&source, &table, &selector, 0)?;
        Ok(format!("{entity_label}={entity} {conditions:?}"))
    }

    #[test]
    fn it_is_asked_about_whom_the_bucket_is_of() {
        let source = |field: &str| {
            let mut source = json!({"type": "Prometheus", "endpoint": "http://a", "meter": "m", "entityLabel": "proj"});
            source[field] = json!("org");
            source
        };
        let (plain, both) = (source("none"), source("organizationLabel"));
        let all = json!({});
        let of = |key: &str, value: &str| json!({"matchLabels": {key: value}});
        assert_eq!(asked("project-a", plain.clone(), all.clone()), Ok("proj=a []".into()));
        assert_eq!(asked("organization-acme", both.clone(), all.clone()), Ok("org=acme []".into()));
        let refused = asked("organization-acme", plain.clone(), all).unwrap_err();
        assert!(refused.contains("usageSource.organizationLabel"), "{refused}");
        // What a selector says of whose it is, is either so, or asked for.
        assert_eq!(asked("project-a", plain.clone(), of(PROJECT_KEY, "a")), Ok("proj=a []".into()));
        assert_eq!(asked("project-a", plain.clone(), of(ORGANIZATION_KEY, "acme")), Ok("proj=a []".into()));
        assert!(asked("project-a", plain.clone(), of(PROJECT_KEY, "b")).unwrap_err().contains("others than"));
        let one = asked("organization-acme", both, of(PROJECT_KEY, "b"));
        assert_eq!(one, Ok("org=acme [(\"proj\", In([\"b\"]))]".into()));
        let dimension = asked("project-a", plain, of("x.example.com/instance-type", "b"));
        assert_eq!(dimension, Ok("proj=a [(\"instance_type\", In([\"b\"]))]".into()));
    }
}
