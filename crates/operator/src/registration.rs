//! What the operator writes down about itself in the cluster: which requests it is to be asked about, and the kinds it brings.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::Method;
use kube::Client;
use rules::GroupResource;
use serde_json::{Value, json};

use crate::cluster::{Served, call, found};
use crate::core::Namespaces;
use crate::guests;

/// The name of the ValidatingWebhookConfiguration; whoever deletes that sets the cluster free of this operator.
pub const CONFIGURATION: &str = "bursar-quota";
/// Where all of them are.
pub const CONFIGURATIONS: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
/// Where the definitions of kinds are.
pub const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// How it is called in refusals: `admission webhook "quota.bursar.dev" denied the request`.
pub const WEBHOOK: &str = "quota.bursar.dev";
/// How long the API server waits for an answer. One takes a commit; longer means that something is wrong, and that whoever waits
/// is told so soon.
pub const TIMEOUT_SECONDS: u32 = 5;

/// Where the API server finds the webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    Url(String),
    Service { namespace: String, name: String, port: u16 },
}

impl Address {
    /// The names that its certificate must be good for.
    pub fn names(&self) -> Vec<String> {
        match self {
            Address::Url(url) => {
                let rest = url.trim_start_matches("https://");
                let host = rest.split('/').next().unwrap_or(rest);
                let host = host.rsplit_once(':').map_or(host, |(host, _)| host);
                vec![host.trim_matches(['[', ']']).to_owned()]
            }
            Address::Service { namespace, name, .. } => vec![format!("{name}.{namespace}.svc")],
        }
    }

    fn client_config(&self, authority: &str) -> Value {
        let bundle = BASE64_STANDARD.encode(authority);
        match self {
            Address::Url(url) => json!({"url": format!("{}/review", url.trim_end_matches('/')), "caBundle": bundle}),
            Address::Service { namespace, name, port } => json!({
                "service": {"namespace": namespace, "name": name, "port": port, "path": "/review"},
                "caBundle": bundle,
            }),
        }
    }
}

/// Under which annotation the configuration says whose it is.
const OWNER: &str = "bursar.dev/operator";
/// And which start of it wrote it.
const LEADER: &str = "bursar.dev/leader";

/// The configuration as it is in the cluster.
pub async fn registered(client: &Client) -> Result<Option<Value>, kube::Error> {
    found(call(client, Method::GET, &format!("{CONFIGURATIONS}/{CONFIGURATION}"), None).await)
}

/// Whose a configuration is, if it says so.
pub fn owner(configuration: &Value) -> Option<&str> {
    configuration["metadata"]["annotations"][OWNER].as_str()
}

/// Whether a configuration in the cluster says everything that another says.
pub fn says(configuration: &Value, wanted: &Value) -> bool {
    match (configuration, wanted) {
        (Value::Object(there), Value::Object(wanted)) => {
            wanted.iter().all(|(field, value)| there.get(field).is_some_and(|there| says(there, value)))
        }
        (Value::Array(there), Value::Array(wanted)) => {
            // The API server keeps what has a name in an order of its own.
            let says_one = |(place, wanted): (usize, &Value)| match wanted.get("name") {
                Some(name) => there.iter().any(|there| there.get("name") == Some(name) && says(there, wanted)),
                None => says(&there[place], wanted),
            };
            there.len() == wanted.len() && wanted.iter().enumerate().all(says_one)
        }
        (there, wanted) => there == wanted,
    }
}

/// A resource about which the API server is to ask, in these namespaces or in all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    pub served: Served,
    pub within: Option<Namespaces>,
    /// Whether it asks about deletions, too.
    pub ends: bool,
}

/// The most namespaces that are named; where it is more, the API server asks everywhere.
const NAMED_MAX: usize = 2_000;
/// And of all together: with names of the greatest length they are half of what etcd takes for one object.
const NAMED_BYTES_MAX: usize = 750_000;

