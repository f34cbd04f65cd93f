//! A stored object: the bytes that are served, and the few facts that lists, selectors and preconditions ask for.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock, Weak};

use bytes::Bytes;
use families::Parsed;
use kinds::bounds::{DEPTH_MAX, is_text_deeper};
use ledger::SubjectId;
use rules::GroupResource;
use serde_json::{Value, json};

/// Where an object is. The namespace of a cluster-scoped object is empty.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ObjectKey {
    pub resource: GroupResource,
    pub namespace: Arc<str>,
    pub name: Arc<str>,
}

impl From<families::Place> for ObjectKey {
    fn from(place: families::Place) -> ObjectKey {
        ObjectKey { resource: place.resource, namespace: place.namespace, name: place.name }
    }
}

impl ObjectKey {
    pub fn new(resource: GroupResource, namespace: &str, name: &str) -> Self {
        Self { resource, namespace: namespace.into(), name: name.into() }
    }

    /// Whether the store can take its row, and give the same key back. Asked before anything is decided: a row that
    /// the store refuses fails the commit of everybody's.
    pub fn fits_a_row(&self) -> bool {
        let parts = [&*self.resource.group, &*self.resource.resource, &*self.namespace, &*self.name];
        parts.iter().map(|part| part.len()).sum::<usize>() <= NAMES_BYTES_MAX
            && !parts.iter().any(|part| part.as_bytes().contains(&0))
    }

    /// The key of the object's row in the store. The parts hold no zero byte: they are checked names.
    pub fn row(&self) -> Vec<u8> {
        let parts = [&*self.resource.group, &*self.resource.resource, &*self.namespace, &*self.name];
        parts.map(str::as_bytes).join(&0)
    }

    pub fn from_row(row: &[u8]) -> Option<Self> {
        let mut parts = row.split(|byte| *byte == 0).map(|part| std::str::from_utf8(part).ok());
        let mut next = || parts.next().flatten();
        let (group, resource, namespace, name) = (next()?, next()?, next()?, next()?);
        Some(Self::new(GroupResource::new(group, resource), namespace, name))
    }
}

/// The longest that the names in one key may be together; what is between them is a byte each.
pub const NAMES_BYTES_MAX: usize = 4089;

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.resource, self.namespace, self.name)
    }
}

type Marks = Option<BTreeMap<String, String>>;

#[derive(Default, serde::Deserialize)]
#[serde(default)]
struct Marked {
    metadata: MarkedMetadata,
}

#[derive(Default, serde::Deserialize)]
#[serde(default)]
struct MarkedMetadata {
    labels: Marks,
    annotations: Marks,
}

/// An object at one revision. Immutable and shared by the engine, the cache and every watcher.
#[derive(Debug)]
pub struct Object {
    pub key: ObjectKey,
    pub uid: SubjectId,
    pub revision: u64,
    /// The revision at which it was created; 0 for what was stored before this was kept.
    pub born: u64,
    pub labels: Box<[(Box<str>, Box<str>)]>,
    /// The JSON that is served, resourceVersion included.
    pub json: Bytes,
    /// What a family made of it. Boxed: a million objects have none.
    made: OnceLock<Box<Parsed>>,
    /// The same as a tree, for objects that admission reads again and again.
    tree: OnceLock<Arc<Value>>,
    /// The tree that it was written from, for as long as the engine remembers it.
    written: OnceLock<Weak<Value>>,
}

impl Object {
    pub fn new(
        key: ObjectKey,
        uid: SubjectId,
        (revision, born): (u64, u64),
        labels: Box<[(Box<str>, Box<str>)]>,
        json: Bytes,
    ) -> Self {
        Self {
            key,
            uid,
            revision,
            born,
            labels,
            json,
            made: OnceLock::new(),
            tree: OnceLock::new(),
            written: OnceLock::new(),
        }
    }

    pub fn label(&self, name: &str) -> Option<&str> {
        self.labels.iter().find(|(key, _)| **key == *name).map(|(_, value)| &**value)
    }

    /// The object as a tree. What a [`Draft`] made can always be read, and damage is the store's to find, by checksum; so
    /// this fails only for what another version stored. Whoever measures, changes or judges by an object asks here: what
    /// cannot be read keeps what it is charged and is not changed.
    pub fn read(&self) -> Result<Value, Unreadable> {
        serde_json::from_slice(&self.json).map_err(|error| {
            tracing::error!(key = %self.key, %error, "a stored object cannot be read");
            Unreadable { key: self.key.clone(), error: error.to_string() }
        })
    }

