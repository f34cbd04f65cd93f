//! JSON patch, RFC 6902, with the behaviours and the words of the API server.
//!
//! Written out instead of taken from a crate because clients see the error texts, and because the server they know
//! departs from the RFC in ways scripts rely on: negative indices count from the end, `replace` of an absent object key
//! adds it, `test` for null passes on an absent key.

use serde_json::Value;

use super::PatchError;

/// Operations in one patch; Kubernetes' own bound. A patch of this many is a program, not an edit.
pub const OPERATIONS_MAX: usize = 10_000;

/// How much all `copy` operations of one patch may add together. Copies of copies double, so without a bound thirty
/// operations would fill the memory; the request body limit is a natural size.
pub const COPIED_BYTES_MAX: usize = 3 * 1024 * 1024;

/// Applies the operations in order; the first that fails undoes all.
pub fn json_patch(original: Value, patch: &Value) -> Result<Value, PatchError> {
    let Value::Array(operations) = patch else {
        return Err(PatchError::BadRequest(format!(
            "json: cannot unmarshal {} into Go value of type jsonpatch.Patch",
            json_kind(patch)
        )));
    };
    if operations.len() > OPERATIONS_MAX {
        return Err(PatchError::TooLarge(format!(
            "The allowed maximum operations in a JSON patch is {OPERATIONS_MAX}, got {}",
            operations.len()
        )));
    }
    let mut document = original;
    let mut copied_bytes = 0;
    for operation in operations {
        let operation = Operation::read(operation)?;
        operation.apply(&mut document, &mut copied_bytes).map_err(PatchError::Unprocessable)?;
    }
    Ok(document)
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
                json_kind(operation)
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

    fn apply(&self, document: &mut Value, copied_bytes: &mut usize) -> Result<(), String> {
        match self.op {
            "add" => self.add(document),
            "remove" => self.remove(document),
            "replace" => self.replace(document),
            "move" => self.move_value(document),
            "test" => self.test(document),
            "copy" => self.copy(document, copied_bytes),
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

    fn value(&self) -> Value {
        self.value.cloned().unwrap_or(Value::Null)
    }

    fn add(&self, document: &mut Value) -> Result<(), String> {
        let path = self.path()?;
        let (parent, key) = find(document, path)
            .ok_or_else(|| format!("add operation does not apply: doc is missing path: \"{path}\": missing value"))?;
        insert(parent, &key, self.value()).map_err(|why| format!("error in add for path: '{path}': {why}"))
    }

    fn remove(&self, document: &mut Value) -> Result<(), String> {
        let path = self.path()?;
        let (parent, key) = find(document, path).ok_or_else(|| {
            format!("remove operation does not apply: doc is missing path: \"{path}\": missing value")
        })?;
        take(parent, &key).map(drop).map_err(|why| format!("error in remove for path: '{path}': {why}"))
    }

    fn replace(&self, document: &mut Value) -> Result<(), String> {
        let path = self.path()?;
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

    fn move_value(&self, document: &mut Value) -> Result<(), String> {
        let from = self.from()?;
        let (parent, key) = find(document, from)
            .ok_or_else(|| format!("move operation does not apply: doc is missing from path: {from}: missing value"))?;
        let value = take(parent, &key).map_err(|why| format!("error in move for path: '{key}': {why}"))?;
        let path = self.path()?;
        let (parent, key) = find(document, path).ok_or_else(|| {
            format!("move operation does not apply: doc is missing destination path: {path}: missing value")
        })?;
        insert(parent, &key, value).map_err(|why| format!("error in move for path: '{path}': {why}"))
    }

    fn copy(&self, document: &mut Value, copied_bytes: &mut usize) -> Result<(), String> {
        let from = self.from()?;
        let (parent, key) = find(document, from)
            .ok_or_else(|| format!("copy operation does not apply: doc is missing from path: {from}: missing value"))?;
        let source = look(parent, &key).map_err(|why| format!("error in copy for from: '{from}': {why}"))?;
        // Measured before it is cloned, so that the bound holds for memory and not only for the result.
        *copied_bytes = copied_bytes.saturating_add(source.map_or(4, json_bytes));
        if *copied_bytes > COPIED_BYTES_MAX {
            return Err(format!(
                "Unable to complete the copy, the accumulated size increase of the JSON patch is {copied_bytes}, \
                 exceeding the limit {COPIED_BYTES_MAX}"
            ));
        }
        let value = source.cloned().unwrap_or(Value::Null);
        let path = self.path()?;
        let (parent, key) = find(document, path).ok_or_else(|| {
            format!("copy operation does not apply: doc is missing destination path: {path}: missing value")
        })?;
        insert(parent, &key, value).map_err(|why| format!("error while adding value during copy: {why}"))
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

fn take(parent: &mut Value, key: &str) -> Result<Value, String> {
    match parent {
        Value::Object(fields) => {
            fields.remove(key).ok_or_else(|| format!("Unable to remove nonexistent key: {key}: missing value"))
        }
        Value::Array(items) => {
            let at = index_of(items, key)?;
            Ok(items.remove(at))
        }
        _ => Err("unknown object type".into()),
    }
}

fn insert(parent: &mut Value, key: &str, value: Value) -> Result<(), String> {
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

/// About how long a value is as JSON. Counting instead of printing, because the answer may be "too long".
fn json_bytes(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) => 5,
        Value::Number(_) => 8,
        Value::String(text) => text.len() + 2,
        Value::Array(items) => items.iter().map(|item| json_bytes(item) + 1).sum::<usize>() + 2,
        Value::Object(fields) => {
            fields.iter().map(|(name, field)| name.len() + 4 + json_bytes(field)).sum::<usize>() + 2
        }
    }
}

fn json_kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