/// The configuration that has the API server ask about these resources, and about nothing else. What only quotas in some
/// namespaces count is asked about in those: nobody's quota makes the writes of others wait for this operator.
pub fn configuration(
    identity: &str,
    started: &str,
    address: &Address,
    authority: &str,
    left_out: &[String],
    resources: &[Asked],
) -> Value {
    let mut by_place: BTreeMap<Option<&Namespaces>, Vec<&Asked>> = BTreeMap::new();
    // Those that name few first, so that one resource that is counted nearly everywhere takes nobody's place.
    let mut resources: Vec<&Asked> = resources.iter().collect();
    resources.sort_by_key(|asked| asked.within.as_ref().map_or(0, BTreeSet::len));
    let mut bytes = 0;
    for asked in resources {
        let Asked { served, within, .. } = asked;
        let named = within.as_ref().filter(|within| served.namespaced && within.len() <= NAMED_MAX);
        let named = named.filter(|within| {
            // They are named for creates, and for changes.
            let length = || 2 * within.iter().map(|name| name.len() + 3).sum::<usize>();
            let more = if by_place.contains_key(&Some(*within)) { 0 } else { length() };
            let fits = bytes + more <= NAMED_BYTES_MAX;
            bytes += if fits { more } else { 0 };
            fits
        });
        by_place.entry(named).or_default().push(asked);
    }
    let webhook = |number: usize, within: Option<&Namespaces>, writes: Writes, rules: Vec<Value>| {
        let name = match (within, writes) {
            (None, Writes::Creates) => WEBHOOK.to_owned(),
            (None, Writes::Others) => format!("changes.{WEBHOOK}"),
            (Some(_), Writes::Creates) => format!("within-{number}.{WEBHOOK}"),
            (Some(_), Writes::Others) => format!("changes-within-{number}.{WEBHOOK}"),
        };
        let mut webhook = json!({
            "name": name,
            "clientConfig": address.client_config(authority),
            "rules": rules,
            // Nothing is stored that was not counted, also while nobody counts.
            "failurePolicy": "Fail",
            // However an object is written, it is shown in the version that is counted.
            "matchPolicy": "Equivalent",
            "sideEffects": "NoneOnDryRun",
            "timeoutSeconds": TIMEOUT_SECONDS,
            "admissionReviewVersions": ["v1"],
        });
        if writes == Writes::Others {
            webhook["matchConditions"] = json!([
                {"name": "more-than-finalizers-of-what-goes", "expression": MORE_THAN_FINALIZERS},
                {"name": "not-what-it-starts-with", "expression": not_what_it_starts_with()},
            ]);
        }
        // By a label that nobody can take away or give.
        let by_name = |operator: &str, names: Value| json!({"key": "kubernetes.io/metadata.name", "operator": operator, "values": names});
        let mut selected = Vec::new();
        selected.extend((!left_out.is_empty()).then(|| by_name("NotIn", json!(left_out))));
        selected.extend(within.map(|within| by_name("In", within.iter().map(|name| json!(&**name)).collect())));
        if !selected.is_empty() {
            webhook["namespaceSelector"] = json!({"matchExpressions": selected});
        }
        webhook
    };
    let webhooks = (0..).zip(&by_place).flat_map(|(number, (within, asked))| {
        let of = |writes: Writes| {
            let rules: Vec<Value> = asked.iter().filter_map(|asked| rule(asked, writes)).collect();
            (!rules.is_empty()).then(|| webhook(number, *within, writes, rules))
        };
        [Writes::Creates, Writes::Others].into_iter().filter_map(of).collect::<Vec<_>>()
    });
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": CONFIGURATION, "annotations": {OWNER: identity, LEADER: started}},
        "webhooks": webhooks.collect::<Vec<_>>(),
    })
}

/// What is being deleted goes when the last finalizer is taken off it, and that is an update. It takes nothing, and must not wait for
/// anybody here: deletions go on while nobody answers.
const MORE_THAN_FINALIZERS: &str = "request.operation != 'UPDATE' || !has(oldObject.metadata.deletionTimestamp) \
    || object.exists(k, k != 'metadata' && !(k in oldObject && object[k] == oldObject[k])) \
    || oldObject.exists(k, !(k in object)) \
    || object.metadata.exists(k, !(k in ['finalizers', 'managedFields', 'resourceVersion', 'generation']) \
        && !(k in oldObject.metadata && object.metadata[k] == oldObject.metadata[k])) \
    || oldObject.metadata.exists(k, !(k in ['finalizers', 'managedFields']) && !(k in object.metadata))";

/// The definitions of its own quotas, also where a quota counts definitions: without them it could not start and answer.
fn not_what_it_starts_with() -> String {
    let own: Vec<String> = guests::own_definitions().iter().map(|name| format!("'{name}'")).collect();
    format!(
        "request.resource.resource != 'customresourcedefinitions' || !(object.metadata.name in [{}])",
        own.join(", ")
    )
}

/// The API server turns an object into another shape for conditions, whatever these say, and that is a good part of what asking costs
/// it. So creates, for which no condition says anything, are asked about without any.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Writes {
    Creates,
    Others,
}