    /// The object as a tree for those who only show it, or look at its names. One that cannot be read has those: it is
    /// never nothing.
    pub fn value(&self) -> Value {
        self.read().unwrap_or_else(|_| {
            let labels: serde_json::Map<String, Value> =
                self.labels.iter().map(|(key, value)| (key.to_string(), Value::from(&**value))).collect();
            json!({"metadata": {
                "name": &*self.key.name, "namespace": &*self.key.namespace, "labels": labels,
                "uid": kinds::uid::text(self.uid), "resourceVersion": self.revision.to_string(),
            }})
        })
    }

    /// Whether labels and annotations are those of `other`.
    pub fn has_marks_of(&self, other: &Value) -> bool {
        // The rest of the text is skipped over, not read into a tree.
        let seen: Marked = serde_json::from_slice(&self.json).unwrap_or_default();
        let same = |marks: &Marks, field: &str| {
            let other = other.pointer(field).and_then(Value::as_object);
            let text = |key: &str| other.and_then(|other| other.get(key)).and_then(Value::as_str);
            let count = marks.as_ref().map_or(0, BTreeMap::len);
            count == other.map_or(0, serde_json::Map::len)
                && marks.iter().flatten().all(|(key, value)| text(key) == Some(value))
        };
        same(&seen.metadata.labels, "/metadata/labels") && same(&seen.metadata.annotations, "/metadata/annotations")
    }

    /// The same object in other words, at another revision.
    pub fn said_again(&self, revision: u64, json: Bytes) -> Object {
        Object::new(self.key.clone(), self.uid, (revision, self.born), self.labels.clone(), json)
    }

    /// What a family makes of it, made once. An object belongs to one family, which always makes the same.
    pub fn parsed(&self, make: &dyn Fn(&Value) -> Parsed) -> Parsed {
        Parsed::clone(self.made.get_or_init(|| Box::new(make(&self.value()))))
    }

    /// It was written from this tree, which somebody keeps.
    pub(crate) fn written_from(&self, tree: &Arc<Value>) {
        let _ = self.written.set(Arc::downgrade(tree));
    }

    /// [`Object::value`], or the very tree that it was written from where that is remembered: whoever changes an object again does
    /// not read it again.
    pub fn recent(&self) -> Arc<Value> {
        self.remembered().unwrap_or_else(|| Arc::new(self.value()))
    }

    pub(crate) fn remembered(&self) -> Option<Arc<Value>> {
        self.written.get().and_then(Weak::upgrade)
    }

    /// [`Object::value`], kept for the next who asks. For kinds of which there are few: a tree takes several times the
    /// memory of its text.
    pub fn tree(&self) -> Arc<Value> {
        self.tree.get_or_init(|| Arc::new(self.value())).clone()
    }
}

/// A stored object that is no JSON we read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the stored object {key} cannot be read: {error}")]
pub struct Unreadable {
    pub key: ObjectKey,
    pub error: String,
}

/// An object on its way in: complete but for its revision, which only the sequencer knows.
///
/// The JSON is rendered by the handler, in parallel with others; the sequencer only splices the revision in.
#[derive(Debug)]
pub struct Draft {
    pub uid: SubjectId,
    pub value: Value,
    labels: Box<[(Box<str>, Box<str>)]>,
    rendered: Vec<u8>,
    revision_at: usize,
    is_whole: bool,
}

impl Draft {
    /// Fails when the object has no metadata or no uid: a bug of the caller, answered and not panicked over.
    pub fn new(value: Value) -> Result<Self, DraftError> {
        Self::with_managed_fields(value, None)
    }

    /// The same with `managedFields` as ready text. They can be as large as the object, no rule looks at them, and
    /// a tree of them would be built only to be written.
    pub fn with_managed_fields(mut value: Value, managed: Option<&str>) -> Result<Self, DraftError> {
        let metadata = value.get_mut("metadata").and_then(Value::as_object_mut).ok_or(DraftError::NoMetadata)?;
        metadata.insert("resourceVersion".into(), Value::String(String::new()));
        let uid = metadata.get("uid").and_then(Value::as_str).and_then(parse_uid).ok_or(DraftError::NoUid)?;
        let labels = metadata.get("labels").and_then(Value::as_object).map_or_else(Box::default, |labels| {
            labels.iter().filter_map(|(key, value)| Some((key.as_str().into(), value.as_str()?.into()))).collect()
        });
        let (rendered, revision_at) = render(&value, managed)?;
        if rendered.len() > DRAFT_BYTES_MAX {
            return Err(DraftError::TooLarge(rendered.len()));
        }
        // Looked at as text, because managedFields may be text: deeper, it could be written and not be read again.
        if is_text_deeper(&rendered, DEPTH_MAX) {
            return Err(DraftError::TooDeep);
        }
        Ok(Self { uid, value, labels, rendered, revision_at, is_whole: managed.is_none() })
    }

