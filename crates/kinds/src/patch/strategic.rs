//! Strategic merge patch: a merge patch that knows, from the schema, which lists are merged item by item.
//!
//! What `kubectl apply`, `edit` and `patch` send for built-in kinds. Beside plain fields a patch carries directives:
//!
//! | directive | meaning |
//! |---|---|
//! | `$patch: replace` / `delete` | in an object: take the patch's fields only / empty it; in a list item: replace the list / drop that item |
//! | `$retainKeys: [a, b]` | drop every field of the object not named here |
//! | `$setElementOrder/f: […]` | the order list `f` is to have after merging |
//! | `$deleteFromPrimitiveList/f: […]` | values to remove from the list `f` |
//!
//! The rules are those of the API conventions' document on strategic merge patches; where the document is silent, what
//! the API server does (its quirks are named below where they matter).

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use super::{PatchError, go_text, go_type};
use crate::schema::{Catalogue, Field, Shape, TypeId};

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const SET_ELEMENT_ORDER: &str = "$setElementOrder";
const DELETE_FROM_PRIMITIVE_LIST: &str = "$deleteFromPrimitiveList";

/// Applies a strategic merge patch to an object of type `ty`.
pub fn strategic(original: Value, patch: Value, catalogue: &Catalogue, ty: TypeId) -> Result<Value, PatchError> {
    let Value::Object(patch) = patch else {
        return Err(PatchError::BadRequest("invalid JSON document".into()));
    };
    let Value::Object(original) = original else {
        return Err(wrong_type("map[string]interface {}", &original));
    };
    merge_objects(original, patch, Schema { catalogue, ty: Some(ty) }).map(Value::Object)
}

/// A place in the schema; below free-form JSON there is none, and lists there replace.
#[derive(Clone, Copy)]
struct Schema<'s> {
    catalogue: &'s Catalogue,
    ty: Option<TypeId>,
}

impl<'s> Schema<'s> {
    fn field(self, name: &str) -> Option<&'s Field> {
        self.catalogue.field(self.ty?, name)
    }

    fn child(self, name: &str) -> Self {
        let ty = self.ty.and_then(|ty| match self.catalogue.shape(ty) {
            Shape::Object(_) | Shape::Map { .. } => self.catalogue.child(ty, name),
            _ => None,
        });
        Self { ty, ..self }
    }

    fn item(self) -> Self {
        let ty = self.ty.and_then(|ty| match self.catalogue.shape(ty) {
            Shape::List(list) => Some(list.item),
            _ => None,
        });
        Self { ty, ..self }
    }
}

/// How one list field merges.
#[derive(Clone, Copy)]
struct ListMerge<'s> {
    merge: bool,
    merge_key: Option<&'s str>,
    item: Schema<'s>,
}

impl<'s> ListMerge<'s> {
    fn of(schema: Schema<'s>, name: &str) -> Self {
        let patch = schema.field(name).map(|field| &field.patch);
        Self {
            merge: patch.is_some_and(|patch| patch.merge),
            merge_key: patch.and_then(|patch| patch.merge_key.as_deref()),
            item: schema.child(name).item(),
        }
    }
}

type Object = Map<String, Value>;

fn merge_objects(mut original: Object, mut patch: Object, schema: Schema<'_>) -> Result<Object, PatchError> {
    if let Some(directive) = patch.remove(DIRECTIVE) {
        return match directive.as_str() {
            Some("replace") => match without_directives(Value::Object(patch)) {
                Some(Value::Object(patch)) => Ok(patch),
                _ => Ok(Object::new()),
            },
            Some("delete") => Ok(Object::new()),
            // Merging is what happens anyway; the API server does not know the word here and refuses it.
            _ => Err(unknown_directive(&directive, &patch)),
        };
    }
    retain_keys(&mut original, &mut patch)?;
    order_lists(&mut original, &mut patch, schema)?;
    for (key, change) in patch {
        if let Some(list) = key.strip_prefix(DELETE_FROM_PRIMITIVE_LIST) {
            let name = list
                .strip_prefix('/')
                .ok_or_else(|| PatchError::BadRequest("invalid patch format of primitive list".into()))?;
            delete_from_list(&mut original, name, &change)?;
            continue;
        }
        if change.is_null() {
            original.remove(&key);
            continue;
        }
        let merged = match (original.remove(&key), change) {
            (Some(Value::Object(old)), Value::Object(new)) => {
                if schema.field(&key).is_some_and(|field| field.patch.replace) {
                    Some(Value::Object(new))
                } else {
                    Some(Value::Object(merge_objects(old, new, schema.child(&key))?))
                }
            }
            (Some(Value::Array(old)), Value::Array(new)) => {
                let list = ListMerge::of(schema, &key);
                Some(Value::Array(if list.merge { merge_lists(old, new, list)? } else { new }))
            }
            (_, new) => without_directives(new),
        };
        if let Some(merged) = merged {
            original.insert(key, merged);
        }
    }
    Ok(original)
}

