//! As much of kubectl as the tours type, for people who do not have it. The requests and the answers are real.

use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::discovery::{ApiCapabilities, Discovery, Scope};
use kube::{Api, Client, Resource as _, ResourceExt};
use rules::jsonpath::{JsonPath, MissingKeys, text};
use serde_json::{Value, json};

use super::examples::Example;

/// How long `delete` waits for an object to be gone, as kubectl does.
const DELETE_PATIENCE: Duration = Duration::from_secs(30);

/// What a command printed, and whether it succeeded.
#[derive(Debug)]
pub struct Said {
    pub ok: bool,
    pub text: String,
}

/// Speaks to one server; files are those of an example.
pub struct Kubectl<'a> {
    client: Client,
    example: &'a Example,
}

/// A command line taken apart.
#[derive(Default, Debug)]
struct Line {
    words: Vec<String>,
    namespace: Option<String>,
    files: Vec<String>,
    output: Option<String>,
    selector: Option<String>,
    replicas: Option<i64>,
    patch: Option<String>,
}

impl<'a> Kubectl<'a> {
    pub fn new(client: Client, example: &'a Example) -> Self {
        Self { client, example }
    }

    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Runs a command line that begins with `kubectl`.
    pub async fn run(&self, line: &str) -> Said {
        match self.try_run(line).await {
            Ok(text) => Said { ok: true, text },
            Err(error) => Said { ok: false, text: format!("{error:#}\n") },
        }
    }

    async fn try_run(&self, line: &str) -> anyhow::Result<String> {
        let line = Line::parse(line)?;
        let words: Vec<&str> = line.words.iter().map(String::as_str).collect();
        match words.as_slice() {
            ["create"] => self.each_document(&line, Verb::Create).await,
            ["apply"] => self.each_document(&line, Verb::Apply).await,
            ["delete"] => self.each_document(&line, Verb::Delete).await,
            ["delete", kind, name] => self.delete_one(&line, kind, name).await,
            ["get", kind] => self.get(&line, kind, None).await,
            ["get", kind, name] => self.get(&line, kind, Some(name)).await,
            ["describe", kind, name] => self.describe(&line, kind, name).await,
            ["scale", kind, name] => self.scale(&line, kind, name).await,
            ["patch", kind, name] => self.patch(&line, kind, name).await,
            ["label" | "annotate", kind, name, pairs @ ..] => self.mark(&line, words[0], kind, name, pairs).await,
            _ => bail!("the tour does not know how to run: kubectl {}", words.join(" ")),
        }
    }

    async fn each_document(&self, line: &Line, verb: Verb) -> anyhow::Result<String> {
        anyhow::ensure!(!line.files.is_empty(), "a file is needed: -f FILE");
        let mut said = String::new();
        for file in &line.files {
            let text = self.example.file(file).with_context(|| format!("the example has no file {file:?}"))?;
            for document in text.split("\n---").map(str::trim).filter(|document| !document.is_empty()) {
                let object: DynamicObject =
                    serde_saphyr::from_str(document).with_context(|| format!("reading {file}"))?;
                said.push_str(&self.one_document(line, verb, file, object).await?);
            }
        }
        Ok(said)
    }

    async fn one_document(&self, line: &Line, verb: Verb, file: &str, object: DynamicObject) -> anyhow::Result<String> {
        let types = object.types.clone().context("the document has no apiVersion and kind")?;
        let kind = GroupVersionKind::try_from(&types)?;
        let (resource, capabilities) = self.resolve_kind(&kind).await?;
        let namespace = object.namespace().or_else(|| line.namespace.clone());
        let api = self.api(&resource, &capabilities, namespace.as_deref());
        let name = object.name_any();
        let shown = shown_name(&resource, &name);
        let failing = |doing: &str, error: kube::Error| server_error(&format!("error when {doing} {file:?}: "), &error);
        Ok(match verb {
            Verb::Create => {
                api.create(&PostParams::default(), &object).await.map_err(|error| failing("creating", error))?;
                format!("{shown} created\n")
            }
            Verb::Apply => {
                let known = api.get_opt(&name).await?;
                let params = PatchParams::apply("bursar-tour").force();
                let done = api.patch(&name, &params, &Patch::Apply(&object)).await;
                let done = done.map_err(|error| failing("applying", error))?;
                let word = match known {
                    None => "created",
                    Some(known) if known.resource_version() == done.resource_version() => "unchanged",
                    Some(_) => "configured",
                };
                format!("{shown} {word}\n")
            }
            Verb::Delete => {
                self.remove(&api, &name).await.map_err(|error| failing("deleting", error))?;
                format!("{} {name:?} deleted\n", full_kind(&resource))
            }
        })
    }

