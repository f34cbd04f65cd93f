//! What the server does to `metadata`, the same for every kind: the fields it owns, and the checks of those it does not.

use kinds::field_error::{FieldError, Reason};
use kinds::names::name_problems;
use kinds::structural::ERRORS_MAX;
use rules::selector::{label_key_problems, label_value_problems};
use serde_json::{Map, Value};

use super::status::{ApiError, ApiResult};
use crate::registry::Served;

/// All annotations of an object together, keys and values; Kubernetes' bound.
const ANNOTATIONS_BYTES_MAX: usize = 256 * 1024;
/// A generated name ends in this many random characters…
const SUFFIX_CHARS: usize = 5;
/// …and is at most as long as a DNS label, whatever the prefix.
const GENERATED_NAME_BYTES_MAX: usize = 63;
/// Consonants and digits that cannot be misread and spell no words.
const SUFFIX_ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// `metadata`, made if the client sent none.
pub fn metadata(object: &mut Value) -> ApiResult<&mut Map<String, Value>> {
    let Value::Object(top) = object else {
        return Err(ApiError::bad_request("the object in the request is not a JSON object"));
    };
    match top.entry("metadata").or_insert_with(|| Value::Object(Map::new())) {
        Value::Object(metadata) => Ok(metadata),
        _ => Err(ApiError::bad_request("metadata must be an object")),
    }
}

pub fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object.get("metadata").and_then(|metadata| metadata.get(field)).and_then(Value::as_str).unwrap_or_default()
}

pub fn is_set(object: &Value, field: &str) -> bool {
    object.get("metadata").and_then(|metadata| metadata.get(field)).is_some_and(|value| !value.is_null())
}

pub fn finalizers(object: &Value) -> Vec<&str> {
    let list = object.get("metadata").and_then(|metadata| metadata.get("finalizers")).and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Gives a field the value it had, or none.
pub fn put_back(object: &mut Value, field: &str, value: Option<Value>) -> ApiResult<()> {
    let metadata = metadata(object)?;
    match value.filter(|value| !value.is_null()) {
        Some(value) => metadata.insert(field.to_owned(), value),
        None => metadata.remove(field),
    };
    Ok(())
}

/// Puts the namespace of the request into the object, or finds that the object has another one.
pub fn settle_namespace(object: &mut Value, namespace: &str) -> ApiResult<()> {
    let metadata = metadata(object)?;
    match metadata.get("namespace").and_then(Value::as_str).unwrap_or_default() {
        given if given == namespace => {}
        _ if namespace.is_empty() => {
            metadata.remove("namespace");
        }
        "" => {
            metadata.insert("namespace".into(), namespace.into());
        }
        _ => {
            let why = "the namespace of the provided object does not match the namespace sent on the request";
            return Err(ApiError::bad_request(why));
        }
    }
    Ok(())
}

/// Brings the metadata of a new object into its first state and returns its name.
pub fn prepare_create(object: &mut Value, served: &Served, namespace: &str, now_ms: i64) -> ApiResult<String> {
    settle_namespace(object, namespace)?;
    let metadata = metadata(object)?;
    if metadata.get("resourceVersion").and_then(Value::as_str).is_some_and(|version| !version.is_empty()) {
        return Err(ApiError::bad_request("resourceVersion should not be set on objects to be created"));
    }
    for owned in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "resourceVersion", "generation"] {
        metadata.remove(owned);
    }
    let uid = uuid::Uuid::new_v4();
    let generated = metadata.get("generateName").and_then(Value::as_str).unwrap_or_default();
    let name = match metadata.get("name").and_then(Value::as_str).unwrap_or_default() {
        "" if !generated.is_empty() => {
            let name = generate_name(generated);
            metadata.insert("name".into(), name.as_str().into());
            name
        }
        given => given.to_owned(),
    };
    metadata.insert("uid".into(), uid.hyphenated().to_string().into());
    metadata.insert("creationTimestamp".into(), kinds::time::text(now_ms).into());
    if let Some(first) = served.strategy.first_generation() {
        metadata.insert("generation".into(), first.into());
    }
    Ok(name)
}

