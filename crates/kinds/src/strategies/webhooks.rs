//! Configurations of webhooks: where each is, what it is asked about, and what is wrong with either.

use rules::cel::Program;
use rules::selector::LabelSelector;
use serde_json::{Value, json};

use super::Strategy;
use super::fill::{absent, each, given, text};
use crate::field_error::FieldError;

/// What a condition may speak of. Kubernetes has an `authorizer` as well; asking it from an expression is not offered.
pub const CONDITION_VARIABLES: [&str; 3] = ["object", "oldObject", "request"];

/// Conditions one webhook may have; Kubernetes' bound.
const CONDITIONS_MAX: usize = 64;

const HTTPS_PORT: u16 = 443;

pub struct Webhooks;

impl Strategy for Webhooks {
    fn default(&self, object: &mut Value) {
        let mutating = text(object, "kind").starts_with("Mutating");
        each(object, "webhooks", |hook| {
            absent(hook, "failurePolicy", "Fail");
            absent(hook, "matchPolicy", "Equivalent");
            absent(hook, "namespaceSelector", json!({}));
            absent(hook, "objectSelector", json!({}));
            absent(hook, "timeoutSeconds", 10);
            if mutating {
                absent(hook, "reinvocationPolicy", "Never");
            }
            each(hook, "rules", |rule| absent(rule, "scope", "*"));
            if let Some(service) = given(hook, "clientConfig").and_then(|config| given(config, "service")) {
                absent(service, "port", 443);
            }
        });
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = problems(object);
        for (at, hook) in object["webhooks"].as_array().into_iter().flatten().enumerate() {
            let path = format!("webhooks[{at}]");
            if text(hook, "name").is_empty() {
                errors.push(FieldError::required(format!("{path}.name"), ""));
            }
            let effects = text(hook, "sideEffects");
            if !matches!(effects, "None" | "NoneOnDryRun") {
                let known = ["None", "NoneOnDryRun"];
                errors.push(FieldError::not_supported(format!("{path}.sideEffects"), effects, &known));
            }
            let seconds = hook.get("timeoutSeconds").and_then(Value::as_i64).unwrap_or(10);
            if !(1..=30).contains(&seconds) {
                let detail = "the timeout value must be between 1 and 30 seconds";
                errors.push(FieldError::invalid(format!("{path}.timeoutSeconds"), seconds, detail));
            }
            let versions = hook["admissionReviewVersions"].as_array().map_or(&[][..], Vec::as_slice);
            if !versions.iter().any(|version| version == "v1") {
                let detail = "must include at least one of v1, v1beta1";
                errors.push(FieldError::invalid(format!("{path}.admissionReviewVersions"), json!(versions), detail));
            }
        }
        errors
    }

    fn counts_generations(&self) -> bool {
        true
    }
}

/// What is wrong with where webhooks are, and with their selectors and expressions.
fn problems(configuration: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (at, hook) in configuration["webhooks"].as_array().into_iter().flatten().enumerate() {
        let path = format!("webhooks[{at}]");
        let config = &hook["clientConfig"];
        match (config["url"].as_str(), config["service"].is_object()) {
            (Some(url), false) => {
                if let Err(why) = Target::read(config) {
                    errors.push(FieldError::invalid(format!("{path}.clientConfig.url"), url, why));
                }
            }
            (None, true) => {
                if let Err(why) = Target::read(config) {
                    errors.push(FieldError::required(format!("{path}.clientConfig.service"), why));
                }
            }
            _ => {
                let path = format!("{path}.clientConfig");
                errors.push(FieldError::required(path, "exactly one of url or service is required"));
            }
        }
        for field in ["namespaceSelector", "objectSelector"] {
            let selector = hook.get(field).filter(|selector| !selector.is_null()).map(LabelSelector::from_object);
            if let Some(Err(error)) = selector {
                errors.push(FieldError::invalid(format!("{path}.{field}"), hook[field].clone(), error.to_string()));
            }
        }
        let conditions = hook["matchConditions"].as_array().map_or(&[][..], Vec::as_slice);
        if conditions.len() > CONDITIONS_MAX {
            errors.push(FieldError::too_many(format!("{path}.matchConditions"), conditions.len(), CONDITIONS_MAX));
        }
        for (number, condition) in conditions.iter().enumerate().take(CONDITIONS_MAX) {
            let path = format!("{path}.matchConditions[{number}].expression");
            match text(condition, "expression") {
                "" => errors.push(FieldError::required(path, "")),
                source => {
                    if let Err(error) = Program::compile(source, &CONDITION_VARIABLES) {
                        errors.push(FieldError::invalid(path, source, format!("compilation failed: {error}")));
                    }
                }
            }
        }
    }
    errors
}

/// Where a webhook is: an address of its own, or a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    Url {
        host: String,
        port: u16,
        path: String,
        text: String,
    },
    Service {
        namespace: String,
        name: String,
        port: u16,
        path: String,
    },
    /// A webhook whose clientConfig could not be read; it is never called.
    Nowhere,
}