fn rule(Asked { served, ends, .. }: &Asked, writes: Writes) -> Option<Value> {
    let has_conditions = served.resource.is("apiextensions.k8s.io", "customresourcedefinitions");
    let mut operations = match writes {
        Writes::Creates if has_conditions => return None,
        Writes::Creates => vec!["CREATE"],
        Writes::Others if has_conditions => vec!["CREATE", "UPDATE"],
        Writes::Others => vec!["UPDATE"],
    };
    if *ends && writes == Writes::Others {
        operations.push("DELETE");
    }
    let plural = served.resource.resource.to_string();
    let subresources = served.subresources.iter().map(|subresource| format!("{plural}/{subresource}"));
    let names: Vec<String> = std::iter::once(plural.clone()).chain(subresources).collect();
    Some(json!({
        "apiGroups": [&*served.resource.group],
        "apiVersions": [&served.version],
        "resources": names,
        "operations": operations,
        "scope": if served.namespaced { "Namespaced" } else { "Cluster" },
    }))
}

/// Writes a configuration over the one that was there, and over no other.
pub async fn register(client: &Client, configuration: &Value, there: Option<&Value>) -> Result<(), kube::Error> {
    let path = format!("{CONFIGURATIONS}/{CONFIGURATION}?fieldManager=bursar&force=true");
    let mut written = configuration.clone();
    if let Some(there) = there {
        written["metadata"]["resourceVersion"] = there["metadata"]["resourceVersion"].clone();
    }
    call::<Value>(client, Method::PATCH, &path, Some(&written)).await.map(drop)
}

/// How long the API server may wait for other webhooks about a resource after this one has answered; by the list of all
/// configurations.
pub fn longest_ms(configurations: &Value, resource: &GroupResource) -> i64 {
    let items = configurations["items"].as_array().into_iter().flatten();
    let others = items.filter(|one| one["metadata"]["name"] != CONFIGURATION);
    let webhooks = others.flat_map(|one| one["webhooks"].as_array().into_iter().flatten());
    let asked = webhooks.filter(|webhook| {
        let mut rules = webhook["rules"].as_array().into_iter().flatten();
        rules.any(|rule| names(rule, "apiGroups", &resource.group) && names(rule, "resources", &resource.resource))
    });
    let seconds = asked.map(|webhook| webhook["timeoutSeconds"].as_i64().unwrap_or(10)).max();
    seconds.unwrap_or(0).saturating_mul(1000)
}

/// How long the API server may wait for a conversion webhook, by its own constant.
pub const CONVERSION_MS: i64 = 30_000;

/// Whether a definition has somebody convert its objects: the API server asks for that after it has asked here, where an object is
/// written in another version than it is stored in.
pub fn is_converted(definition: &Value) -> bool {
    definition.pointer("/spec/conversion/strategy").and_then(Value::as_str) == Some("Webhook")
}

/// The configuration and the webhook by which Capsule's own controller decides about what is decided here, if there is one. Its names
/// have had more parts since 0.13.11.
pub fn of_capsule(configurations: &Value) -> Option<(String, String)> {
    let decides = |name: &&str| {
        let parts: Vec<&str> =
            name.strip_suffix(".projectcapsule.dev").into_iter().flat_map(|name| name.split('.')).collect();
        parts.iter().any(|part| ["custom-quotas", "resourcepools", "resourcepoolclaims"].contains(part))
    };
    let items = configurations["items"].as_array().into_iter().flatten();
    items.into_iter().find_map(|one| {
        let mut names = one["webhooks"].as_array().into_iter().flatten().filter_map(|webhook| webhook["name"].as_str());
        let webhook = names.find(decides)?;
        Some((one["metadata"]["name"].as_str().unwrap_or_default().to_owned(), webhook.to_owned()))
    })
}

/// Whether a part of a rule names this, with or without subresources, or everything.
fn names(rule: &Value, part: &str, name: &str) -> bool {
    let mut listed = rule[part].as_array().into_iter().flatten().filter_map(Value::as_str);
    listed.any(|one| one.split('/').next().is_some_and(|one| one == "*" || one == name))
}

/// Creates the kinds that are missing. One that is there is somebody's own, and stays as it is.
pub async fn install(client: &Client, definitions: &[Value]) -> Result<(), kube::Error> {
    for definition in definitions {
        let name = definition["metadata"]["name"].as_str().unwrap_or_default();
        let there: Option<Value> = found(call(client, Method::GET, &format!("{DEFINITIONS}/{name}"), None).await)?;
        if there.is_some() {
            continue;
        }
        match call::<Value>(client, Method::POST, DEFINITIONS, Some(definition)).await {
            Ok(_) => tracing::info!(name, "installed a kind"),
            // Somebody was first.
            Err(kube::Error::Api(status)) if status.is_already_exists() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