fn generate_name(prefix: &str) -> String {
    let mut end = prefix.len().min(GENERATED_NAME_BYTES_MAX - SUFFIX_CHARS);
    while !prefix.is_char_boundary(end) {
        end -= 1;
    }
    let mut random = uuid::Uuid::new_v4().as_u128();
    let mut name = String::with_capacity(end + SUFFIX_CHARS);
    name.push_str(&prefix[..end]);
    let letters = SUFFIX_ALPHABET.len() as u128;
    for _ in 0..SUFFIX_CHARS {
        let letter = usize::try_from(random % letters).unwrap_or_default();
        name.push(char::from(SUFFIX_ALPHABET[letter]));
        random /= letters;
    }
    name
}

/// Carries over what an update may not touch, and finds attempts to touch it.
pub fn prepare_update(object: &mut Value, old: &Value) -> ApiResult<Vec<FieldError>> {
    let mut errors = Vec::new();
    let was = old.get("metadata").and_then(Value::as_object);
    let metadata = metadata(object)?;
    for field in ["uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation"] {
        let (given, stored) = (metadata.get(field).filter(|v| !v.is_null()), was.and_then(|was| was.get(field)));
        let stated = |value: &&Value| field != "generation" && value.as_str() != Some("");
        if let Some(given) = given.filter(|given| stored != Some(*given)).filter(stated) {
            let path = format!("metadata.{field}");
            errors.push(FieldError::invalid(path, given.clone(), "field is immutable"));
        }
        match stored {
            Some(stored) => metadata.insert(field.into(), stored.clone()),
            None => metadata.remove(field),
        };
    }
    metadata.remove("selfLink");
    if metadata.get("deletionTimestamp").is_some_and(|at| !at.is_null()) {
        let before: std::collections::HashSet<&str> = finalizers(old).into_iter().collect();
        let added: Vec<String> =
            finalizers(object).into_iter().filter(|one| !before.contains(*one)).map(|one| format!("{one:?}")).collect();
        if !added.is_empty() {
            errors.push(FieldError::forbidden(
                "metadata.finalizers",
                format!(
                    "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                    added.join(", ")
                ),
            ));
        }
    }
    Ok(errors)
}

/// Counts a change of the spec. Everything but metadata and status is the spec; of metadata, only what is `counted`.
pub fn count_generation(object: &mut Value, old: &Value, counted: &[&str]) -> ApiResult<()> {
    let spec = |object: &Value| -> Vec<(String, Value)> {
        let Value::Object(top) = object else { return Vec::new() };
        let kept = |field: &str| !matches!(field, "metadata" | "status" | "apiVersion" | "kind");
        top.iter().filter(|(field, _)| kept(field)).map(|(field, value)| (field.clone(), value.clone())).collect()
    };
    let before = old.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or(0);
    let part = |object: &Value, part: &str| object["metadata"].get(part).cloned();
    let same = counted.iter().all(|name| part(object, name) == part(old, name)) && spec(object) == spec(old);
    let now = if same { before } else { before.saturating_add(1) };
    if now > 0 {
        metadata(object)?.insert("generation".into(), now.into());
    }
    Ok(())
}

/// What is wrong with the metadata of an object to be stored.
pub fn validate(object: &Value, served: &Served) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let Some(metadata) = object.get("metadata").and_then(Value::as_object) else {
        return vec![FieldError::required("metadata", "")];
    };
    let rule = served.strategy.name_rule();
    let prefix = text(object, "generateName");
    if !prefix.is_empty() {
        // Checked as the shortest name it could become.
        let problems = name_problems(&format!("{}a", prefix.strip_suffix('-').unwrap_or(prefix)), rule);
        errors.extend(problems.into_iter().map(|why| FieldError::invalid("metadata.generateName", prefix, why)));
    }
    match text(object, "name") {
        "" => errors.push(FieldError::required("metadata.name", "name or generateName is required")),
        name => {
            errors.extend(
                name_problems(name, rule).into_iter().map(|why| FieldError::invalid("metadata.name", name, why)),
            );
        }
    }
    string_map(metadata.get("labels"), |key, value| {
        if errors.len() >= ERRORS_MAX {
            return;
        }
        errors.extend(label_key_problems(key).into_iter().map(|why| FieldError::invalid("metadata.labels", key, why)));
        errors.extend(
            label_value_problems(value).into_iter().map(|why| FieldError::invalid("metadata.labels", value, why)),
        );
    });
    let mut bytes = 0;
    string_map(metadata.get("annotations"), |key, value| {
        let lower = key.to_ascii_lowercase();
        bytes += key.len() + value.len();
        if errors.len() >= ERRORS_MAX {
            return;
        }
        errors.extend(
            label_key_problems(&lower).into_iter().map(|why| FieldError::invalid("metadata.annotations", key, why)),
        );
    });
    if bytes > ANNOTATIONS_BYTES_MAX {
        errors.push(FieldError::too_long("metadata.annotations", ANNOTATIONS_BYTES_MAX));
    }
    owner_references(metadata.get("ownerReferences"), &mut errors);
    for finalizer in finalizers(object) {
        if errors.len() >= ERRORS_MAX {
            break;
        }
        let problems = label_key_problems(finalizer);
        errors.extend(problems.into_iter().map(|why| FieldError::invalid("metadata.finalizers", finalizer, why)));
    }
    errors
}

