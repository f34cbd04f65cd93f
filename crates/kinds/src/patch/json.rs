//! JSON patch, RFC 6902, with the behaviours and the words of the API server.
//!
//! Written out instead of taken from a crate because clients see the error texts, and because the server they know
//! departs from the RFC in ways scripts rely on: negative indices count from the end, `replace` of an absent object key
//! adds it, `test` for null passes on an absent key.

use serde_json::Value;

use super::PatchError;
use crate::bounds::{DEPTH_MAX, Weight, is_deeper};
use crate::fields::word;

/// Operations in one patch; Kubernetes' own bound. A patch of this many is a program, not an edit.
pub const OPERATIONS_MAX: usize = 10_000;

/// How much all `copy` operations of one patch may add together. Copies of copies double, so without a bound thirty
/// operations would fill the memory; the request body limit is a natural size.
pub const COPIED_BYTES_MAX: usize = 3 * 1024 * 1024;

/// How many items all operations of one patch may push aside in lists, and how many values they may carry to another
/// place. Both are as large as the object for each operation, so ten thousand operations on a long list would be minutes
/// of work; this is a twentieth of a second.
pub const MOVED_VALUES_MAX: usize = 10_000_000;

/// Applies the operations in order; the first that fails undoes all.
pub fn json_patch(original: Value, patch: &Value) -> Result<Value, PatchError> {
    let Value::Array(operations) = patch else {
        return Err(PatchError::BadRequest(format!(
            "json: cannot unmarshal {} into Go value of type jsonpatch.Patch",
            word(patch)
        )));
    };
    if operations.len() > OPERATIONS_MAX {
        return Err(PatchError::TooLarge(format!(
            "The allowed maximum operations in a JSON patch is {OPERATIONS_MAX}, got {}",
            operations.len()
        )));
    }
    let mut document = original;
    let mut spent = Spent::default();
    for operation in operations {
        let operation = Operation::read(operation)?;
        if let Err(why) = operation.apply(&mut document, &mut spent) {
            return Err(match spent.is_too_much {
                true => PatchError::TooLarge(why),
                false => PatchError::Unprocessable(why),
            });
        }
    }
    Ok(document)
}

/// What the operations of one patch have cost so far.
#[derive(Default)]
struct Spent {
    copied_bytes: usize,
    moved_values: usize,
    is_too_much: bool,
}

impl Spent {
    fn moves(&mut self, values: usize) -> Result<(), String> {
        self.moved_values = self.moved_values.saturating_add(values);
        self.is_too_much |= self.moved_values > MOVED_VALUES_MAX;
        match self.is_too_much {
            true => {
                Err(format!("The operations of a JSON patch may move {MOVED_VALUES_MAX} values, this patch moves more"))
            }
            false => Ok(()),
        }
    }

    fn copies(&mut self, value: Option<&Value>) -> Result<(), String> {
        let bytes = value.map_or(4, |value| Weight::of(value).bytes);
        self.copied_bytes = self.copied_bytes.saturating_add(bytes);
        // The API server answers this as it answers a patch that does not fit.
        match self.copied_bytes > COPIED_BYTES_MAX {
            true => Err(format!(
                "Unable to complete the copy, the accumulated size increase of the JSON patch is {}, exceeding the limit \
                 {COPIED_BYTES_MAX}",
                self.copied_bytes
            )),
            false => Ok(()),
        }
    }
}

struct Operation<'a> {
    op: &'a str,
    path: Option<&'a str>,
    from: Option<&'a str>,
    value: Option<&'a Value>,
}

impl<'a> Operation<'a> {
    fn read(operation: &'a Value) -> Result<Self, PatchError> {
        let Value::Object(fields) = operation else {
            return Err(PatchError::BadRequest(format!(
                "json: cannot unmarshal {} into Go value of type jsonpatch.Operation",
                word(operation)
            )));
        };
        let text = |name: &str| fields.get(name).and_then(Value::as_str);
        Ok(Self {
            op: text("op").unwrap_or("unknown"),
            path: text("path"),
            from: text("from"),
            value: fields.get("value"),
        })
    }

    fn apply(&self, document: &mut Value, spent: &mut Spent) -> Result<(), String> {
        match self.op {
            "add" => self.add(document, spent),
            "remove" => self.remove(document, spent),
            "replace" => self.replace(document),
            "move" => self.move_value(document, spent),
            "test" => self.test(document),
            "copy" => self.copy(document, spent),
            other => Err(format!("Unexpected kind: {other}")),
        }
    }

