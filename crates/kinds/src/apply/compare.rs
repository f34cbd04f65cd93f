//! What changed between two versions of an object, as field sets: added, modified, removed.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::cursor::{Atom, Cursor};
use super::element;
use super::set::{FieldSet, Growing};
use crate::schema::List;

#[derive(Debug, Default)]
pub(super) struct Changes {
    pub added: FieldSet,
    pub modified: FieldSet,
    pub removed: FieldSet,
}

/// One version of a value.
#[derive(Clone, Copy)]
pub(super) enum Side<'v> {
    Absent,
    /// Not written out, but there: see `Cursor::exists_when_zero`.
    Zero,
    Is(&'v Value),
}

/// Compares two versions. A missing old version is an object nobody has filled.
pub(super) fn compare(cursor: Cursor<'_>, old: Option<&Value>, new: &Value) -> Changes {
    let delta = walk(cursor, old.map_or(Side::Zero, Side::Is), Side::Is(new));
    Changes {
        added: FieldSet::from_root(delta.added.finish()),
        modified: FieldSet::from_root(delta.modified.finish()),
        removed: FieldSet::from_root(delta.removed.finish()),
    }
}

/// The changes at and below one node.
#[derive(Default)]
struct Delta {
    added: Growing,
    modified: Growing,
    removed: Growing,
}

impl Delta {
    fn insert(&mut self, element: impl FnOnce() -> String, below: Delta) {
        let (added, modified, removed) = (below.added.finish(), below.modified.finish(), below.removed.finish());
        if added.is_none() && modified.is_none() && removed.is_none() {
            return;
        }
        let element = element();
        for (ours, below) in [(&mut self.added, added), (&mut self.modified, modified), (&mut self.removed, removed)] {
            if let Some(node) = below {
                ours.children.insert(element.clone(), Value::Object(node));
            }
        }
    }
}

impl<'v> Side<'v> {
    fn value(self) -> Option<&'v Value> {
        match self {
            Side::Is(value) => Some(value),
            _ => None,
        }
    }

    fn fields(self) -> Option<&'v Map<String, Value>> {
        self.value().and_then(Value::as_object)
    }

    fn items(self) -> &'v [Value] {
        self.value().and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    fn is_empty(self) -> bool {
        match self {
            Side::Absent | Side::Zero | Side::Is(Value::Null) => true,
            Side::Is(Value::Object(fields)) => fields.is_empty(),
            Side::Is(Value::Array(items)) => items.is_empty(),
            Side::Is(_) => false,
        }
    }

    fn child(self, cursor: Cursor<'_>, name: &str) -> Side<'v> {
        if let Some(value) = self.fields().and_then(|fields| fields.get(name)) {
            return Side::Is(value);
        }
        match self {
            Side::Absent => Side::Absent,
            _ if cursor.exists_when_zero(name) => Side::Zero,
            _ => Side::Absent,
        }
    }
}

/// Recursion follows the objects, whose depth the decoder has bounded.
fn walk(cursor: Cursor<'_>, old: Side<'_>, new: Side<'_>) -> Delta {
    let mut delta = Delta::default();
    match cursor.atom_of_both(old.value(), new.value()) {
        Atom::Leaf => return leaf(old, new),
        // Two empty containers have nothing inside to tell apart, so they are compared as they stand.
        _ if old.is_empty() && new.is_empty() => return leaf(old, new),
        Atom::Fields => {
            let empty = Map::new();
            let (olds, news) = (old.fields().unwrap_or(&empty), new.fields().unwrap_or(&empty));
            for name in olds.keys().filter(|name| !news.contains_key(*name)).chain(news.keys()) {
                let below = walk(cursor.child(name), old.child(cursor, name), new.child(cursor, name));
                delta.insert(|| element::field(name), below);
            }
        }
        Atom::Items(list) => walk_items(cursor, list, old, new, &mut delta),
    }
    match (old, new) {
        (Side::Absent, _) => delta.added.member = true,
        (_, Side::Absent) => delta.removed.member = true,
        _ => {}
    }
    delta
}

fn leaf(old: Side<'_>, new: Side<'_>) -> Delta {
    let mut delta = Delta::default();
    match (old, new) {
        (Side::Absent, Side::Absent) => {}
        (Side::Absent, _) => delta.added.member = true,
        (_, Side::Absent) => delta.removed.member = true,
        (Side::Is(old), Side::Is(new)) => delta.modified.member = old != new,
        (Side::Zero, Side::Zero) => {}
        (Side::Zero, Side::Is(value)) | (Side::Is(value), Side::Zero) => delta.modified.member = !is_zero(value),
    }
    delta
}

pub(super) fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.values().all(is_zero),
    }
}

/// The items of a list that share one identity. More than one only in objects stored before their list had a type.
#[derive(Default)]
struct Twins<'v> {
    old: Vec<&'v Value>,
    new: Vec<&'v Value>,
}

fn walk_items(cursor: Cursor<'_>, list: &List, old: Side<'_>, new: Side<'_>, delta: &mut Delta) {
    let (olds, news) = (old.items(), new.items());
    if olds == news {
        return;
    }
    let mut order: Vec<(String, Twins<'_>)> = Vec::with_capacity(olds.len().max(news.len()));
    let mut at: HashMap<String, usize> = HashMap::with_capacity(order.capacity());
    let items = olds.iter().map(|item| (item, false)).chain(news.iter().map(|item| (item, true)));
    for (item, is_new) in items {
        // An item without identity belongs to nobody. Applying one is refused; one that is stored stays unowned.
        let Ok(element) = element::item(cursor.catalogue, list, item) else { continue };
        let index = *at.entry(element).or_insert_with_key(|element| {
            order.push((element.clone(), Twins::default()));
            order.len() - 1
        });
        let twins = &mut order[index].1;
        if is_new { twins.new.push(item) } else { twins.old.push(item) }
    }
    let item = cursor.item(list);
    for (element, twins) in order {
        delta.insert(|| element, twins.walk(item));
    }
}

impl Twins<'_> {
    fn walk(&self, item: Cursor<'_>) -> Delta {
        let old = self.old.first().map_or(Side::Absent, |value| Side::Is(value));
        let new = self.new.first().map_or(Side::Absent, |value| Side::Is(value));
        match (self.old.len(), self.new.len()) {
            (0 | 1, 0 | 1) => walk(item, old, new),
            (0 | 1, _) => {
                let mut delta = walk(item, old, Side::Absent);
                delta.added.member = true;
                delta
            }
            (_, 0 | 1) => {
                let mut delta = walk(item, Side::Absent, new);
                delta.removed.member = true;
                delta
            }
            _ => {
                let mut delta = Delta::default();
                delta.modified.member = self.old != self.new;
                delta
            }
        }
    }
}