/// `$retainKeys`: the fields the patch names must themselves be retained, else the patch contradicts itself.
fn retain_keys(original: &mut Object, patch: &mut Object) -> Result<(), PatchError> {
    let Some(retained) = patch.remove(RETAIN_KEYS) else { return Ok(()) };
    let malformed = || PatchError::BadRequest("invalid patch format of retainKeys".into());
    let Value::Array(retained) = retained else { return Err(malformed()) };
    let retained: HashSet<&str> = retained.iter().filter_map(Value::as_str).collect();
    for (key, change) in patch.iter() {
        let is_directive = key.starts_with(DELETE_FROM_PRIMITIVE_LIST) || key.starts_with(SET_ELEMENT_ORDER);
        if !change.is_null() && !is_directive && !retained.contains(key.as_str()) {
            return Err(malformed());
        }
    }
    original.retain(|key, _| retained.contains(key.as_str()));
    Ok(())
}

/// Handles every `$setElementOrder/f` with its list `f`, and takes both out of the patch.
fn order_lists(original: &mut Object, patch: &mut Object, schema: Schema<'_>) -> Result<(), PatchError> {
    let directives: Vec<String> = patch.keys().filter(|key| key.starts_with(SET_ELEMENT_ORDER)).cloned().collect();
    for directive in directives {
        let malformed = || PatchError::BadRequest("invalid patch format of setElementOrder list".into());
        let name = directive[SET_ELEMENT_ORDER.len()..].strip_prefix('/').ok_or_else(malformed)?;
        let order = take_list(patch, &directive)?.unwrap_or_default();
        let changes = take_list(patch, name)?;
        let server = take_list(original, name)?;
        let list = ListMerge::of(schema, name);
        check_order(changes.as_deref().unwrap_or_default(), &order, list.merge_key)?;
        let server_order = Order::of(server.as_deref().unwrap_or_default(), list.merge_key);
        let merged = match (server, changes) {
            (None, None) => continue,
            (Some(server), None) => server,
            (None, Some(changes)) => changes.into_iter().filter_map(without_directives).collect(),
            (Some(server), Some(changes)) if list.merge => merge_lists(server, changes, list)?,
            (Some(_), Some(changes)) => changes,
        };
        let merged = arrange(merged, &Order::of(&order, list.merge_key), &server_order, list.merge_key)?;
        original.insert(name.to_owned(), Value::Array(merged));
    }
    Ok(())
}

fn take_list(object: &mut Object, name: &str) -> Result<Option<Vec<Value>>, PatchError> {
    match object.remove(name) {
        None => Ok(None),
        Some(Value::Array(items)) => Ok(Some(items)),
        Some(other) => Err(wrong_type("[]interface {}", &other)),
    }
}

/// The items of the patch must come in the order the directive says: a contradiction is a mistake of whoever made both.
fn check_order(changes: &[Value], order: &[Value], merge_key: Option<&str>) -> Result<(), PatchError> {
    if changes.is_empty() || order.is_empty() {
        return Ok(());
    }
    let mut wanted = order.iter();
    for item in changes {
        if has_directive(item) {
            continue;
        }
        let identity = identity(item, merge_key)?;
        loop {
            let Some(next) = wanted.next() else {
                return Err(PatchError::Unprocessable(format!(
                    "The order in patch list:\n{}\n doesn't match {SET_ELEMENT_ORDER} list:\n{}\n",
                    go_text(&Value::Array(changes.to_vec())),
                    go_text(&Value::Array(order.to_vec())),
                )));
            };
            if self::identity(next, merge_key)? == identity {
                break;
            }
        }
    }
    Ok(())
}

