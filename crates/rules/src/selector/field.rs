//! Field selectors: `metadata.name=web,status.phase!=Running`, with backslash escapes in values.

use std::fmt;

use super::{SELECTOR_BYTES_MAX, SelectorError};

/// Which objects are meant, by the values of a few well-known fields: those that satisfy every term.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FieldSelector {
    terms: Vec<FieldTerm>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FieldTerm {
    pub field: String,
    pub value: String,
    /// `!=` instead of `=`.
    pub negated: bool,
}

impl FieldSelector {
    pub const EVERYTHING: FieldSelector = FieldSelector { terms: Vec::new() };

    pub fn parse(text: &str) -> Result<FieldSelector, SelectorError> {
        if text.len() > SELECTOR_BYTES_MAX {
            return Err(SelectorError::TooLong);
        }
        let mut parts = split_terms(text);
        parts.sort_unstable();
        let mut terms = Vec::new();
        for part in parts.into_iter().filter(|part| !part.is_empty()) {
            let Some((field, negated, value)) = split_term(part) else {
                return Err(SelectorError::Syntax(format!("invalid selector: '{text}'; can't understand '{part}'")));
            };
            let value = unescape(value)?;
            // Without a field and a value a term asks nothing, and upstream drops it.
            if !(field.is_empty() && value.is_empty()) {
                terms.push(FieldTerm { field: field.into(), value, negated });
            }
        }
        Ok(FieldSelector { terms })
    }

    /// `field` looks a field up; one that an object does not have is the empty text.
    pub fn matches<'a>(&self, field: impl Fn(&str) -> &'a str) -> bool {
        self.terms.iter().all(|term| (field(&term.field) == term.value) != term.negated)
    }

    pub fn is_everything(&self) -> bool {
        self.terms.is_empty()
    }

    pub fn terms(&self) -> &[FieldTerm] {
        &self.terms
    }

    /// The only value that a field may have, if there is such a term: a list of one name is a lookup.
    pub fn exact(&self, field: &str) -> Option<&str> {
        self.terms.iter().find(|term| term.field == field && !term.negated).map(|term| term.value.as_str())
    }
}

/// At commas that no backslash stands before.
fn split_terms(text: &str) -> Vec<&str> {
    let (mut terms, mut start, mut escaped) = (Vec::new(), 0, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' => {
                terms.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    terms.push(&text[start..]);
    terms
}

/// At the first operator; the field's side knows no escapes.
fn split_term(term: &str) -> Option<(&str, bool, &str)> {
    for (at, _) in term.char_indices() {
        let (field, rest) = term.split_at(at);
        if let Some(value) = rest.strip_prefix("!=") {
            return Some((field, true, value));
        }
        if let Some(value) = rest.strip_prefix("==").or_else(|| rest.strip_prefix('=')) {
            return Some((field, false, value));
        }
    }
    None
}

fn unescape(value: &str) -> Result<String, SelectorError> {
    let bad_escape = |sequence: String| {
        SelectorError::Syntax(format!("invalid field selector: invalid escape sequence: {sequence}"))
    };
    let mut out = String::with_capacity(value.len());
    let mut rest = value.chars();
    while let Some(c) = rest.next() {
        match c {
            '\\' => match rest.next() {
                Some(c @ ('\\' | ',' | '=')) => out.push(c),
                Some(c) => return Err(bad_escape(format!("\\{c}"))),
                None => return Err(bad_escape("\\".into())),
            },
            // The message shows the code point as a number; clients have seen it that way for years.
            ',' | '=' => {
                return Err(SelectorError::Syntax(format!(
                    "invalid field selector: unescaped character in value: {}",
                    u32::from(c)
                )));
            }
            c => out.push(c),
        }
    }
    Ok(out)
}

impl fmt::Display for FieldSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, term) in self.terms.iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            let operator = if term.negated { "!=" } else { "=" };
            write!(f, "{comma}{}{operator}", term.field)?;
            for c in term.value.chars() {
                if matches!(c, '\\' | ',' | '=') {
                    f.write_str("\\")?;
                }
                write!(f, "{c}")?;
            }
        }
        Ok(())
    }
}
