//! A place in the schema, and how ownership works there: as one leaf, field by field, key by key or item by item.

use serde_json::Value;

use crate::schema::{Catalogue, List, ListType, Shape, TypeId};

/// A type in the catalogue, or none below fields the schema does not describe. Undescribed values are owned by what they
/// look like: objects key by key, everything else whole; in built-in kinds they are owned whole in any case.
#[derive(Clone, Copy)]
pub(super) struct Cursor<'s> {
    pub catalogue: &'s Catalogue,
    pub ty: Option<TypeId>,
}

pub(super) enum Atom<'s> {
    /// Owned as a whole.
    Leaf,
    /// An object, owned field by field or key by key; `Cursor::child` leads on.
    Fields,
    /// A list owned item by item.
    Items(&'s List),
}

impl<'s> Cursor<'s> {
    /// How a value here is owned. Values that do not fit their schema are leaves: typing is checked elsewhere.
    pub fn atom(self, value: Option<&Value>) -> Atom<'s> {
        let shape = self.ty.map(|ty| self.catalogue.shape(ty));
        let (is_object, is_list) = match value {
            None | Some(Value::Null) => (true, true),
            Some(value) => (value.is_object(), value.is_array()),
        };
        match shape {
            Some(Shape::Object(object)) if !object.atomic && is_object => Atom::Fields,
            Some(Shape::Map { atomic: false, .. }) if is_object => Atom::Fields,
            Some(Shape::List(list)) if list.list_type != ListType::Atomic && is_list => Atom::Items(list),
            Some(Shape::Any) | None if !self.catalogue.opaque && value.is_some_and(Value::is_object) => Atom::Fields,
            _ => Atom::Leaf,
        }
    }

    /// How two versions of a value are compared: by their common nature, else as leaves.
    pub fn atom_of_both(self, old: Option<&Value>, new: Option<&Value>) -> Atom<'s> {
        let present = |value: Option<&Value>| value.is_some_and(|value| !value.is_null());
        match (present(old), present(new)) {
            (true, true) => match (self.atom(old), self.atom(new)) {
                (Atom::Leaf, _) | (_, Atom::Leaf) => Atom::Leaf,
                (atom, _) => atom,
            },
            (true, false) => self.atom(old),
            (false, _) => self.atom(new),
        }
    }

    pub fn child(self, name: &str) -> Self {
        let ty = match self.ty.map(|ty| self.catalogue.shape(ty)) {
            Some(Shape::Object(object)) => object.field(name).map(|field| field.ty),
            Some(Shape::Map { value, .. }) => Some(*value),
            _ => None,
        };
        Self { ty, ..self }
    }

    pub fn item(self, list: &List) -> Self {
        Self { ty: Some(list.item), ..self }
    }

    /// The cursor below a path element of a field set.
    pub fn below(self, element: &str) -> Self {
        if let Some(name) = element.strip_prefix("f:") {
            return self.child(name);
        }
        let ty = match self.ty.map(|ty| self.catalogue.shape(ty)) {
            Some(Shape::List(list)) => Some(list.item),
            _ => None,
        };
        Self { ty, ..self }
    }

    /// Whether the element is a declared field of an object, as opposed to a key of a map.
    pub fn declares(self, name: &str) -> bool {
        self.ty.is_some_and(|ty| self.catalogue.field(ty, name).is_some())
    }

    /// Whether the field exists even in an object nobody has filled: Go's structs always carry the fields without
    /// `omitempty` and the structs held by value. Such a field is not "added" by whoever writes into it first, which is
    /// why Kubernetes shows `f:spec` without a `.` of its own, but `f:labels` with one.
    pub fn exists_when_zero(self, name: &str) -> bool {
        let Some(field) = self.ty.and_then(|ty| self.catalogue.field(ty, name)) else { return false };
        let is_struct = matches!(
            self.catalogue.shape(field.ty),
            Shape::Object(_) | Shape::Time | Shape::MicroTime | Shape::IntOrString | Shape::Quantity
        );
        !field.omit_empty || (!field.pointer && is_struct)
    }
}
