//! One webhook of a stored configuration, compiled once.

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kinds::strategies::webhooks::{CONDITION_VARIABLES, Target};
use rules::cel::Program;
use rules::selector::LabelSelector;
use serde_json::Value;

use super::client::Client;
use crate::core::Cache;

const TIMEOUT_SECONDS: u64 = 10;

pub(super) struct Hook {
    pub name: String,
    pub rules: Vec<Rule>,
    /// Whether a rule for one version of a resource also means its others.
    pub equivalent: bool,
    pub namespaces: LabelSelector,
    pub objects: LabelSelector,
    pub conditions: Vec<Program>,
    /// What a webhook that cannot be asked means: false refuses the write.
    pub fails_open: bool,
    pub timeout: Duration,
    /// Whether calling it changes nothing when the review says that it is a dry run.
    pub dry_run: bool,
    /// Whether it is asked again after a later webhook changed the object.
    pub reinvoked: bool,
    pub target: Target,
    authorities: Vec<u8>,
    /// Set when something above could not be read; nothing but a webhook stored by a different version of us has it.
    pub broken: Option<String>,
    cache: Weak<Cache>,
    client: OnceLock<Result<Client, String>>,
}

pub(super) struct Rule {
    pub operations: Vec<String>,
    pub groups: Vec<String>,
    pub versions: Vec<String>,
    /// Resource and subresource.
    pub resources: Vec<(String, String)>,
    pub scope: Scope,
}

#[derive(Copy, Clone, PartialEq, Eq)]
pub(super) enum Scope {
    All,
    Cluster,
    Namespaced,
}

impl Hook {
    /// The hooks of a configuration, in order.
    pub fn all(configuration: &Value, cache: &Weak<Cache>) -> Vec<Arc<Hook>> {
        let hooks = configuration["webhooks"].as_array().into_iter().flatten();
        hooks.map(|hook| Arc::new(Hook::new(hook, cache.clone()))).collect()
    }

    fn new(hook: &Value, cache: Weak<Cache>) -> Hook {
        let mut broken = None;
        let mut selector = |field: &str| match hook.get(field).filter(|selector| !selector.is_null()) {
            None => LabelSelector::EVERYTHING,
            Some(object) => LabelSelector::from_object(object).unwrap_or_else(|error| {
                broken = Some(error.to_string());
                LabelSelector::EVERYTHING
            }),
        };
        let (namespaces, objects) = (selector("namespaceSelector"), selector("objectSelector"));
        let mut conditions = Vec::new();
        for condition in hook["matchConditions"].as_array().into_iter().flatten() {
            match Program::compile(text(condition, "expression"), &CONDITION_VARIABLES) {
                Ok(program) => conditions.push(program),
                Err(error) => broken = Some(error.to_string()),
            }
        }
        let config = &hook["clientConfig"];
        let target = Target::read(config).unwrap_or_else(|why| {
            broken = Some(why);
            Target::Nowhere
        });
        let authorities = STANDARD.decode(text(config, "caBundle")).unwrap_or_else(|error| {
            broken = Some(format!("caBundle: {error}"));
            Vec::new()
        });
        Hook {
            name: text(hook, "name").into(),
            rules: hook["rules"].as_array().into_iter().flatten().map(Rule::new).collect(),
            equivalent: text(hook, "matchPolicy") != "Exact",
            namespaces,
            objects,
            conditions,
            fails_open: text(hook, "failurePolicy") == "Ignore",
            timeout: Duration::from_secs(hook["timeoutSeconds"].as_u64().unwrap_or(TIMEOUT_SECONDS).clamp(1, 30)),
            dry_run: matches!(text(hook, "sideEffects"), "None" | "NoneOnDryRun"),
            reinvoked: text(hook, "reinvocationPolicy") == "IfNeeded",
            target,
            authorities,
            broken,
            cache,
            client: OnceLock::new(),
        }
    }

    /// The client, which keeps connections; made when it is first needed, because most hooks are never called.
    pub fn client(&self) -> Result<&Client, String> {
        let made = self.client.get_or_init(|| Client::new(&self.authorities, &self.target, self.cache.clone()));
        made.as_ref().map_err(Clone::clone)
    }
}

impl Rule {
    fn new(rule: &Value) -> Rule {
        let resources = texts(rule, "resources").into_iter().map(|resource| match resource.split_once('/') {
            Some((resource, subresource)) => (resource.to_owned(), subresource.to_owned()),
            None => (resource, String::new()),
        });
        Rule {
            operations: texts(rule, "operations"),
            groups: texts(rule, "apiGroups"),
            versions: texts(rule, "apiVersions"),
            resources: resources.collect(),
            scope: match text(rule, "scope") {
                "Cluster" => Scope::Cluster,
                "Namespaced" => Scope::Namespaced,
                _ => Scope::All,
            },
        }
    }
}

fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object.get(field).and_then(Value::as_str).unwrap_or_default()
}

fn texts(object: &Value, field: &str) -> Vec<String> {
    object[field].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}
