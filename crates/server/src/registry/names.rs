//! Which names a CustomResourceDefinition gets. Of two definitions in one group that want a name, the one that has it
//! keeps it; the other is stored, says so in its status and serves nothing. What is built in is nobody's to take.

use std::collections::HashSet;

use kinds::conditions::{self, condition};
use serde_json::{Value, json};

/// Names that are taken in one group: those of resources (plural, singular, short) and those of kinds.
#[derive(Debug, Default)]
pub struct Taken {
    resources: HashSet<String>,
    kinds: HashSet<String>,
    /// The same names of what is built in or made by a family.
    builtin_resources: HashSet<String>,
    builtin_kinds: HashSet<String>,
}

impl Taken {
    pub(super) fn by_definition(&mut self, accepted: &Value) {
        let text = |field: &str| accepted.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        let short = accepted.get("shortNames").and_then(Value::as_array).into_iter().flatten();
        self.resources.extend([text("plural"), text("singular")]);
        self.resources.extend(short.filter_map(Value::as_str).map(str::to_owned));
        self.kinds.extend([text("kind"), text("listKind")]);
    }

    pub(super) fn by_builtin(&mut self, resources: &[&str], kinds: &[&str]) {
        self.builtin_resources.extend(resources.iter().map(|&name| name.to_owned()));
        self.builtin_kinds.extend(kinds.iter().map(|&name| name.to_owned()));
    }

    /// The field of `spec.names` that names what is built in, with its value.
    pub fn builtin_conflict(&self, spec_names: &Value) -> Option<(&'static str, String)> {
        let is = |field: &str, names: &HashSet<String>| {
            let name = spec_names.get(field).and_then(Value::as_str)?;
            names.contains(name).then(|| name.to_owned())
        };
        let resource = |field: &'static str| Some((field, is(field, &self.builtin_resources)?));
        let kind = |field: &'static str| Some((field, is(field, &self.builtin_kinds)?));
        resource("plural").or_else(|| kind("kind")).or_else(|| kind("listKind")).or_else(|| resource("singular"))
    }

    /// Writes into a definition's status which names it has, given those it had before. The words are those of the API
    /// server.
    pub fn accept(&self, definition: &mut Value, before: &Value, now: &str) {
        let wanted = definition.pointer("/spec/names").cloned().unwrap_or_default();
        let had = before.pointer("/status/acceptedNames").cloned().unwrap_or_else(|| json!({}));
        let mut names = had.clone();
        let mut refusal: Option<(&str, String)> = None;
        let is_free = |name: &str, taken: &HashSet<String>| name.is_empty() || !taken.contains(name);
        // Of several conflicts the last is told.
        for (field, reason, taken) in [
            ("plural", "PluralConflict", &self.resources),
            ("singular", "SingularConflict", &self.resources),
            ("shortNames", "ShortNamesConflict", &self.resources),
            ("kind", "KindConflict", &self.kinds),
            ("listKind", "ListKindConflict", &self.kinds),
        ] {
            if field == "shortNames" {
                match used_short_names(&wanted, &had, taken).as_slice() {
                    [] => set_or_remove(&mut names, field, wanted.get(field)),
                    [one] => refusal = Some((reason, one.clone())),
                    many => refusal = Some((reason, format!("[{}]", many.join(", ")))),
                }
                continue;
            }
            let name = wanted.get(field).and_then(Value::as_str).unwrap_or_default();
            if had.get(field).and_then(Value::as_str) == Some(name) || is_free(name, taken) {
                names[field] = name.into();
            } else {
                refusal = Some((reason, format!("{name:?} is already in use")));
            }
        }
        for field in ["plural", "kind"] {
            if names.get(field).is_none() {
                names[field] = "".into();
            }
        }
        set_or_remove(&mut names, "categories", wanted.get("categories"));
        if let Some((field, name)) = self.builtin_conflict(&wanted) {
            refusal = Some(("BuiltInConflict", format!("spec.names.{field}: {name:?} is built in")));
            names = json!({"plural": "", "kind": ""});
        }
        let established = match (&refusal, is_established(before)) {
            (Some(("BuiltInConflict", _)), _) | (Some(_), false) => {
                condition("Established", "False", "NotAccepted", "not all names are accepted")
            }
            _ => condition("Established", "True", "InitialNamesAccepted", "the initial names have been accepted"),
        };
        let accepted = match &refusal {
            Some((reason, message)) => condition("NamesAccepted", "False", reason, message),
            None => condition("NamesAccepted", "True", "NoConflicts", "no conflicts found"),
        };
        if !definition["status"].is_object() {
            definition["status"] = json!({});
        }
        definition["status"]["acceptedNames"] = names;
        let mut conditions = vec![accepted, established];
        if definition.pointer("/metadata/deletionTimestamp").is_some_and(|time| !time.is_null()) {
            let message = "CustomResource deletion is in progress";
            conditions.push(condition("Terminating", "True", "InstanceDeletionInProgress", message));
        }
        set_conditions(&mut definition["status"], before, conditions, now);
    }
}