fn delete_from_list(original: &mut Object, name: &str, unwanted: &Value) -> Result<(), PatchError> {
    let Value::Array(unwanted) = unwanted else {
        return Err(PatchError::BadRequest("invalid patch format of primitive list".into()));
    };
    let Some(Value::Array(items)) = original.get_mut(name) else { return Ok(()) };
    let unwanted: HashSet<String> = unwanted.iter().map(Value::to_string).collect();
    items.retain(|item| !unwanted.contains(&item.to_string()));
    Ok(())
}

/// Merges a list whose strategy is `merge`: primitives as a set, objects by their merge key.
fn merge_lists(server: Vec<Value>, changes: Vec<Value>, list: ListMerge<'_>) -> Result<Vec<Value>, PatchError> {
    let Some(kind) = same_kind(&server, &changes)? else { return Ok(server) };
    match (kind, list.merge_key) {
        ("[]interface {}", _) => Err(PatchError::Unprocessable("lists of lists are not supported".into())),
        ("map[string]interface {}", Some(key)) => merge_items(server, changes, key, list.item),
        ("map[string]interface {}", None) => {
            Err(PatchError::Unprocessable("cannot merge lists without merge key".into()))
        }
        _ => {
            let patch_order = Order::of(&changes, None);
            let server_order = Order::of(&server, None);
            let mut seen = HashSet::new();
            let both = server.into_iter().chain(changes).filter(|item| seen.insert(item.to_string())).collect();
            arrange(both, &patch_order, &server_order, None)
        }
    }
}

fn merge_items(
    mut server: Vec<Value>,
    changes: Vec<Value>,
    key: &str,
    schema: Schema<'_>,
) -> Result<Vec<Value>, PatchError> {
    let mut plain = Vec::with_capacity(changes.len());
    let mut deleted = HashSet::new();
    let mut replace = false;
    for change in changes {
        let directive = change.get(DIRECTIVE).cloned();
        match directive.as_ref().map(|directive| directive.as_str()) {
            None => plain.push(change),
            Some(Some("delete")) => {
                deleted.insert(identity(&change, Some(key))?);
            }
            Some(Some("replace")) => replace = true,
            Some(Some("merge")) => {
                return Err(PatchError::Unprocessable("merging lists cannot yet be specified in the patch".into()));
            }
            Some(_) => {
                let item = change.as_object().cloned().unwrap_or_default();
                return Err(unknown_directive(&directive.unwrap_or_default(), &item));
            }
        }
    }
    if replace {
        return Ok(plain.into_iter().filter_map(without_directives).collect());
    }
    if !deleted.is_empty() {
        let mut kept = Vec::with_capacity(server.len());
        for item in server {
            // An item the server holds without its key cannot be meant by any patch; it stays.
            if !identity(&item, Some(key)).is_ok_and(|identity| deleted.contains(&identity)) {
                kept.push(item);
            }
        }
        server = kept;
    }
    let server_order = Order::of(&server, Some(key));
    let patch_order = Order::of(&plain, Some(key));
    let mut merged: Vec<Value> = server;
    let mut at: HashMap<String, usize> = HashMap::with_capacity(merged.len());
    for (i, item) in merged.iter().enumerate() {
        at.entry(identity(item, Some(key))?).or_insert(i);
    }
    for change in plain {
        let identity = identity(&change, Some(key))?;
        match (at.get(&identity), change) {
            (Some(&i), Value::Object(change)) => {
                let Value::Object(old) = std::mem::take(&mut merged[i]) else { continue };
                merged[i] = Value::Object(merge_objects(old, change, schema)?);
            }
            (_, change) => {
                if let Some(item) = without_directives(change) {
                    at.insert(identity, merged.len());
                    merged.push(item);
                }
            }
        }
    }
    arrange(merged, &patch_order, &server_order, Some(key))
}

/// Where each item stands in a list, by identity. A map, because both lists come from clients and may be long.
struct Order(HashMap<String, usize>);

