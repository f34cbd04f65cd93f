//! Text with expressions in it: `{{ object.metadata.name }}-claim`. What stands between the braces is CEL and gives a text or a number.

use rules::cel::{Outcome, Program};
use serde_json::Value;

/// Longest template. Names and amounts are far shorter.
const BYTES_MAX: usize = 4096;
/// Expressions in one template.
const EXPRESSIONS_MAX: usize = 16;

/// What expressions may speak of: the object (`trigger` is another name of it), who wrote it, and in which request.
pub const VARIABLES: &[&str] = &["object", "trigger", "user", "request"];

#[derive(Clone, Debug)]
enum Part {
    Text(String),
    Expression(Program),
}

#[derive(Clone, Debug)]
pub struct Template {
    parts: Vec<Part>,
}

impl Template {
    pub fn read(text: &str) -> Result<Template, String> {
        if text.len() > BYTES_MAX {
            return Err(format!("must be no longer than {BYTES_MAX} bytes"));
        }
        let (mut parts, mut rest) = (Vec::new(), text);
        while let Some(begin) = rest.find("{{") {
            if begin > 0 {
                parts.push(Part::Text(rest[..begin].to_owned()));
            }
            let after = &rest[begin + 2..];
            let end = closing(after).ok_or("has {{ without }}")?;
            let source = after[..end].trim();
            let program =
                Program::compile(source, VARIABLES).map_err(|error| format!("{{{{ {source} }}}}: {error}"))?;
            parts.push(Part::Expression(program));
            rest = &after[end + 2..];
        }
        if !rest.is_empty() {
            parts.push(Part::Text(rest.to_owned()));
        }
        match parts.iter().filter(|part| matches!(part, Part::Expression(_))).count() {
            many if many > EXPRESSIONS_MAX => Err(format!("may have at most {EXPRESSIONS_MAX} expressions")),
            _ => Ok(Template { parts }),
        }
    }

    pub fn render(&self, inputs: &Inputs<'_>) -> Result<String, String> {
        let mut out = String::new();
        for part in &self.parts {
            match part {
                Part::Text(text) => out.push_str(text),
                Part::Expression(program) => {
                    let given =
                        program.eval(&inputs.all()).map_err(|error| format!("{}: {error}", program.source()))?;
                    match given {
                        Outcome::Text(text) => out.push_str(&text),
                        Outcome::Int(number) => out.push_str(&number.to_string()),
                        Outcome::Uint(number) => out.push_str(&number.to_string()),
                        Outcome::Quantity(quantity) => out.push_str(&quantity.to_string()),
                        other => {
                            return Err(format!(
                                "{} gives {}, and neither text nor a number",
                                program.source(),
                                other.type_name()
                            ));
                        }
                    }
                }
            }
            if out.len() > BYTES_MAX {
                return Err(format!("gives more than {BYTES_MAX} bytes"));
            }
        }
        Ok(out)
    }
}

/// Where the braces close; braces within quotes do not.
fn closing(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let (mut quote, mut at) = (None, 0);
    while at < bytes.len() {
        match (quote, bytes[at]) {
            (Some(_), b'\\') => at += 1,
            (Some(open), byte) if byte == open => quote = None,
            (None, byte @ (b'"' | b'\'')) => quote = Some(byte),
            (None, b'}') if bytes.get(at + 1) == Some(&b'}') => return Some(at),
            _ => {}
        }
        at += 1;
    }
    None
}

/// What expressions are evaluated on.
#[derive(Clone, Copy)]
pub struct Inputs<'a> {
    pub object: &'a Value,
    pub user: &'a Value,
    pub request: &'a Value,
}

impl<'a> Inputs<'a> {
    pub fn all(&self) -> [(&'static str, &'a Value); 4] {
        [("object", self.object), ("trigger", self.object), ("user", self.user), ("request", self.request)]
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_stands_between_braces_is_evaluated() {
        let object = json!({"metadata": {"name": "web"}, "spec": {"cpu": 8, "size": "4Gi"}});
        let (user, request) = (json!({"name": "alice"}), json!({"verb": "create"}));
        let inputs = Inputs { object: &object, user: &user, request: &request };
        for (template, expected) in [
            ("plain", Ok("plain")),
            ("{{ object.metadata.name }}-claim", Ok("web-claim")),
            ("{{trigger.spec.cpu}}", Ok("8")),
            ("a{{ user.name }}b{{ request.verb }}", Ok("aalicebcreate")),
            ("{{ '}}' + object.spec.size }}", Ok("}}4Gi")),
            ("{{ object.spec.none }}", Err(())),
            ("{{ object.spec }}", Err(())),
        ] {
            let rendered = Template::read(template).unwrap().render(&inputs);
            assert_eq!(rendered.as_deref().ok(), expected.ok(), "{template}");
        }
        for wrong in ["{{ object", "{{ nobody.name }}", "{{ 1 + }}", "{{}}"] {
            assert!(Template::read(wrong).is_err(), "{wrong}");
        }
    }
}
