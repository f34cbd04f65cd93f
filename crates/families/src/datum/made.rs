//! What policies and plans put on what they make, and how that is called. What is made is written in a step, where nobody looks at
//! names and labels any more: what could not be written through the API is refused when the policy is written, or the project.

use kinds::field_error::{FieldError, Path};
use kinds::fields::at;
use rules::selector::{dns_subdomain_problems, label_key_problems, label_value_problems};
use serde_json::{Map, Value};

use super::template::Template;

/// The longest name of a namespace.
const NAMESPACE_BYTES_MAX: usize = 63;

/// The labels of a template; they are no templates themselves.
pub fn labels(template: Option<&Value>, path: &Path<'_>, errors: &mut Vec<FieldError>) -> Map<String, Value> {
    let place = path.child("labels");
    let labels = template.and_then(|template| at(template, &["metadata", "labels"])).and_then(Value::as_object);
    for (key, value) in labels.into_iter().flatten() {
        let value = value.as_str().unwrap_or_default();
        let of_key =
            label_key_problems(key).into_iter().map(|why| FieldError::invalid(place.key(key), key.as_str(), why));
        errors.extend(of_key);
        errors
            .extend(label_value_problems(value).into_iter().map(|why| FieldError::invalid(place.key(key), value, why)));
    }
    labels.cloned().unwrap_or_default()
}

/// The annotations of a template, each of them a template.
pub fn annotations(template: Option<&Value>, path: &Path<'_>, errors: &mut Vec<FieldError>) -> Vec<(String, Template)> {
    let place = path.child("annotations");
    let annotations = template.and_then(|template| at(template, &["metadata", "annotations"]));
    for key in annotations.and_then(Value::as_object).into_iter().flat_map(Map::keys) {
        let wrong = label_key_problems(&key.to_ascii_lowercase());
        errors.extend(wrong.into_iter().map(|why| FieldError::invalid(place.key(key), key.as_str(), why)));
    }
    templates(annotations, &place, errors)
}

pub fn templated(text: &str, path: &Path<'_>, errors: &mut Vec<FieldError>) -> Template {
    Template::read(text).unwrap_or_else(|why| {
        errors.push(FieldError::invalid(path, text, why));
        Template::read("").expect("nothing is wrong with nothing")
    })
}

pub fn templates(map: Option<&Value>, path: &Path<'_>, errors: &mut Vec<FieldError>) -> Vec<(String, Template)> {
    let entries = map.and_then(Value::as_object).into_iter().flatten();
    let entries = entries.map(|(key, value)| {
        let source = value.as_str().unwrap_or_default();
        (key.clone(), templated(source, &path.key(key), errors))
    });
    entries.collect()
}

/// A policy or a plan of this name is named by a label of what it makes.
pub fn maker_errors(name: &str) -> Vec<FieldError> {
    let why = |problem: String| format!("it is a label of what is made: {problem}");
    let problems = label_value_problems(name).into_iter().map(why);
    problems.map(|problem| FieldError::invalid("metadata.name", name, problem)).collect()
}

/// A project or an organization of this name has a namespace called `home`.
pub fn home_errors(name: &str, home: &str) -> Vec<FieldError> {
    let is_name = home.len() <= NAMESPACE_BYTES_MAX && !home.contains('.') && dns_subdomain_problems(home).is_empty();
    let why = || {
        format!(
            "its namespace is called {home:?}, and names of namespaces are lower case letters, digits and '-', \
             {NAMESPACE_BYTES_MAX} at most"
        )
    };
    (!is_name).then(|| FieldError::invalid("metadata.name", name, why())).into_iter().collect()
}
