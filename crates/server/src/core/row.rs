//! A stored object as a row.

use bytes::Bytes;
use engine::{NAMES_BYTES_MAX, Object, ObjectKey};
use ledger::SubjectId;

/// What stands before the row of an object in the key of a fact about it.
pub(super) const DUE_ROW: &[u8] = b"due/";

// Whatever key the engine lets in, the store takes it: what is between its four names is a byte each.
const _: () = assert!(NAMES_BYTES_MAX + 3 + DUE_ROW.len() <= store::KEY_BYTES_MAX);

const VERSION: u8 = 2;
/// Without the revision of the creation.
const VERSION_UNBORN: u8 = 1;

/// The row's value: facts first, so that a start does not have to parse a million objects.
pub(super) fn encode(object: &Object) -> Bytes {
    let labels: usize = object.labels.iter().map(|(key, value)| key.len() + value.len() + 8).sum();
    let mut row = Vec::with_capacity(1 + 8 + 8 + 16 + 4 + labels + object.json.len());
    row.push(VERSION);
    row.extend_from_slice(&object.revision.to_le_bytes());
    row.extend_from_slice(&object.born.to_le_bytes());
    row.extend_from_slice(&object.uid.0.to_le_bytes());
    row.extend_from_slice(&(object.labels.len() as u32).to_le_bytes());
    for text in object.labels.iter().flat_map(|(key, value)| [key, value]) {
        row.extend_from_slice(&(text.len() as u32).to_le_bytes());
        row.extend_from_slice(text.as_bytes());
    }
    row.extend_from_slice(&object.json);
    row.into()
}

pub fn decode(key: ObjectKey, row: &[u8]) -> Option<Object> {
    let mut rest = row;
    let version = *take(&mut rest, 1)?.first()?;
    if !(VERSION_UNBORN..=VERSION).contains(&version) {
        return None;
    }
    let revision = u64::from_le_bytes(take(&mut rest, 8)?.try_into().ok()?);
    let born = match version {
        VERSION_UNBORN => 0,
        _ => u64::from_le_bytes(take(&mut rest, 8)?.try_into().ok()?),
    };
    let uid = SubjectId(u128::from_le_bytes(take(&mut rest, 16)?.try_into().ok()?));
    let count = u32::from_le_bytes(take(&mut rest, 4)?.try_into().ok()?);
    let mut text = || -> Option<Box<str>> {
        let length = u32::from_le_bytes(take(&mut rest, 4)?.try_into().ok()?);
        Some(std::str::from_utf8(take(&mut rest, length as usize)?).ok()?.into())
    };
    let labels = (0..count).map(|_| Some((text()?, text()?))).collect::<Option<Vec<_>>>()?;
    Some(Object::new(key, uid, (revision, born), labels.into(), Bytes::copy_from_slice(rest)))
}

fn take<'a>(rest: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (head, tail) = rest.split_at_checked(count)?;
    *rest = tail;
    Some(head)
}

#[cfg(test)]
mod tests {
    use engine::Draft;
    use rules::GroupResource;
    use serde_json::json;

    use super::*;

    #[test]
    fn an_object_is_read_as_it_was_written_and_as_older_versions_wrote_it() {
        let value = json!({"metadata": {
            "name": "a", "uid": "6f1c1a52-5b1e-4d36-9a43-6f0b0a6c2d11", "labels": {"app": "web"},
        }});
        let key = ObjectKey::new(GroupResource::core("configmaps"), "n", "a");
        let (object, _) = Draft::new(value).unwrap().finish(key.clone(), 42, 41);
        let again = decode(key.clone(), &encode(&object)).unwrap();
        assert_eq!((again.uid, again.revision, again.born, &again.json), (object.uid, 42, 41, &object.json));
        assert_eq!(again.label("app"), Some("web"));
        let mut old = encode(&object).to_vec();
        old.drain(9..17);
        old[0] = 1;
        let old = decode(key, &old).unwrap();
        assert_eq!((old.uid, old.revision, old.born, &old.json), (object.uid, 42, 0, &object.json));
    }
}
