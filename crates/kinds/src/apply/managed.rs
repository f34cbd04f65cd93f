//! `metadata.managedFields`: who owns which fields, read from and written to an object.

use serde_json::{Map, Value};

use super::set::FieldSet;

/// Entries of operation Update kept before the oldest are put together. Controllers with generated names would otherwise
/// make the list, and with it every object, grow without end. The bound and the name are Kubernetes'.
pub const UPDATERS_MAX: usize = 10;

/// The manager that stands for the oldest updates once there are more than [`UPDATERS_MAX`].
pub const OLD_UPDATES_MANAGER: &str = "ancient-changes";

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    Apply,
    Update,
}

impl Operation {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

/// One manager's fields.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    pub manager: String,
    pub operation: Operation,
    pub api_version: String,
    pub subresource: String,
    /// RFC 3339; absent in entries that came without.
    pub time: Option<String>,
    pub fields: FieldSet,
}

impl Entry {
    /// Whether two entries are one manager's. An applier stays itself when it moves to another version.
    pub fn is_same_manager(&self, other: &Entry) -> bool {
        self.manager == other.manager
            && self.operation == other.operation
            && self.subresource == other.subresource
            && (self.operation == Operation::Apply || self.api_version == other.api_version)
    }

    /// The key by which managers are sorted in messages: Kubernetes sorts the JSON of the identifying fields.
    pub(super) fn sort_key(&self) -> String {
        let mut key =
            format!("{{\"manager\":{},\"operation\":\"{}\"", Value::from(&*self.manager), self.operation.as_str());
        if self.operation == Operation::Update {
            key.push_str(&format!(",\"apiVersion\":{}", Value::from(&*self.api_version)));
        }
        if !self.subresource.is_empty() {
            key.push_str(&format!(",\"subresource\":{}", Value::from(&*self.subresource)));
        }
        key.push('}');
        key
    }

    fn into_value(self) -> Value {
        let mut out = Map::new();
        out.insert("apiVersion".into(), self.api_version.into());
        out.insert("fieldsType".into(), "FieldsV1".into());
        out.insert("fieldsV1".into(), self.fields.into_value());
        out.insert("manager".into(), self.manager.into());
        out.insert("operation".into(), self.operation.as_str().into());
        if !self.subresource.is_empty() {
            out.insert("subresource".into(), self.subresource.into());
        }
        if let Some(time) = self.time {
            out.insert("time".into(), time.into());
        }
        Value::Object(out)
    }
}

/// All managers of an object.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Managed {
    pub entries: Vec<Entry>,
}

impl Managed {
    /// The managers an object names; an error says which entry is unusable.
    pub fn of(object: &Value) -> Result<Self, String> {
        match object.get("metadata").and_then(|metadata| metadata.get("managedFields")) {
            None | Some(Value::Null) => Ok(Self::default()),
            Some(entries) => Self::read(entries),
        }
    }

    /// Reads the list itself.
    pub fn read(entries: &Value) -> Result<Self, String> {
        let Value::Array(entries) = entries else { return Err("metadata.managedFields must be a list".into()) };
        let mut managed = Self::default();
        for (i, entry) in entries.iter().enumerate() {
            let entry = read_entry(entry, i)?;
            // Of two entries of one manager the later stands, as in a map.
            managed.entries.retain(|other| !other.is_same_manager(&entry));
            managed.entries.push(entry);
        }
        Ok(managed)
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn take(&mut self, like: &Entry) -> Option<Entry> {
        let at = self.entries.iter().position(|entry| entry.is_same_manager(like))?;
        Some(self.entries.swap_remove(at))
    }

    /// Writes the managers into an object in Kubernetes' order: appliers first, then by time and name.
    pub(super) fn write(mut self, object: &mut Value) {
        self.entries.retain(|entry| !entry.fields.is_empty());
        fn order(entry: &Entry) -> (Operation, &Option<String>, &str, &str, &str) {
            (entry.operation, &entry.time, &entry.manager, &entry.api_version, &entry.subresource)
        }
        self.entries.sort_by(|a, b| order(a).cmp(&order(b)));
        if self.entries.is_empty() {
            strip_from(object);
        } else if let Some(Value::Object(metadata)) = object.as_object_mut().map(|object| {
            // Who gave up the last of the metadata still owns other fields.
            object.entry("metadata").or_insert_with(|| Value::Object(Map::new()))
        }) {
            let entries = self.entries.into_iter().map(Entry::into_value).collect();
            metadata.insert("managedFields".into(), Value::Array(entries));
        }
    }

    /// Puts the oldest updaters of a version together until at most [`UPDATERS_MAX`] are left.
    pub(super) fn cap(&mut self) {
        let is_updater = |entry: &Entry| entry.operation == Operation::Update;
        let mut count = self.entries.iter().filter(|entry| is_updater(entry)).count();
        if count <= UPDATERS_MAX {
            return;
        }
        let (mut updaters, rest): (Vec<Entry>, Vec<Entry>) =
            std::mem::take(&mut self.entries).into_iter().partition(is_updater);
        self.entries = rest;
        updaters.sort_by(|a, b| (&a.time, &a.manager).cmp(&(&b.time, &b.manager)));
        let mut kept: Vec<Entry> = Vec::new();
        for entry in updaters {
            let older = kept.iter_mut().find(|older| older.api_version == entry.api_version);
            match older {
                Some(older) if count > UPDATERS_MAX => {
                    older.manager = OLD_UPDATES_MANAGER.into();
                    older.subresource.clear();
                    older.fields = std::mem::take(&mut older.fields).union(&entry.fields);
                    older.time = entry.time;
                    count -= 1;
                }
                _ => kept.push(entry),
            }
        }
        self.entries.extend(kept);
    }
}

fn read_entry(entry: &Value, i: usize) -> Result<Entry, String> {
    let text = |name: &str| entry.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let operation = match &*text("operation") {
        "Apply" => Operation::Apply,
        "Update" => Operation::Update,
        _ => return Err("operation must be `Apply` or `Update`".into()),
    };
    let api_version = text("apiVersion");
    if api_version.is_empty() {
        return Err("apiVersion must not be empty".into());
    }
    match &*text("fieldsType") {
        "FieldsV1" => {}
        "" => return Err(format!("missing fieldsType in managed fields entry {i}")),
        other => return Err(format!("invalid fieldsType \"{other}\" in managed fields entry {i}")),
    }
    Ok(Entry {
        manager: text("manager"),
        operation,
        api_version,
        subresource: text("subresource"),
        time: entry.get("time").and_then(Value::as_str).map(str::to_owned),
        fields: FieldSet::read(entry.get("fieldsV1").unwrap_or(&Value::Null))?,
    })
}

/// Takes the list out of an object.
pub(super) fn strip_from(object: &mut Value) -> Option<Value> {
    object.get_mut("metadata")?.as_object_mut()?.remove("managedFields")
}

/// The two spellings of "forget who owns what": an empty list, and a list of one empty entry.
pub(super) fn is_reset(entries: &Value) -> bool {
    match entries.as_array().map(Vec::as_slice) {
        Some([]) => true,
        Some([only]) => only.as_object().is_some_and(|entry| entry.is_empty()),
        _ => false,
    }
}