impl Target {
    /// Reads a `clientConfig`. `Err` says what is wrong with it, in Kubernetes' words.
    pub fn read(config: &Value) -> Result<Target, String> {
        if let Some(url) = config["url"].as_str() {
            return Target::read_url(url);
        }
        let service = &config["service"];
        let text = |field: &str| service[field].as_str().unwrap_or_default().to_owned();
        let (namespace, name, path) = (text("namespace"), text("name"), text("path"));
        if namespace.is_empty() || name.is_empty() {
            return Err("service namespace and name are required".into());
        }
        let port = match service["port"].as_u64() {
            None => HTTPS_PORT,
            Some(port) => match u16::try_from(port) {
                Ok(port) if port > 0 => port,
                _ => return Err("port is not valid: must be between 1 and 65535, inclusive".into()),
            },
        };
        let path = if path.starts_with('/') { path } else { format!("/{path}") };
        let target = Target::Service { namespace, name, port, path };
        target.url().parse::<http::Uri>().map_err(|error| error.to_string())?;
        Ok(target)
    }

    fn read_url(text: &str) -> Result<Target, String> {
        let form = "desired format: https://host[:port]/path";
        let url: http::Uri = text.parse().map_err(|error| format!("url must be a valid URL: {error}; {form}"))?;
        if url.scheme_str() != Some("https") {
            return Err(format!("'https' is the only allowed URL scheme; {form}"));
        }
        let host = url.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        if host.is_empty() {
            return Err(format!("host must be specified; {form}"));
        }
        if url.authority().is_some_and(|authority| authority.as_str().contains('@')) {
            return Err("user information is not permitted in the URL".into());
        }
        if url.query().is_some() {
            return Err("query parameters are not permitted in the URL".into());
        }
        if text.contains('#') {
            return Err("fragments are not permitted in the URL".into());
        }
        let port = url.port_u16().unwrap_or(HTTPS_PORT);
        Ok(Target::Url { host, port, path: url.path().to_owned(), text: text.to_owned() })
    }

    /// The address as it is asked, without a query.
    pub fn url(&self) -> String {
        match self {
            Target::Url { text, path, .. } if text.ends_with(path.as_str()) => text.clone(),
            Target::Url { text, path, .. } => format!("{text}{path}"),
            Target::Service { namespace, name, port, path } => format!("https://{name}.{namespace}.svc:{port}{path}"),
            Target::Nowhere => String::new(),
        }
    }

    /// Whom the certificate has to be for.
    pub fn server_name(&self) -> String {
        match self {
            Target::Url { host, .. } => host.clone(),
            Target::Service { namespace, name, .. } => format!("{name}.{namespace}.svc"),
            Target::Nowhere => String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hook(change: &Value) -> Value {
        let mut hook = json!({
            "name": "h",
            "clientConfig": {"url": "https://a/", "caBundle": ""},
            "rules": [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}],
            "sideEffects": "None", "admissionReviewVersions": ["v1"],
        });
        for (field, value) in change.as_object().into_iter().flatten() {
            hook[field] = value.clone();
        }
        hook
    }

    #[test]
    fn bad_webhooks_are_found_before_they_are_stored() {
        let cases = [
            (
                json!({"clientConfig": {}}),
                "webhooks[0].clientConfig: Required value: exactly one of url or service is required",
            ),
            (json!({"clientConfig": {"url": "https://a/", "service": {}}}), "webhooks[0].clientConfig: Required value"),
            (json!({"clientConfig": {"url": "http://a/x"}}), "'https' is the only allowed URL scheme"),
            (json!({"clientConfig": {"url": "https://u@a/x"}}), "user information is not permitted in the URL"),
            (json!({"clientConfig": {"url": "https://a/x?y=1"}}), "query parameters are not permitted in the URL"),
            (json!({"clientConfig": {"url": "https://a/x#y"}}), "fragments are not permitted in the URL"),
            (json!({"clientConfig": {"service": {"name": "a"}}}), "service namespace and name are required"),
            (
                json!({"matchConditions": [{"name": "c", "expression": "a +"}]}),
                "webhooks[0].matchConditions[0].expression",
            ),
            (
                json!({"matchConditions": [{"name": "c", "expression": "authorizer"}]}),
                "undeclared reference to 'authorizer'",
            ),
            (
                json!({"objectSelector": {"matchExpressions": [{"key": "a", "operator": "Like"}]}}),
                "webhooks[0].objectSelector",
            ),
            (json!({}), ""),
        ];
        for (fields, expected) in cases {
            let found = problems(&json!({"webhooks": [hook(&fields)]}));
            let text = if found.is_empty() { String::new() } else { crate::field_error::join(&found) };
            assert!(text.contains(expected) && text.is_empty() == expected.is_empty(), "{fields}: {text}");
        }
    }
}
