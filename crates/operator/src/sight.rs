//! An object as a list, a watch or a review shows it.

use std::sync::Arc;

use engine::{Draft, DraftError, ObjectKey};
use ledger::SubjectId;
use rules::GroupResource;
use serde_json::Value;

/// One object as it is stored in the cluster, or gone.
#[derive(Debug)]
pub struct Seen {
    pub key: ObjectKey,
    pub uid: SubjectId,
    pub version: u64,
    /// None for one that was deleted.
    pub draft: Option<Draft>,
}

#[derive(Debug, thiserror::Error)]
pub enum SightError {
    #[error("has no metadata.{0}")]
    Without(&'static str),
    #[error("has resourceVersion {0:?}, which is no number: versions of its API server cannot be compared")]
    Version(String),
    #[error(transparent)]
    Draft(#[from] DraftError),
}

impl Seen {
    /// Reads it from what the API server sent.
    pub fn there(resource: &GroupResource, mut object: Value) -> Result<Seen, SightError> {
        let (key, uid, version) = names(resource, &object)?;
        slim(&mut object);
        Ok(Seen { key, uid, version, draft: Some(Draft::new(object)?) })
    }

    /// The resource that it defines, where it is a definition.
    pub fn defined(&self) -> Option<GroupResource> {
        if !self.key.resource.is("apiextensions.k8s.io", "customresourcedefinitions") {
            return None;
        }
        self.key.name.split_once('.').map(|(plural, group)| GroupResource::new(group, plural))
    }

    pub fn gone(resource: &GroupResource, object: &Value) -> Result<Seen, SightError> {
        let (key, uid, version) = names(resource, object)?;
        Ok(Seen { key, uid, version, draft: None })
    }
}

/// Leaves out what nobody here looks at.
pub fn slim(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
}

fn names(resource: &GroupResource, object: &Value) -> Result<(ObjectKey, SubjectId, u64), SightError> {
    let text = |field: &'static str| object["metadata"][field].as_str();
    let name = text("name").ok_or(SightError::Without("name"))?;
    let uid = text("uid").and_then(engine::parse_uid).ok_or(SightError::Without("uid"))?;
    let namespace: Arc<str> = text("namespace").unwrap_or_default().into();
    let key = ObjectKey { resource: resource.clone(), namespace, name: name.into() };
    Ok((key, uid, version_of(object)?))
}

/// The version at which it is stored. Kubernetes says since 1.35 that these are numbers that grow, and all versions before kept to it.
pub fn version_of(object: &Value) -> Result<u64, SightError> {
    let version = object["metadata"]["resourceVersion"].as_str().filter(|version| !version.is_empty());
    let version = version.ok_or(SightError::Without("resourceVersion"))?;
    version.parse().map_err(|_| SightError::Version(version.to_owned()))
}