fn string_map(map: Option<&Value>, mut see: impl FnMut(&str, &str)) {
    for (key, value) in map.and_then(Value::as_object).into_iter().flatten() {
        see(key, value.as_str().unwrap_or_default());
    }
}

fn owner_references(list: Option<&Value>, errors: &mut Vec<FieldError>) {
    let mut controller: Option<&str> = None;
    for (at, owner) in list.and_then(Value::as_array).into_iter().flatten().enumerate() {
        if errors.len() >= ERRORS_MAX {
            return;
        }
        let text = |field: &str| owner.get(field).and_then(Value::as_str).unwrap_or_default();
        for (field, why) in [
            ("apiVersion", "version must not be empty"),
            ("kind", "must not be empty"),
            ("name", "must not be empty"),
            ("uid", "must not be empty"),
        ] {
            // With two slashes there is no telling group from version.
            let unreadable =
                field == "apiVersion" && (text(field).ends_with('/') || text(field).matches('/').count() > 1);
            if text(field).is_empty() || unreadable {
                errors.push(FieldError::invalid(format!("metadata.ownerReferences[{at}].{field}"), text(field), why));
            }
        }
        if owner.get("controller").and_then(Value::as_bool) == Some(true) {
            if let Some(first) = controller {
                let why = format!(
                    "Only one reference can have Controller set to true. Found \"true\" in references for {first} and {}",
                    text("name")
                );
                // Each such complaint quotes the whole list, so the first is the only one.
                errors.push(FieldError::invalid("metadata.ownerReferences", list.cloned().unwrap_or_default(), why));
                return;
            }
            controller = Some(text("name"));
        }
    }
}

/// An update of a kind that has to say what it was based on, and did not.
pub fn version_required() -> FieldError {
    FieldError::new("metadata.resourceVersion", Reason::Invalid, None, "0x0: must be specified for an update")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn generated_names_keep_as_much_of_the_prefix_as_fits() {
        let name = generate_name("web-");
        assert!(name.starts_with("web-") && name.len() == 9, "{name}");
        assert_eq!(generate_name(&"é".repeat(60)).len(), 58 + SUFFIX_CHARS);
        assert_ne!(generate_name("a"), generate_name("a"));
    }

    #[test]
    fn what_the_server_owns_survives_an_update() {
        let old = json!({"metadata": {"uid": "u", "creationTimestamp": "t", "generation": 3, "name": "a"}});
        let mut new = json!({"metadata": {"name": "a", "generation": 9, "uid": "u", "creationTimestamp": null}});
        assert!(prepare_update(&mut new, &old).unwrap().is_empty());
        assert_eq!(new, old);
        let mut moved = json!({"metadata": {"name": "a", "creationTimestamp": "later"}});
        let errors = prepare_update(&mut moved, &old).unwrap();
        assert_eq!(errors[0].to_string(), "metadata.creationTimestamp: Invalid value: \"later\": field is immutable");
        let mut other = json!({"metadata": {"name": "a", "uid": "v"}});
        let errors = prepare_update(&mut other, &old).unwrap();
        assert_eq!(errors[0].to_string(), "metadata.uid: Invalid value: \"v\": field is immutable");
        assert_eq!(other["metadata"]["uid"], "u");
        let dying = json!({"metadata": {"deletionTimestamp": "t", "finalizers": ["a/b"]}});
        let mut more = json!({"metadata": {"finalizers": ["a/b", "c/d"]}});
        let errors = prepare_update(&mut more, &dying).unwrap();
        assert!(errors[0].to_string().ends_with("found new finalizers []string{\"c/d\"}"), "{}", errors[0]);
    }
}
