//! Tables: what `kubectl get` prints, made by the server.

mod age;
mod builtin;
mod cells;

use rules::jsonpath::{Found, JsonPath, MissingKeys, text};
use serde_json::{Value, json};

use super::meta;
use crate::registry::{PrinterColumn, Served};

/// A column of a table.
#[derive(Clone)]
struct Column {
    name: String,
    kind: String,
    format: String,
    description: String,
    priority: i64,
    cell: Cell,
}

/// How a cell is made.
#[derive(Clone)]
enum Cell {
    Name,
    Age,
    /// What stands at a JSON pointer.
    Pointer(&'static str),
    /// A function of the object and the time.
    Call(fn(&Value, i64) -> Value),
    /// A path into a custom resource, and whether a time stands there, which is shown as an age.
    Path {
        path: Option<JsonPath>,
        date: bool,
    },
}

/// How objects of a kind are printed.
pub(super) struct Table {
    columns: Vec<Column>,
}

const NAME: &str = "Name must be unique within a namespace. Is required when creating resources, although some resources \
    may allow a client to request the generation of an appropriate name automatically.";
const AGE: &str = "CreationTimestamp is a timestamp representing the server time when this object was created.";

impl Table {
    pub fn of(served: &Served) -> Table {
        let (group, plural) = (&*served.resource.group, &*served.resource.resource);
        let name = Column::new("Name", "string", "name", NAME, Cell::Name);
        let rest = match served.custom.as_ref().map(|custom| custom.columns.as_slice()) {
            None if !served.printed.is_empty() => {
                let age = Column::new("Age", "string", "", AGE, Cell::Age);
                served.printed.iter().map(Column::custom).chain([age]).collect()
            }
            None => builtin::columns(group, plural),
            Some([]) => vec![Column::new("Age", "string", "", AGE, Cell::Age)],
            Some(own) => own.iter().map(Column::custom).collect(),
        };
        let is_ours = served.custom.is_some() || !served.printed.is_empty();
        let named = is_ours || builtin::starts_with_name(group, plural);
        Table { columns: named.then_some(name).into_iter().chain(rest).collect() }
    }

    /// The column definitions.
    pub fn columns(&self) -> Value {
        let shown = self.columns.iter().map(|column| {
            json!({
                "name": column.name,
                "type": column.kind,
                "format": column.format,
                "description": column.description,
                "priority": column.priority,
            })
        });
        shown.collect()
    }

    /// One object's cells.
    pub fn cells(&self, object: &Value, now_ms: i64) -> Vec<Value> {
        let at = |pointer: &str| object.pointer(pointer).cloned();
        self.columns
            .iter()
            .map(|column| match &column.cell {
                Cell::Name => meta::text(object, "name").into(),
                Cell::Age => age::since(meta::text(object, "creationTimestamp"), now_ms).into(),
                Cell::Pointer(pointer) => at(pointer).unwrap_or_else(|| column.nothing()),
                Cell::Call(cell) => cell(object, now_ms),
                Cell::Path { path, date } => custom_cell(path.as_ref(), *date, object, now_ms),
            })
            .collect()
    }
}

impl Column {
    fn new(name: &str, kind: &str, format: &str, description: &str, cell: Cell) -> Column {
        Column {
            name: name.into(),
            kind: kind.into(),
            format: format.into(),
            description: description.into(),
            priority: 0,
            cell,
        }
    }

    fn builtin(name: &str, kind: &str, priority: i64, cell: Cell) -> Column {
        let description = if matches!(cell, Cell::Age) { AGE } else { "" };
        Column { priority, ..Column::new(name, kind, "", description, cell) }
    }

    fn custom(column: &PrinterColumn) -> Column {
        let description = match column.description.as_str() {
            "" => format!("Custom resource definition column (in JSONPath format): {}", column.json_path),
            given => given.to_owned(),
        };
        Column {
            name: column.name.clone(),
            kind: column.kind.clone(),
            format: column.format.clone(),
            description,
            priority: column.priority,
            // A path that does not compile shows nothing; the definition's validation is the place to refuse it.
            cell: Cell::Path { path: JsonPath::compile(&column.json_path).ok(), date: column.kind == "date" },
        }
    }

    /// The cell of a field that a built-in object does not have: Go's zero value.
    fn nothing(&self) -> Value {
        if self.kind == "integer" { 0.into() } else { "".into() }
    }
}

fn custom_cell(path: Option<&JsonPath>, date: bool, object: &Value, now_ms: i64) -> Value {
    let found = path.and_then(|path| path.find(object, MissingKeys::Allow).ok()).unwrap_or_default();
    match found.as_slice() {
        [] | [Found::Json(Value::Null)] => Value::Null,
        [Found::Json(Value::String(time))] if date => age::since(time, now_ms).into(),
        [Found::Json(one @ (Value::String(_) | Value::Number(_) | Value::Bool(_)))] => (*one).clone(),
        many => text(many).map_or(Value::Null, Value::String),
    }
}