    /// The length of its text, without the revision.
    pub fn bytes(&self) -> usize {
        self.rendered.len()
    }

    /// Whether its value is all of it: managedFields can be there as text alone.
    pub fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// The whole object as a tree, managedFields included.
    pub fn tree(&self) -> Cow<'_, Value> {
        if self.is_whole {
            return Cow::Borrowed(&self.value);
        }
        serde_json::from_slice(&self.rendered).map_or(Cow::Borrowed(&self.value), Cow::Owned)
    }

    /// The object at `revision`, created at `born`.
    pub fn finish(self, key: ObjectKey, revision: u64, born: u64) -> (Object, Value) {
        let json = splice(&self.rendered, self.revision_at, revision);
        (Object::new(key, self.uid, (revision, born), self.labels, json), self.value)
    }

    /// The object as a dry run shows it: as if it had been stored, at the revision it was based on.
    pub fn preview(self, key: ObjectKey, revision: Option<u64>) -> Object {
        let json = match revision {
            Some(revision) => splice(&self.rendered, self.revision_at, revision),
            None => self.rendered.into(),
        };
        Object::new(key, self.uid, (revision.unwrap_or(0), 0), self.labels, json)
    }
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum DraftError {
    #[error("the object has no metadata")]
    NoMetadata,
    #[error("the object has no valid metadata.uid")]
    NoUid,
    #[error("the object cannot be written as JSON: {0}")]
    Unwritable(String),
    #[error("the object nests deeper than {DEPTH_MAX} levels")]
    TooDeep,
    #[error("the object is {0} bytes long, more than {DRAFT_BYTES_MAX}")]
    TooLarge(usize),
}

/// The longest object that is handed to the store, whoever made it. What users may store is bounded lower; this is far
/// below what a store takes for one row, so that a row is never what a commit fails on.
const DRAFT_BYTES_MAX: usize = 16 * 1024 * 1024;

pub use kinds::uid::parse as parse_uid;

fn splice(rendered: &[u8], at: usize, revision: u64) -> Bytes {
    let digits = revision.to_string();
    let mut json = Vec::with_capacity(rendered.len() + digits.len());
    json.extend_from_slice(&rendered[..at]);
    json.extend_from_slice(digits.as_bytes());
    json.extend_from_slice(&rendered[at..]);
    json.into()
}

/// Writes the object and notes where its (empty) resourceVersion stands. Searching for a mark afterwards would find
/// one that a user wrote into an annotation.
fn render(value: &Value, managed: Option<&str>) -> Result<(Vec<u8>, usize), DraftError> {
    let top = value.as_object().ok_or(DraftError::NoMetadata)?;
    let mut out = Vec::with_capacity(1024);
    let mut at = 0;
    let unwritable = |error: serde_json::Error| DraftError::Unwritable(error.to_string());
    out.push(b'{');
    for (number, (key, field)) in top.iter().enumerate() {
        begin_field(&mut out, number, key).map_err(unwritable)?;
        match (key.as_str(), field) {
            ("metadata", Value::Object(metadata)) => {
                out.push(b'{');
                if let Some(managed) = managed {
                    begin_field(&mut out, 0, "managedFields").map_err(unwritable)?;
                    out.extend_from_slice(managed.as_bytes());
                }
                for (number, (key, field)) in metadata.iter().enumerate() {
                    begin_field(&mut out, number + usize::from(managed.is_some()), key).map_err(unwritable)?;
                    if key == "resourceVersion" {
                        at = out.len() + 1;
                    }
                    serde_json::to_writer(&mut out, field).map_err(unwritable)?;
                }
                out.push(b'}');
            }
            _ => serde_json::to_writer(&mut out, field).map_err(unwritable)?,
        }
    }
    out.push(b'}');
    Ok((out, at))
}

