//! Laying an applied configuration over the live object, and taking fields out of an object.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use super::cursor::{Atom, Cursor};
use super::element;
use super::set::{Node, child, has_children, is_member};
use crate::schema::List;

/// The live object with the applied fields set. None when nothing is left of the value.
pub(super) fn merge(cursor: Cursor<'_>, live: Option<&Value>, applied: Option<&Value>) -> Option<Value> {
    let leaf = || applied.or(live).cloned();
    let is_void = |value: Option<&Value>| match value {
        None | Some(Value::Null) => true,
        Some(Value::Object(fields)) => fields.is_empty(),
        Some(Value::Array(items)) => items.is_empty(),
        Some(_) => false,
    };
    match cursor.atom_of_both(live, applied) {
        Atom::Leaf => leaf(),
        _ if is_void(live) && is_void(applied) => leaf(),
        Atom::Fields => {
            let empty = Map::new();
            let lives = live.and_then(Value::as_object).unwrap_or(&empty);
            let applieds = applied.and_then(Value::as_object).unwrap_or(&empty);
            let mut out = Map::new();
            for name in lives.keys().chain(applieds.keys().filter(|name| !lives.contains_key(*name))) {
                if let Some(value) = merge(cursor.child(name), lives.get(name), applieds.get(name)) {
                    out.insert(name.clone(), value);
                }
            }
            (!out.is_empty()).then_some(Value::Object(out))
        }
        Atom::Items(list) => merge_items(cursor, list, items(live), items(applied)),
    }
}

fn items(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Merges two lists by the identity of their items. The applied order holds among the items both have; items only the
/// live object has keep their place between their neighbours.
fn merge_items(cursor: Cursor<'_>, list: &List, live: &[Value], applied: &[Value]) -> Option<Value> {
    let identify = |items: &[Value]| -> Vec<String> {
        items.iter().map(|item| element::item(cursor.catalogue, list, item).unwrap_or_default()).collect()
    };
    let (live_ids, applied_ids) = (identify(live), identify(applied));
    let applied_at: HashMap<&str, usize> = applied_ids.iter().enumerate().map(|(i, id)| (id.as_str(), i)).collect();
    // A live identity that occurs twice cannot be merged with anything: the applied item takes the place of all.
    let mut live_at: HashMap<&str, Option<usize>> = HashMap::with_capacity(live.len());
    for (i, id) in live_ids.iter().enumerate() {
        live_at.entry(id).and_modify(|at| *at = None).or_insert(Some(i));
    }
    let mut shared = applied_ids.iter().map(String::as_str).filter(|id| live_at.contains_key(id)).peekable();
    let mut out = Vec::with_capacity(live.len().max(applied.len()));
    let mut done: HashSet<&str> = HashSet::with_capacity(applied.len());
    let take_applied = |out: &mut Vec<Value>, at: usize| {
        let counterpart = live_at.get(applied_ids[at].as_str()).copied().flatten().map(|at| &live[at]);
        out.extend(merge(cursor.item(list), counterpart, Some(&applied[at])));
    };
    let (mut l, mut a) = (0, 0);
    while l < live.len() || a < applied.len() {
        if let Some(id) = live_ids.get(l).map(String::as_str) {
            if !applied_at.contains_key(id) {
                out.push(live[l].clone());
                l += 1;
                continue;
            }
            if let Some(next) = applied_ids.get(a) {
                // A shared item whose turn in the applied order has not come is placed by that order, not here.
                if next != id && shared.peek().is_some_and(|turn| *turn != id) {
                    l += 1;
                    continue;
                }
                if next == id {
                    l += 1;
                }
            }
            if done.contains(id) {
                l += 1;
            }
        }
        if let Some(id) = applied_ids.get(a).map(String::as_str) {
            take_applied(&mut out, a);
            done.insert(id);
            if shared.peek() == Some(&id) {
                shared.next();
            }
            a += 1;
        }
    }
    (!out.is_empty()).then_some(Value::Array(out))
}

/// What stays in the place of an object or list that lost all it had.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Emptied {
    /// Nothing: the result is to be stored.
    Gone,
    /// A null, which still counts as a field in the field set of the result.
    Null,
}

/// The value without the members of `unwanted`. None when nothing is left of it.
pub(super) fn remove(cursor: Cursor<'_>, value: &Value, unwanted: &Node, emptied: Emptied) -> Option<Value> {
    if unwanted.is_empty() {
        return Some(value.clone());
    }
    let remains = |cursor: Cursor<'_>, value: &Value, element: &str| match child(unwanted, element) {
        None => Some(value.clone()),
        Some(node) if is_member(node) => None,
        Some(node) if has_children(node) => remove(cursor, value, node, emptied),
        Some(_) => Some(value.clone()),
    };
    let rest = (emptied == Emptied::Null).then_some(Value::Null);
    match (cursor.atom(Some(value)), value) {
        (Atom::Fields, Value::Object(fields)) => {
            let kept: Map<String, Value> = fields
                .iter()
                .filter_map(|(name, field)| {
                    Some((name.clone(), remains(cursor.child(name), field, &element::field(name))?))
                })
                .collect();
            if kept.is_empty() { rest } else { Some(Value::Object(kept)) }
        }
        (Atom::Items(list), Value::Array(items)) => {
            let kept: Vec<Value> = items
                .iter()
                .filter_map(|item| match element::item(cursor.catalogue, list, item) {
                    Ok(element) => remains(cursor.item(list), item, &element),
                    Err(_) => Some(item.clone()),
                })
                .collect();
            if kept.is_empty() { rest } else { Some(Value::Array(kept)) }
        }
        // The schema has become atomic since these members were recorded: they stand for the whole.
        (Atom::Leaf, Value::Object(_) | Value::Array(_)) => rest,
        _ => Some(value.clone()),
    }
}
