//! What may be the name of an object, with the complaints worded as Kubernetes words them.

use rules::selector::dns_subdomain_problems;

/// The form a name must have.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum NameRule {
    /// RFC 1123 subdomain, the usual.
    Subdomain,
    /// RFC 1123 label.
    Label,
    /// RFC 1035 label (Services).
    Label1035,
    /// Anything that can stand as one segment of a path (roles and bindings).
    PathSegment,
}

const LABEL_BYTES_MAX: usize = 63;
/// Longest name that may be anything. A store takes keys of four times as much, and a name is the longest part of one.
const PATH_SEGMENT_BYTES_MAX: usize = 1024;
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start \
    and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const LABEL_1035: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an \
    alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for \
    validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";

/// What is wrong with a name.
pub fn name_problems(name: &str, rule: NameRule) -> Vec<String> {
    let bytes = name.as_bytes();
    let lower = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_label = || {
        bytes.first().is_some_and(lower)
            && bytes.last().is_some_and(lower)
            && bytes.iter().all(|byte| lower(byte) || *byte == b'-')
    };
    let label = |fits: bool, words: &str| {
        let mut problems = Vec::new();
        if name.len() > LABEL_BYTES_MAX {
            problems.push(format!("must be no more than {LABEL_BYTES_MAX} bytes"));
        }
        if !fits {
            problems.push(words.to_owned());
        }
        problems
    };
    match rule {
        NameRule::Subdomain => dns_subdomain_problems(name),
        NameRule::Label if name.contains('.') && dns_subdomain_problems(name).is_empty() => {
            vec!["must not contain dots".into()]
        }
        NameRule::Label => label(is_label(), LABEL),
        NameRule::Label1035 => label(is_label() && bytes.first().is_some_and(u8::is_ascii_lowercase), LABEL_1035),
        NameRule::PathSegment => match name {
            "." | ".." => vec![format!("may not be '{name}'")],
            _ => {
                let bad = ["/", "%"].iter().filter(|bad| name.contains(**bad));
                let mut problems: Vec<String> = bad.map(|bad| format!("may not contain '{bad}'")).collect();
                // Rows are found by their names, which have to end somewhere and be told apart.
                if name.contains(char::is_control) {
                    problems.push("may not contain control characters".into());
                }
                if name.len() > PATH_SEGMENT_BYTES_MAX {
                    problems.push(format!("must be no more than {PATH_SEGMENT_BYTES_MAX} bytes"));
                }
                problems
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_rule_of_their_kind() {
        let fits = [
            ("a.b", NameRule::Subdomain, true),
            ("A", NameRule::Subdomain, false),
            ("a.b", NameRule::Label, false),
            ("1a", NameRule::Label, true),
            ("1a", NameRule::Label1035, false),
            ("system:x", NameRule::PathSegment, true),
            ("a/b", NameRule::PathSegment, false),
            ("..", NameRule::PathSegment, false),
            ("", NameRule::Label, false),
        ];
        for (name, rule, expected) in fits {
            assert_eq!(name_problems(name, rule).is_empty(), expected, "{name} {rule:?}");
        }
    }
}