fn begin_field(out: &mut Vec<u8>, number: usize, key: &str) -> serde_json::Result<()> {
    if number > 0 {
        out.push(b',');
    }
    serde_json::to_writer(&mut *out, key)?;
    out.push(b':');
    Ok(())
}

/// Labels or annotations of an object's tree as a map.
pub fn string_map(value: &Value, field: &str) -> BTreeMap<String, String> {
    value
        .pointer("/metadata")
        .and_then(|metadata| metadata.get(field))
        .and_then(Value::as_object)
        .map(|map| map.iter().filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_revision_lands_in_metadata_and_nowhere_else() {
        let value = json!({
            "apiVersion": "v1",
            "metadata": {
                "annotations": {"resourceVersion": "", "note": "\"resourceVersion\":\"\""},
                "name": "a", "uid": "6f1c1a52-5b1e-4d36-9a43-6f0b0a6c2d11", "labels": {"app": "web"},
            },
            "spec": {"metadata": {"resourceVersion": ""}},
        });
        let key = ObjectKey::new(GroupResource::core("configmaps"), "n", "a");
        let (object, _) = Draft::new(value).unwrap().finish(key.clone(), 42, 41);
        let back = object.value();
        assert_eq!(back["metadata"]["resourceVersion"], "42");
        assert_eq!(back["metadata"]["annotations"]["resourceVersion"], "");
        assert_eq!(back["spec"]["metadata"]["resourceVersion"], "");
        assert_eq!(object.label("app"), Some("web"));

        assert_eq!(ObjectKey::from_row(&key.row()), Some(key));
    }

    #[test]
    fn managed_fields_can_come_as_text() {
        let value = json!({"metadata": {"name": "a", "uid": "6f1c1a52-5b1e-4d36-9a43-6f0b0a6c2d11"}});
        let key = ObjectKey::new(GroupResource::core("configmaps"), "n", "a");
        let draft = Draft::with_managed_fields(value, Some(r#"[{"manager":"m"}]"#)).unwrap();
        let back = draft.finish(key, 7, 7).0.value();
        assert_eq!(back["metadata"]["managedFields"][0]["manager"], "m");
        assert_eq!((&back["metadata"]["name"], &back["metadata"]["resourceVersion"]), (&json!("a"), &json!("7")));
    }

    #[test]
    fn what_could_not_be_read_again_is_not_written() {
        let object = |levels: usize| {
            let deep = (0..levels).fold(json!(1), |inner, _| json!({"a": inner}));
            json!({"metadata": {"name": "a", "uid": "6f1c1a52-5b1e-4d36-9a43-6f0b0a6c2d11"}, "spec": deep})
        };
        let key = ObjectKey::new(GroupResource::core("configmaps"), "n", "a");
        let (stored, value) = Draft::new(object(DEPTH_MAX - 1)).unwrap().finish(key.clone(), 1, 1);
        assert_eq!(stored.read().unwrap()["spec"], value["spec"]);
        assert_eq!(Draft::new(object(DEPTH_MAX)).unwrap_err(), DraftError::TooDeep);
        let managed = format!("{}{}", "[".repeat(DEPTH_MAX), "]".repeat(DEPTH_MAX));
        assert_eq!(Draft::with_managed_fields(object(1), Some(&managed)).unwrap_err(), DraftError::TooDeep);
        let long = json!({"metadata": object(1)["metadata"], "data": "x".repeat(DRAFT_BYTES_MAX)});
        assert!(matches!(Draft::new(long), Err(DraftError::TooLarge(_))));
    }

    #[test]
    fn an_object_that_cannot_be_read_is_never_nothing() {
        let key = ObjectKey::new(GroupResource::core("configmaps"), "n", "a");
        let json = format!("{}{}", "[".repeat(200), "]".repeat(200));
        let object = Object::new(key, SubjectId(7), (3, 3), Box::new([("app".into(), "web".into())]), json.into());
        assert!(object.read().is_err());
        let shown = object.value();
        assert_eq!((&shown["metadata"]["name"], &shown["metadata"]["labels"]["app"]), (&json!("a"), &json!("web")));
        assert_eq!(shown["metadata"]["uid"], "00000000-0000-0000-0000-000000000007");
    }

    #[test]
    fn a_draft_without_uid_or_metadata_is_refused() {
        assert_eq!(Draft::new(json!({})).unwrap_err(), DraftError::NoMetadata);
        assert_eq!(Draft::new(json!({"metadata": {"uid": "x"}})).unwrap_err(), DraftError::NoUid);
    }
}