    fn path(&self) -> Result<&'a str, String> {
        let missing = || format!("{} operation failed to decode path: missing value", self.op);
        self.path.ok_or_else(missing)
    }

    fn from(&self) -> Result<&'a str, String> {
        let missing =
            || format!("{} operation failed to decode from: operation, missing from field: missing value", self.op);
        self.from.ok_or_else(missing)
    }

    /// Whether a value may stand at a path: beyond the depth that everything here is bounded by, walking, cloning and
    /// dropping the document would each overflow the stack.
    fn fits(&self, path: &str, value: Option<&Value>) -> Result<(), String> {
        let too_deep = match DEPTH_MAX.checked_sub(steps(path)) {
            None => true,
            Some(left) => value.is_some_and(|value| is_deeper(value, left)),
        };
        let shown: String = path.chars().take(SHOWN_CHARS_MAX).collect();
        match too_deep {
            true => Err(format!("{} operation does not apply: {shown}: exceeded max depth", self.op)),
            false => Ok(()),
        }
    }

    fn value(&self) -> Value {
        self.value.cloned().unwrap_or(Value::Null)
    }

    fn add(&self, document: &mut Value, spent: &mut Spent) -> Result<(), String> {
        let path = self.path()?;
        self.fits(path, self.value)?;
        let (parent, key) = find(document, path)
            .ok_or_else(|| format!("add operation does not apply: doc is missing path: \"{path}\": missing value"))?;
        insert(parent, &key, self.value(), spent).map_err(|why| format!("error in add for path: '{path}': {why}"))
    }

    fn remove(&self, document: &mut Value, spent: &mut Spent) -> Result<(), String> {
        let path = self.path()?;
        let (parent, key) = find(document, path).ok_or_else(|| {
            format!("remove operation does not apply: doc is missing path: \"{path}\": missing value")
        })?;
        take(parent, &key, spent).map(drop).map_err(|why| format!("error in remove for path: '{path}': {why}"))
    }

    fn replace(&self, document: &mut Value) -> Result<(), String> {
        let path = self.path()?;
        self.fits(path, self.value)?;
        if path.is_empty() {
            let value = self.value();
            if !value.is_object() && !value.is_array() {
                return Err("replace operation value must be object or array".into());
            }
            *document = value;
            return Ok(());
        }
        let (parent, key) = find(document, path)
            .ok_or_else(|| format!("replace operation does not apply: doc is missing path: {path}: missing value"))?;
        let missing = |_| format!("replace operation does not apply: doc is missing key: {path}: missing value");
        match parent {
            Value::Object(fields) => {
                fields.insert(key, self.value());
            }
            Value::Array(items) => {
                let at = index_of(items, &key).map_err(missing)?;
                items[at] = self.value();
            }
            _ => return Err(missing(String::new())),
        }
        Ok(())
    }

    fn move_value(&self, document: &mut Value, spent: &mut Spent) -> Result<(), String> {
        let from = self.from()?;
        let (parent, key) = find(document, from)
            .ok_or_else(|| format!("move operation does not apply: doc is missing from path: {from}: missing value"))?;
        let path = self.path()?;
        // What goes no deeper than it was cannot become too deep.
        if steps(path) > steps(from)
            && let Ok(Some(value)) = look(parent, &key)
        {
            spent.moves(Weight::of(value).values)?;
            self.fits(path, Some(value))?;
        }
        let value = take(parent, &key, spent).map_err(|why| format!("error in move for path: '{key}': {why}"))?;
        let (parent, key) = find(document, path).ok_or_else(|| {
            format!("move operation does not apply: doc is missing destination path: {path}: missing value")
        })?;
        insert(parent, &key, value, spent).map_err(|why| format!("error in move for path: '{path}': {why}"))
    }

    fn copy(&self, document: &mut Value, spent: &mut Spent) -> Result<(), String> {
        let from = self.from()?;
        let (parent, key) = find(document, from)
            .ok_or_else(|| format!("copy operation does not apply: doc is missing from path: {from}: missing value"))?;
        let source = look(parent, &key).map_err(|why| format!("error in copy for from: '{from}': {why}"))?;
        // Measured before it is cloned, so that the bound holds for memory and not only for the result.
        spent.copies(source)?;
        let path = self.path()?;
        self.fits(path, source)?;
        let value = source.cloned().unwrap_or(Value::Null);
        let (parent, key) = find(document, path).ok_or_else(|| {
            format!("copy operation does not apply: doc is missing destination path: {path}: missing value")
        })?;
        insert(parent, &key, value, spent).map_err(|why| format!("error while adding value during copy: {why}"))
    }

    fn test(&self, document: &mut Value) -> Result<(), String> {
        let path = self.path()?;
        let failed = || Err(format!("testing value {path} failed: test failed"));
        let expected = self.value.unwrap_or(&Value::Null);
        if path.is_empty() {
            return if document == expected { Ok(()) } else { failed() };
        }
        let (parent, key) = find(document, path)
            .ok_or_else(|| format!("test operation does not apply: is missing path: {path}: missing value"))?;
        let found = look(parent, &key).map_err(|why| format!("error in test for path: '{path}': {why}"))?;
        if found.unwrap_or(&Value::Null) == expected { Ok(()) } else { failed() }
    }
}

