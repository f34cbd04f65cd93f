//! The file that kube-apiserver takes as `--admission-control-config-file`: an AdmissionConfiguration with a
//! configuration for each plugin. Of the plugins it can configure, ResourceQuota is the one there is here.

use std::path::{Path, PathBuf};

use families::kubernetes::limited::{LimitedResource, read_configuration};
use serde_json::Value;

use crate::config::{ConfigError, read_file};

/// The resources that may only be used where a quota covers them, as the file states them.
pub fn limited_resources(path: &Path) -> Result<Vec<LimitedResource>, ConfigError> {
    let invalid = |path: &Path, why: String| ConfigError::Parse { path: path.into(), why };
    let document = parse(path)?;
    let mut limited = Vec::new();
    for plugin in plugins(&document).map_err(|why| invalid(path, why))? {
        let (path, configuration) = match plugin {
            Plugin::Inline(configuration) => (path.to_owned(), configuration),
            // A relative path is meant from where the file itself lies.
            Plugin::File(named) => {
                let at = path.parent().unwrap_or(Path::new(".")).join(named);
                let configuration = parse(&at)?;
                (at, configuration)
            }
        };
        limited.extend(read_configuration(&configuration).map_err(|why| invalid(&path, why))?);
    }
    Ok(limited)
}

enum Plugin {
    Inline(Value),
    File(PathBuf),
}

fn parse(path: &Path) -> Result<Value, ConfigError> {
    let text = read_file(path)?;
    serde_saphyr::from_str(&text).map_err(|error| ConfigError::Parse { path: path.into(), why: error.to_string() })
}

/// The configurations of ResourceQuota. Anything that is not understood is refused: a limit that is silently not in force
/// is worse than a server that does not start.
fn plugins(document: &Value) -> Result<Vec<Plugin>, String> {
    let text = |value: &Value, field: &str| value[field].as_str().unwrap_or_default().to_owned();
    let (version, kind) = (text(document, "apiVersion"), text(document, "kind"));
    let versions = ["apiserver.config.k8s.io/v1", "apiserver.k8s.io/v1alpha1"];
    if !versions.contains(&&*version) || kind != "AdmissionConfiguration" {
        return Err(format!("no kind {kind:?} is known for version {version:?}"));
    }
    only(document, &["apiVersion", "kind", "plugins"])?;
    let listed = match &document["plugins"] {
        Value::Null => &[][..],
        Value::Array(list) => list,
        _ => return Err("plugins is not a list".into()),
    };
    let mut found = Vec::new();
    for plugin in listed {
        only(plugin, &["name", "path", "configuration"])?;
        let (name, file) = (text(plugin, "name"), text(plugin, "path"));
        if name != "ResourceQuota" {
            return Err(format!("plugins: {name:?} cannot be configured here, only \"ResourceQuota\""));
        }
        found.push(match (&plugin["configuration"], file.is_empty()) {
            (Value::Null, true) => return Err(format!("plugins: {name:?} has neither a configuration nor a path")),
            (Value::Null, false) => Plugin::File(file.into()),
            (configuration, true) => Plugin::Inline(configuration.clone()),
            (_, false) => return Err(format!("plugins: {name:?} has a configuration and a path")),
        });
    }
    Ok(found)
}

fn only(object: &Value, fields: &[&str]) -> Result<(), String> {
    let Some(object) = object.as_object() else { return Err("an object is wanted".into()) };
    let unknown = object.keys().find(|name| !fields.contains(&name.as_str()));
    unknown.map_or(Ok(()), |name| Err(format!("strict decoding error: unknown field {name:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUOTA: &str = "
apiVersion: apiserver.config.k8s.io/v1
kind: ResourceQuotaConfiguration
limitedResources:
- resource: persistentvolumeclaims
  matchContains: [gold.storageclass.storage.k8s.io/requests.storage]
- resource: pods
  matchScopes: [{scopeName: PriorityClass, operator: In, values: [cluster-services]}]
";

    fn file(plugins: &str) -> Result<Vec<LimitedResource>, String> {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("quota.yaml"), QUOTA).expect("written");
        let path = folder.path().join("admission.yaml");
        let text = format!("apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\n{plugins}");
        std::fs::write(&path, text).expect("written");
        limited_resources(&path).map_err(|error| error.to_string())
    }

    #[test]
    fn the_shape_of_kubernetes_is_read() {
        let inline = QUOTA.trim().replace('\n', "\n    ");
        let stated =
            file(&format!("plugins:\n- name: ResourceQuota\n  configuration:\n    {inline}\n")).expect("valid");
        let named = file("plugins: [{name: ResourceQuota, path: quota.yaml}]").expect("valid");
        assert_eq!(stated, named);
        assert_eq!(stated.len(), 2);
        assert_eq!(stated[0].match_contains, ["gold.storageclass.storage.k8s.io/requests.storage"]);
        assert_eq!(file("plugins: []"), Ok(Vec::new()));
    }

    #[test]
    fn what_is_not_understood_stops_the_start() {
        for (plugins, wanted) in [
            ("plugins: [{name: ImagePolicyWebhook, path: x}]", "\"ImagePolicyWebhook\" cannot be configured"),
            ("plugins: [{name: ResourceQuota}]", "neither a configuration nor a path"),
            ("plugins: [{name: ResourceQuota, path: missing.yaml}]", "missing.yaml"),
            ("plugins: [{name: ResourceQuota, configuration: {kind: X, apiVersion: y}}]", "no kind \"X\" is known"),
            ("plugin: []", "unknown field \"plugin\""),
            ("plugins: 5", "not a list"),
        ] {
            let error = file(plugins).expect_err(plugins);
            assert!(error.contains(wanted), "{plugins}: {error}");
        }
    }
}
