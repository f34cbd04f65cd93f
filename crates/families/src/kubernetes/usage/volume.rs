//! What a persistent volume claim uses: storage, in whole bytes, of a storage class.

use kinds::fields::{at, text};
use kinds::resources::{Measured, UsageError, quantity_of};
use serde_json::Value;

/// The legacy way to name a claim's class; where present it wins.
const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";

/// The storage a claim is charged: what it asks for, or what it has been given while that is more (an expansion that
/// failed and was scaled back).
pub fn storage(claim: &Value) -> Result<Option<Measured>, UsageError> {
    let Some(asked) = at(claim, &["spec", "resources", "requests", "storage"]) else { return Ok(None) };
    let asked = whole_bytes(asked)?;
    let Some(given) = at(claim, &["status", "allocatedResources", "storage"]) else { return Ok(Some(asked)) };
    let given = whole_bytes(given)?;
    Ok(Some(if given.amount > asked.amount { given } else { asked }))
}

fn whole_bytes(value: &Value) -> Result<Measured, UsageError> {
    Ok(Measured::of(quantity_of("storage", value)?.round_up_units()))
}

/// The claim's storage class, empty if it names none.
pub fn storage_class(claim: &Value) -> &str {
    match at(claim, &["metadata", "annotations", CLASS_ANNOTATION]).and_then(Value::as_str) {
        Some(class) => class,
        None => text(claim, &["spec", "storageClassName"]),
    }
}

/// Every volume attributes class the claim refers to: wanted, in effect, and on the way.
pub fn attributes_classes(claim: &Value) -> impl Iterator<Item = &str> {
    let paths: [&[&str]; 3] = [
        &["spec", "volumeAttributesClassName"],
        &["status", "currentVolumeAttributesClassName"],
        &["status", "modifyVolumeStatus", "targetVolumeAttributesClassName"],
    ];
    paths.into_iter().map(|path| text(claim, path)).filter(|name| !name.is_empty())
}