/// What is to be said of the short names that are asked for and that others have.
fn used_short_names(wanted: &Value, had: &Value, taken: &HashSet<String>) -> Vec<String> {
    let short = |names: &Value| -> Vec<String> {
        let list = names.get("shortNames").and_then(Value::as_array).into_iter().flatten();
        list.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let before = short(had);
    let used = short(wanted).into_iter().filter(|name| !before.contains(name) && taken.contains(name));
    used.map(|name| format!("{name:?} is already in use")).collect()
}

fn set_or_remove(names: &mut Value, field: &str, value: Option<&Value>) {
    let Value::Object(names) = names else { return };
    match value {
        Some(value) => names.insert(field.to_owned(), value.clone()),
        None => names.remove(field),
    };
}

/// Puts the server's conditions in their places, beside those that others wrote. The time of one that says what it said
/// before is the time it had.
fn set_conditions(status: &mut Value, before: &Value, conditions: Vec<Value>, now: &str) {
    let mut list = status.get("conditions").and_then(Value::as_array).cloned().unwrap_or_default();
    for mut condition in conditions {
        let known = conditions::of(before, condition["type"].as_str().unwrap_or_default());
        conditions::since(&mut condition, "lastTransitionTime", known, conditions::TRANSITION, now);
        conditions::put(&mut list, condition);
    }
    status["conditions"] = list.into();
}

/// Whether a definition's names were accepted once: it is served from then on.
pub fn is_established(definition: &Value) -> bool {
    condition_status(definition, "Established") == Some("True")
}

/// Whether it has been said that a definition is not served.
pub(super) fn is_refused(definition: &Value) -> bool {
    condition_status(definition, "Established").is_some_and(|status| status != "True")
}

fn condition_status<'v>(definition: &'v Value, kind: &str) -> Option<&'v str> {
    conditions::of(definition, kind)?["status"].as_str()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition(plural: &str, kind: &str, short: &[&str]) -> Value {
        json!({"spec": {"names": {"plural": plural, "singular": plural.trim_end_matches('s'), "kind": kind,
            "listKind": format!("{kind}List"), "shortNames": short}}})
    }

    fn says(definition: &Value) -> [String; 3] {
        let of = |kind: &str| {
            let one = conditions::of(definition, kind).unwrap();
            format!("{} {}", one["status"].as_str().unwrap(), one["reason"].as_str().unwrap())
        };
        [of("NamesAccepted"), of("Established"), definition["status"]["acceptedNames"]["kind"].to_string()]
    }

    #[test]
    fn the_second_definition_of_a_name_serves_nothing() {
        let mut first = definition("widgets", "Widget", &["w"]);
        let mut taken = Taken::default();
        taken.accept(&mut first, &Value::Null, "t0");
        assert_eq!(says(&first), ["True NoConflicts", "True InitialNamesAccepted", "\"Widget\""]);
        taken.by_definition(&first["status"]["acceptedNames"]);
        for (plural, kind, short, reason) in [
            ("gadgets", "Widget", "g", "False ListKindConflict"),
            ("gadgets", "Gadget", "w", "False ShortNamesConflict"),
            ("widget", "Gadget", "g", "False SingularConflict"),
            ("w", "Gadget", "g", "False SingularConflict"),
            ("gadgets", "WidgetList", "g", "False KindConflict"),
        ] {
            let mut second = definition(plural, kind, &[short]);
            taken.accept(&mut second, &Value::Null, "t1");
            let [accepted, established, _] = says(&second);
            assert_eq!((accepted.as_str(), established.as_str()), (reason, "False NotAccepted"), "{plural} {kind}");
        }
        // The one that has a name keeps it, and one that is served stays so when it asks for a name too many.
        let others = Taken::default();
        let mut again = first.clone();
        others.accept(&mut again, &first, "t2");
        assert_eq!(again, first);
        let mut greedy = first.clone();
        greedy["spec"]["names"]["shortNames"] = json!(["w", "z"]);
        let mut others = Taken::default();
        others.by_definition(&json!({"plural": "z"}));
        others.accept(&mut greedy, &first, "t2");
        assert_eq!(says(&greedy)[..2], ["False ShortNamesConflict", "True InitialNamesAccepted"]);
        assert_eq!(greedy["status"]["acceptedNames"]["shortNames"], json!(["w"]));
    }

    #[test]
    fn what_is_built_in_is_nobodys_to_take() {
        let mut taken = Taken::default();
        taken.by_builtin(&["roles", "role"], &["Role", "RoleList"]);
        let names = |plural: &str, kind: &str| taken.builtin_conflict(&json!({"plural": plural, "kind": kind}));
        assert_eq!(names("roles", "X"), Some(("plural", "roles".into())));
        assert_eq!(names("xs", "Role"), Some(("kind", "Role".into())));
        assert_eq!(names("xs", "X"), None);
        // One that was stored before it was known: whatever its status says.
        let mut stored = definition("roles", "Role", &[]);
        Taken::default().accept(&mut stored, &Value::Null, "t0");
        let before = stored.clone();
        taken.accept(&mut stored, &before, "t1");
        assert_eq!(says(&stored), ["False BuiltInConflict", "False NotAccepted", "\"\""]);
    }
}