/// The container a pointer's last step is in, and that step unescaped. None when a step before it leads nowhere.
fn find<'d>(document: &'d mut Value, path: &str) -> Option<(&'d mut Value, String)> {
    // What stands before the first slash is not looked at, as in the server this follows.
    let (_, pointer) = path.split_once('/')?;
    let mut parts = pointer.split('/');
    let mut key = parts.next()?;
    let mut at = document;
    for next in parts {
        at = match at {
            Value::Object(fields) => fields.get_mut(&unescape(key))?,
            Value::Array(items) => {
                let index = index_of(items, &unescape(key)).ok()?;
                &mut items[index]
            }
            _ => return None,
        };
        key = next;
    }
    (at.is_object() || at.is_array()).then(|| (at, unescape(key)))
}

/// How much of a path that is too long is repeated.
const SHOWN_CHARS_MAX: usize = 200;

/// How many levels are above what a pointer names.
fn steps(path: &str) -> usize {
    path.bytes().filter(|byte| *byte == b'/').count()
}

fn unescape(part: &str) -> String {
    if part.contains('~') { part.replace("~1", "/").replace("~0", "~") } else { part.to_owned() }
}

fn look<'d>(parent: &'d Value, key: &str) -> Result<Option<&'d Value>, String> {
    match parent {
        Value::Object(fields) => Ok(fields.get(key)),
        Value::Array(items) => Ok(Some(&items[index_of(items, key)?])),
        _ => Err("unknown object type".into()),
    }
}

fn take(parent: &mut Value, key: &str, spent: &mut Spent) -> Result<Value, String> {
    match parent {
        Value::Object(fields) => {
            fields.remove(key).ok_or_else(|| format!("Unable to remove nonexistent key: {key}: missing value"))
        }
        Value::Array(items) => {
            let at = index_of(items, key)?;
            spent.moves(items.len() - at)?;
            Ok(items.remove(at))
        }
        _ => Err("unknown object type".into()),
    }
}

fn insert(parent: &mut Value, key: &str, value: Value, spent: &mut Spent) -> Result<(), String> {
    match parent {
        Value::Object(fields) => {
            fields.insert(key.to_owned(), value);
            Ok(())
        }
        Value::Array(items) if key == "-" => {
            items.push(value);
            Ok(())
        }
        Value::Array(items) => {
            let index: i64 = key.parse().map_err(|_| {
                format!("value was not a proper array index: '{key}': strconv.Atoi: parsing \"{key}\": invalid syntax")
            })?;
            let at = resolve(index, items.len() + 1)?;
            spent.moves(items.len() - at)?;
            items.insert(at, value);
            Ok(())
        }
        _ => Err("unknown object type".into()),
    }
}

fn index_of(items: &[Value], key: &str) -> Result<usize, String> {
    let index: i64 = key.parse().map_err(|_| format!("strconv.Atoi: parsing \"{key}\": invalid syntax"))?;
    resolve(index, items.len())
}

/// A negative index counts from the end.
fn resolve(index: i64, len: usize) -> Result<usize, String> {
    let refused = || format!("Unable to access invalid index: {index}: invalid index referenced");
    let distance = usize::try_from(index.unsigned_abs()).map_err(|_| refused())?;
    let at = if index < 0 { len.checked_sub(distance).ok_or_else(refused)? } else { distance };
    if at < len { Ok(at) } else { Err(refused()) }
}
