//! Filling in defaults.
//!
//! A field that is absent, or null where null is no value, takes its default; a null without a default is dropped. The
//! default of an object is written first and then completed from the defaults inside it, so outer values win. A short
//! list of `{}` can have long defaults in every item: what is filled in stops at a [`Room`], before it is written.

use serde_json::Value;

use super::{ERRORS_MAX, Structural, VALIDATION_STEPS_MAX, prune, validate};
use crate::bounds::{Room, TooLarge};
use crate::field_error::{FieldError, Path, Reason};
use crate::schema::{Catalogue, Shape, TypeId};

pub(super) fn default(catalogue: &Catalogue, ty: TypeId, value: &mut Value, room: &mut Room) -> Result<(), TooLarge> {
    match (catalogue.shape(ty), value) {
        (Shape::Object(object), Value::Object(fields)) => {
            for field in object.fields() {
                let ty = catalogue.get(field.ty);
                let is_missing = match fields.get(&*field.name) {
                    None => true,
                    Some(Value::Null) => !ty.nullable,
                    Some(_) => false,
                };
                if is_missing {
                    match &ty.default {
                        Some(value) => {
                            room.take(&field.name, value)?;
                            fields.insert(field.name.to_string(), value.clone());
                        }
                        None => {
                            fields.remove(&*field.name);
                        }
                    }
                }
                if let Some(value) = fields.get_mut(&*field.name) {
                    default(catalogue, field.ty, value, room)?;
                }
            }
        }
        (Shape::Map { value, .. }, Value::Object(fields)) => {
            let ty = catalogue.get(*value);
            fields.retain(|_, field| !field.is_null() || ty.nullable || ty.default.is_some());
            for field in fields.values_mut() {
                fill(catalogue, *value, field, room)?;
            }
        }
        (Shape::List(list), Value::Array(items)) => {
            for item in items {
                fill(catalogue, list.item, item, room)?;
            }
        }
        _ => {}
    }
    Ok(())
}

fn fill(catalogue: &Catalogue, ty: TypeId, value: &mut Value, room: &mut Room) -> Result<(), TooLarge> {
    let node = catalogue.get(ty);
    if value.is_null()
        && !node.nullable
        && let Some(filling) = &node.default
    {
        room.take("", filling)?;
        *value = filling.clone();
    }
    default(catalogue, ty, value, room)
}

/// Defaults must fit the schema they stand in, or every object would be invalid from birth.
pub(super) fn check(structural: &Structural, schema: &Value, path: &Path<'_>) -> Vec<FieldError> {
    let mut check = Check { structural, errors: Vec::new(), room: Room::default(), steps: VALIDATION_STEPS_MAX };
    check.walk(structural.root, schema, path);
    check.errors
}

/// All defaults of a schema are checked in one room and one count of steps: a schema may hold thousands.
struct Check<'s> {
    structural: &'s Structural,
    errors: Vec<FieldError>,
    room: Room,
    steps: usize,
}

impl Check<'_> {
    fn walk(&mut self, ty: TypeId, schema: &Value, path: &Path<'_>) {
        let catalogue = &self.structural.catalogue;
        if self.errors.len() >= ERRORS_MAX {
            return;
        }
        if let Some(value) = schema.get("default").filter(|value| !value.is_null()) {
            let at = path.child("default");
            let mut pruned = value.clone();
            if !prune::prune(catalogue, ty, &mut pruned).is_empty() {
                self.errors.push(FieldError::invalid(at, value.clone(), "must not have unknown fields"));
            }
            if let Err(why) = default(catalogue, ty, &mut pruned, &mut self.room) {
                self.errors.push(FieldError::forbidden(at, why.to_string()));
                return;
            }
            let at = at.to_string();
            for mut error in validate::validate_part(self.structural, ty, &pruned, &mut self.steps) {
                error.path = match error.path.as_str() {
                    "" | "<nil>" => at.clone(),
                    inner => format!("{at}.{inner}"),
                };
                self.errors.push(error);
            }
        } else if schema.get("default").is_some_and(Value::is_null) && !catalogue.get(ty).nullable {
            let at = path.child("default");
            self.errors.push(FieldError::new(
                at,
                Reason::Invalid,
                Some(Value::Null),
                "must not be null when nullable is false",
            ));
        }
        for (name, property) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
            if let Some(field) = catalogue.field(ty, name) {
                self.walk(field.ty, property, &path.child("properties").key(name));
            }
        }
        for keyword in ["items", "additionalProperties"] {
            if let (Some(below), Some(inner)) =
                (catalogue.child(ty, ""), schema.get(keyword).filter(|inner| inner.is_object()))
            {
                self.walk(below, inner, &path.child(keyword));
            }
        }
    }
}