impl Order {
    fn of(items: &[Value], merge_key: Option<&str>) -> Self {
        let mut order = HashMap::with_capacity(items.len());
        for (i, item) in items.iter().enumerate() {
            if let Ok(identity) = identity(item, merge_key) {
                order.entry(identity).or_insert(i);
            }
        }
        Self(order)
    }
}

/// Items the patch names take the patch's order, the others keep the server's, and the two sequences are interleaved by
/// the server's order wherever it knows both neighbours; a new item goes before what it cannot be compared with.
fn arrange(
    merged: Vec<Value>,
    patch_order: &Order,
    server_order: &Order,
    merge_key: Option<&str>,
) -> Result<Vec<Value>, PatchError> {
    let mut named = Vec::new();
    let mut others = Vec::new();
    for item in merged {
        let identity = identity(&item, merge_key)?;
        let server_at = server_order.0.get(&identity).copied();
        match patch_order.0.get(&identity) {
            Some(&at) => named.push((at, server_at, item)),
            None => others.push((server_at.unwrap_or(usize::MAX), server_at, item)),
        }
    }
    named.sort_by_key(|(at, ..)| *at);
    others.sort_by_key(|(at, ..)| *at);
    let mut out = Vec::with_capacity(named.len() + others.len());
    let mut named = named.into_iter().peekable();
    let mut others = others.into_iter().peekable();
    loop {
        let take_other = match (others.peek(), named.peek()) {
            (None, None) => return Ok(out),
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (Some((_, Some(other), _)), Some((_, Some(named), _))) => other < named,
            (Some(_), Some(_)) => false,
        };
        let next = if take_other { others.next() } else { named.next() };
        out.extend(next.map(|(_, _, item)| item));
    }
}

/// What makes a list item itself: its merge key's value, or for primitives the value.
fn identity(item: &Value, merge_key: Option<&str>) -> Result<String, PatchError> {
    let Some(key) = merge_key else { return Ok(item.to_string()) };
    let Value::Object(fields) = item else {
        return Err(wrong_type("map[string]interface {}", item));
    };
    fields.get(key).map(Value::to_string).ok_or_else(|| {
        PatchError::Unprocessable(format!("map: {} does not contain declared merge key: {key}", go_text(item)))
    })
}

/// The one Go type of all items of both lists; none when there are no items.
fn same_kind(server: &[Value], changes: &[Value]) -> Result<Option<&'static str>, PatchError> {
    let mut kinds = server.iter().chain(changes).map(go_type);
    let Some(first) = kinds.next() else { return Ok(None) };
    if kinds.all(|kind| kind == first) {
        return Ok(Some(first));
    }
    let lists = Value::Array(vec![Value::Array(server.to_vec()), Value::Array(changes.to_vec())]);
    Err(PatchError::Unprocessable(format!("list element types are not identical: {}", go_text(&lists))))
}

/// A value that enters the object as new: nulls mean "absent", an object with a `$patch` directive asked for something
/// to be done to a value that is not there, the other directives have nothing to act on.
fn without_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(fields) if fields.contains_key(DIRECTIVE) => None,
        Value::Object(fields) => {
            let kept = fields.into_iter().filter(|(name, field)| !field.is_null() && !is_directive_key(name));
            Some(Value::Object(
                kept.filter_map(|(name, field)| without_directives(field).map(|field| (name, field))).collect(),
            ))
        }
        Value::Array(items) => Some(Value::Array(items.into_iter().filter_map(without_directives).collect())),
        other => Some(other),
    }
}

fn is_directive_key(name: &str) -> bool {
    name == RETAIN_KEYS
        || [SET_ELEMENT_ORDER, DELETE_FROM_PRIMITIVE_LIST]
            .iter()
            .any(|prefix| name.strip_prefix(prefix).is_some_and(|rest| rest.starts_with('/')))
}

fn has_directive(item: &Value) -> bool {
    item.get(DIRECTIVE).is_some()
}

fn wrong_type(expected: &str, actual: &Value) -> PatchError {
    PatchError::Unprocessable(format!("expected a {expected}, but received a {}", go_type(actual)))
}

fn unknown_directive(directive: &Value, item: &Object) -> PatchError {
    let map = go_text(&Value::Object(item.clone()));
    PatchError::Unprocessable(format!("unknown patch type: {} in map: {map}", go_text(directive)))
}