    async fn delete_one(&self, line: &Line, kind: &str, name: &str) -> anyhow::Result<String> {
        let (resource, capabilities) = self.resolve(kind).await?;
        let api = self.api(&resource, &capabilities, line.namespace.as_deref());
        self.remove(&api, name).await.map_err(|error| server_error("", &error))?;
        Ok(format!("{} {name:?} deleted\n", full_kind(&resource)))
    }

    /// Deletes and waits until the object is gone.
    async fn remove(&self, api: &Api<DynamicObject>, name: &str) -> kube::Result<()> {
        let uid = api.get(name).await?.uid();
        api.delete(name, &DeleteParams::background()).await?;
        let gone = async {
            while let Ok(Some(found)) = api.get_opt(name).await {
                if found.uid() != uid {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let _ = tokio::time::timeout(DELETE_PATIENCE, gone).await;
        Ok(())
    }

    async fn get(&self, line: &Line, kind: &str, name: Option<&str>) -> anyhow::Result<String> {
        let (resource, capabilities) = self.resolve(kind).await?;
        let api = self.api(&resource, &capabilities, line.namespace.as_deref());
        let selector = ListParams::default().labels(line.selector.as_deref().unwrap_or_default());
        let fetch = async {
            match name {
                Some(name) => api.get(name).await.map(|object| json!(object)),
                None => api.list(&selector).await.map(|list| json!({"kind": "List", "items": list.items})),
            }
        };
        match line.output.as_deref() {
            None | Some("wide") => self.table(line, &resource, &capabilities, name).await,
            Some("yaml") => {
                let value = fetch.await.map_err(|error| server_error("", &error))?;
                Ok(serde_saphyr::to_string(&value)?)
            }
            Some(format) => {
                let path = format.strip_prefix("jsonpath=").with_context(|| format!("unknown output {format:?}"))?;
                let value = fetch.await.map_err(|error| server_error("", &error))?;
                print_path(path, &value)
            }
        }
    }

    /// The server prints tables itself; this only lays them out.
    async fn table(
        &self,
        line: &Line,
        resource: &ApiResource,
        capabilities: &ApiCapabilities,
        name: Option<&str>,
    ) -> anyhow::Result<String> {
        let namespace = line.namespace.as_deref().unwrap_or("default");
        let mut url = match capabilities.scope {
            Scope::Namespaced => DynamicObject::url_path(resource, Some(namespace)),
            Scope::Cluster => DynamicObject::url_path(resource, None),
        };
        if let Some(name) = name {
            url = format!("{url}/{name}");
        } else if let Some(selector) = &line.selector {
            url = format!("{url}?labelSelector={selector}");
        }
        let request = http::Request::get(url)
            .header(http::header::ACCEPT, "application/json;as=Table;v=v1;g=meta.k8s.io,application/json")
            .body(Vec::new())?;
        let table: Value = self.client.request(request).await.map_err(|error| server_error("", &error))?;
        let wide = line.output.is_some();
        let columns: Vec<(usize, String)> = table["columnDefinitions"]
            .as_array()
            .into_iter()
            .flatten()
            .enumerate()
            .filter(|(_, column)| wide || column["priority"].as_i64().unwrap_or(0) == 0)
            .map(|(at, column)| (at, column["name"].as_str().unwrap_or_default().to_uppercase()))
            .collect();
        let mut rows = vec![columns.iter().map(|(_, name)| name.clone()).collect::<Vec<_>>()];
        for row in table["rows"].as_array().into_iter().flatten() {
            rows.push(columns.iter().map(|(at, _)| cell(&row["cells"][*at])).collect());
        }
        if rows.len() == 1 {
            return Ok(format!("No resources found in {namespace} namespace.\n"));
        }
        Ok(aligned(&rows, 3))
    }

    async fn describe(&self, line: &Line, kind: &str, name: &str) -> anyhow::Result<String> {
        let (resource, capabilities) = self.resolve(kind).await?;
        let api = self.api(&resource, &capabilities, line.namespace.as_deref());
        let object = json!(api.get(name).await.map_err(|error| server_error("", &error))?);
        if resource.kind != "ResourceQuota" {
            return Ok(serde_saphyr::to_string(&object)?);
        }
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let mut rows = vec![vec!["Resource".to_owned(), "Used".to_owned(), "Hard".to_owned()]];
        rows.push(rows[0].iter().map(|word| "-".repeat(word.len())).collect());
        for (name, hard) in object["status"]["hard"].as_object().into_iter().flatten() {
            rows.push(vec![name.clone(), cell(&object["status"]["used"][name]), cell(hard)]);
        }
        let head = vec![
            vec!["Name:".to_owned(), text("/metadata/name")],
            vec!["Namespace:".to_owned(), text("/metadata/namespace")],
        ];
        // kubectl lays both out in one table.
        let all: Vec<Vec<String>> = head.into_iter().chain(rows).collect();
        Ok(aligned(&all, 2))
    }

    async fn scale(&self, line: &Line, kind: &str, name: &str) -> anyhow::Result<String> {
        let (resource, capabilities) = self.resolve(kind).await?;
        let api = self.api(&resource, &capabilities, line.namespace.as_deref());
        let replicas = line.replicas.context("--replicas=N is needed")?;
        let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
        api.patch_scale(name, &PatchParams::default(), &patch).await.map_err(|error| server_error("", &error))?;
        Ok(format!("{} scaled\n", shown_name(&resource, name)))
    }

    async fn patch(&self, line: &Line, kind: &str, name: &str) -> anyhow::Result<String> {
        let (resource, capabilities) = self.resolve(kind).await?;
        let api = self.api(&resource, &capabilities, line.namespace.as_deref());
        let patch: Value = serde_json::from_str(line.patch.as_deref().context("--patch is needed")?)?;
        let done = api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
        done.map_err(|error| server_error("", &error))?;
        Ok(format!("{} patched\n", shown_name(&resource, name)))
    }

    async fn mark(&self, line: &Line, verb: &str, kind: &str, name: &str, pairs: &[&str]) -> anyhow::Result<String> {
        let (resource, capabilities) = self.resolve(kind).await?;
        let api = self.api(&resource, &capabilities, line.namespace.as_deref());
        let mut marks = json!({});
        for pair in pairs {
            match (pair.split_once('='), pair.strip_suffix('-')) {
                (Some((key, value)), _) => marks[key] = value.into(),
                (None, Some(key)) => marks[key] = Value::Null,
                (None, None) => bail!("{pair:?} is neither key=value nor key-"),
            }
        }
        let field = if verb == "label" { "labels" } else { "annotations" };
        let patch = Patch::Merge(json!({"metadata": {field: marks}}));
        api.patch(name, &PatchParams::default(), &patch).await.map_err(|error| server_error("", &error))?;
        let past = if verb == "label" { "labeled" } else { "annotated" };
        Ok(format!("{} {past}\n", shown_name(&resource, name)))
    }

    fn api(&self, resource: &ApiResource, can: &ApiCapabilities, namespace: Option<&str>) -> Api<DynamicObject> {
        match can.scope {
            Scope::Namespaced => Api::namespaced_with(self.client.clone(), namespace.unwrap_or("default"), resource),
            Scope::Cluster => Api::all_with(self.client.clone(), resource),
        }
    }

    async fn resolve_kind(&self, kind: &GroupVersionKind) -> anyhow::Result<(ApiResource, ApiCapabilities)> {
        let discovery = Discovery::new(self.client.clone()).run_aggregated().await?;
        discovery.resolve_gvk(kind).with_context(|| format!("no matches for kind {:?}", kind.kind))
    }

    /// A resource by its plural, singular, kind or, for the few the tours use, short name.
    async fn resolve(&self, word: &str) -> anyhow::Result<(ApiResource, ApiCapabilities)> {
        let long = match word {
            "quota" => "resourcequotas",
            "ns" => "namespaces",
            "po" => "pods",
            "deploy" => "deployments",
            "rs" => "replicasets",
            "cm" => "configmaps",
            "pvc" => "persistentvolumeclaims",
            other => other,
        };
        let discovery = Discovery::new(self.client.clone()).run_aggregated().await?;
        let mut found: Vec<_> = discovery
            .groups_alphabetical()
            .into_iter()
            .flat_map(|group| group.recommended_resources())
            .filter(|(resource, _)| {
                let kind = resource.kind.to_lowercase();
                resource.plural == long
                    || kind == long.to_lowercase()
                    || format!("{}.{}", resource.plural, resource.group) == long
            })
            .collect();
        found.sort_by_key(|(resource, _)| (!resource.group.is_empty(), resource.group.clone()));
        let missing = || anyhow!("error: the server doesn't have a resource type {word:?}");
        found.into_iter().next().ok_or_else(missing)
    }
}

#[derive(Copy, Clone)]
enum Verb {
    Create,
    Apply,
    Delete,
}

impl Line {
    fn parse(text: &str) -> anyhow::Result<Line> {
        let mut words = split(text).into_iter();
        if words.next().as_deref() != Some("kubectl") {
            bail!("a tour types kubectl commands only, not {text:?}");
        }
        let mut line = Line::default();
        while let Some(word) = words.next() {
            if !word.starts_with('-') {
                line.words.push(word);
                continue;
            }
            let (flag, given) = match word.split_once('=') {
                Some((flag, value)) if flag != "-l" => (flag.to_owned(), Some(value.to_owned())),
                _ => (word.clone(), None),
            };
            if flag == "--overwrite" {
                continue;
            }
            let value = given.or_else(|| words.next()).with_context(|| format!("{flag} needs a value"))?;
            match flag.as_str() {
                "-n" | "--namespace" => line.namespace = Some(value),
                "-f" | "--filename" => line.files.push(value),
                "-o" | "--output" => line.output = Some(value),
                "-l" | "--selector" => line.selector = Some(value),
                "--replicas" => line.replicas = Some(value.parse()?),
                "-p" | "--patch" => line.patch = Some(value),
                "--type" => {}
                other => bail!("the tour does not know the flag {other}"),
            }
        }
        Ok(line)
    }
}

/// Splits at spaces; single quotes hold together.
pub fn split(text: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quoted = false;
    for character in text.chars() {
        match (character, words.last_mut()) {
            ('\'', _) => quoted = !quoted,
            (' ', _) if !quoted => words.push(String::new()),
            (other, Some(word)) => word.push(other),
            (_, None) => {}
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// `deployment.apps/web`, as kubectl names things.
fn shown_name(resource: &ApiResource, name: &str) -> String {
    format!("{}/{name}", full_kind(resource))
}

fn full_kind(resource: &ApiResource) -> String {
    let kind = resource.kind.to_lowercase();
    if resource.group.is_empty() { kind } else { format!("{kind}.{}", resource.group) }
}

fn server_error(doing: &str, error: &kube::Error) -> anyhow::Error {
    match error {
        kube::Error::Api(status) => anyhow!("Error from server ({}): {doing}{}", status.reason, status.message),
        other => anyhow!("{doing}{other}"),
    }
}

/// What a path finds, printed as kubectl prints it.
fn print_path(path: &str, value: &Value) -> anyhow::Result<String> {
    let path = JsonPath::compile(path)?;
    text(&path.find(value, MissingKeys::Allow)?).context("the answer is too long to print")
}

fn cell(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "<none>".to_owned(),
        other => other.to_string(),
    }
}

/// Columns padded to their widest cell and `gap` spaces; the last one is not padded.
fn aligned(rows: &[Vec<String>], gap: usize) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    // The last cell of a row pushes nothing to the right, so that it does not count.
    let padded = |column: usize| rows.iter().filter(move |row| column + 1 < row.len()).map(move |row| &row[column]);
    let width = |column: usize| padded(column).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let mut out = String::new();
    for row in rows {
        let mut line = String::new();
        for (at, cell) in row.iter().enumerate() {
            line.push_str(cell);
            if at + 1 < row.len() {
                let pad = widths[at].saturating_sub(cell.chars().count()) + gap;
                line.extend(std::iter::repeat_n(' ', pad));
            }
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}
