//! The field set of one object: what somebody who applies exactly this owns.

use std::collections::HashSet;

use serde_json::Value;

use super::cursor::{Atom, Cursor};
use super::element;
use super::set::{FieldSet, Growing, Node, children, has_children, is_member};

pub(super) fn fields_of(cursor: Cursor<'_>, value: &Value) -> FieldSet {
    FieldSet::from_root(walk(cursor, value, false).finish())
}

/// The same with every declared field a member, empty lists included: what is there, as opposed to what is owned.
pub(super) fn places_of(cursor: Cursor<'_>, value: &Value) -> FieldSet {
    with_named_parents(cursor, &FieldSet::from_root(walk(cursor, value, true).finish()))
}

fn walk(cursor: Cursor<'_>, value: &Value, with_empty_lists: bool) -> Growing {
    let mut out = Growing::default();
    match cursor.atom(Some(value)) {
        Atom::Leaf => out.member = true,
        Atom::Fields => {
            for (name, field) in value.as_object().into_iter().flatten() {
                let mut below = walk(cursor.child(name), field, with_empty_lists);
                let is_void = match field {
                    Value::Null => true,
                    Value::Object(fields) => fields.is_empty(),
                    Value::Array(items) => items.is_empty() && with_empty_lists,
                    _ => false,
                };
                // A declared field is owned through what is in it; a key of a map exists because somebody put it there.
                below.member |= is_void || !cursor.declares(name);
                out.insert(element::field(name), below);
            }
        }
        Atom::Items(list) => {
            let mut seen = HashSet::new();
            let items = value.as_array().map_or(&[][..], Vec::as_slice);
            for item in items {
                let Ok(element) = element::item(cursor.catalogue, list, item) else { continue };
                // Items that share an identity are owned together, without looking inside.
                let below = if seen.insert(element.clone()) {
                    walk(cursor.item(list), item, with_empty_lists)
                } else {
                    Growing::default()
                };
                out.insert(element, Growing { member: true, ..below });
            }
        }
    }
    out
}

/// The set with every declared field that leads to a member made a member itself. Removal needs it: a struct field has
/// no entry of its own, and still has to go when all that was applied in it goes.
pub(super) fn with_named_parents(cursor: Cursor<'_>, set: &FieldSet) -> FieldSet {
    FieldSet::from_root(Growing { member: false, children: name_parents(cursor, set.root()) }.finish())
}

fn name_parents(cursor: Cursor<'_>, node: &Node) -> Node {
    let mut out = Growing::default();
    for (element, below) in children(node) {
        let is_named = element.strip_prefix("f:").is_some_and(|name| cursor.declares(name));
        let member = is_member(below) || (is_named && has_children(below));
        out.insert(element.clone(), Growing { member, children: name_parents(cursor.below(element), below) });
    }
    out.children
}
