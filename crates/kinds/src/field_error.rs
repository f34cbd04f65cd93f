//! What is wrong with one field of an object, in Kubernetes' words.
//!
//! Every validation of the project (built-in kinds, CRD schemas, CEL rules) reports a list of [`FieldError`]s; the HTTP
//! layer turns the list into a 422 `Status` with one cause per error. Clients and test suites match on these texts, so
//! they follow Kubernetes' field-error vocabulary exactly: the reason words, the quoting of the bad value, the punctuation.
//!
//! A [`Path`] is a chain of borrowed steps on the stack: walking a valid object allocates nothing, a path is only
//! rendered when there is something to report.

use std::fmt::{self, Write as _};

use serde_json::Value;

/// Machine readable reason of a cause; the names are Kubernetes' `field.ErrorType` values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    NotFound,
    Required,
    Duplicate,
    Invalid,
    NotSupported,
    Forbidden,
    TooLong,
    TooShort,
    TooMany,
    TooFew,
    InternalError,
    TypeInvalid,
}

impl Reason {
    /// The word that stands in `details.causes[].reason`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotFound => "FieldValueNotFound",
            Self::Required => "FieldValueRequired",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Invalid => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooShort => "FieldValueTooShort",
            Self::TooMany => "FieldValueTooMany",
            Self::TooFew => "FieldValueTooFew",
            Self::InternalError => "InternalError",
            Self::TypeInvalid => "FieldValueTypeInvalid",
        }
    }

    /// The words that open the message.
    fn phrase(self) -> &'static str {
        match self {
            Self::NotFound => "Not found",
            Self::Required => "Required value",
            Self::Duplicate => "Duplicate value",
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Forbidden => "Forbidden",
            Self::TooLong => "Too long",
            Self::TooShort => "Too short",
            Self::TooMany => "Too many",
            Self::TooFew => "Too few",
            Self::InternalError => "Internal error",
        }
    }

    /// A missing or over-long value is not repeated to the reader, whatever the caller passed.
    fn shows_value(self) -> bool {
        !matches!(self, Self::Required | Self::Forbidden | Self::TooLong | Self::TooShort | Self::InternalError)
    }
}

/// One thing wrong with one field.
#[derive(Debug, Clone, PartialEq)]
pub struct FieldError {
    pub path: String,
    pub reason: Reason,
    /// The explanation after the bad value; may be empty.
    pub detail: String,
    /// `None` leaves the value out of the message.
    pub bad_value: Option<Value>,
}

impl FieldError {
    pub fn new(path: impl fmt::Display, reason: Reason, bad_value: Option<Value>, detail: impl Into<String>) -> Self {
        Self {
            path: cut(path.to_string(), PATH_BYTES_MAX),
            reason,
            detail: cut(detail.into(), DETAIL_BYTES_MAX),
            bad_value,
        }
    }

    pub fn required(path: impl fmt::Display, detail: impl Into<String>) -> Self {
        Self::new(path, Reason::Required, None, detail)
    }

    pub fn invalid(path: impl fmt::Display, bad_value: impl Into<Value>, detail: impl Into<String>) -> Self {
        Self::new(path, Reason::Invalid, Some(bad_value.into()), detail)
    }

    pub fn type_invalid(path: impl fmt::Display, bad_value: impl Into<Value>, detail: impl Into<String>) -> Self {
        Self::new(path, Reason::TypeInvalid, Some(bad_value.into()), detail)
    }

    pub fn forbidden(path: impl fmt::Display, detail: impl Into<String>) -> Self {
        Self::new(path, Reason::Forbidden, None, detail)
    }

    pub fn duplicate(path: impl fmt::Display, bad_value: impl Into<Value>) -> Self {
        Self::new(path, Reason::Duplicate, Some(bad_value.into()), "")
    }

    pub fn not_found(path: impl fmt::Display, bad_value: impl Into<Value>) -> Self {
        Self::new(path, Reason::NotFound, Some(bad_value.into()), "")
    }

    /// The supported values are listed in the order given; callers sort them where Kubernetes does.
    pub fn not_supported<S: AsRef<str>>(path: impl fmt::Display, bad_value: impl Into<Value>, supported: &[S]) -> Self {
        let mut detail = String::new();
        for (i, value) in supported.iter().enumerate() {
            detail.push_str(if i == 0 { "supported values: " } else { ", " });
            quote_into(&mut detail, value.as_ref());
        }
        Self::new(path, Reason::NotSupported, Some(bad_value.into()), detail)
    }

    pub fn too_long(path: impl fmt::Display, bytes_max: usize) -> Self {
        let unit = if bytes_max == 1 { "byte" } else { "bytes" };
        Self::new(path, Reason::TooLong, None, format!("may not be more than {bytes_max} {unit}"))
    }

    pub fn too_many(path: impl fmt::Display, actual: usize, items_max: usize) -> Self {
        let unit = if items_max == 1 { "item" } else { "items" };
        let detail = format!("must have at most {items_max} {unit}");
        Self::new(path, Reason::TooMany, Some(actual.into()), detail)
    }

    pub fn internal(path: impl fmt::Display, detail: impl Into<String>) -> Self {
        Self::new(path, Reason::InternalError, None, detail)
    }

    /// The message without the path: what stands in `details.causes[].message`.
    pub fn body(&self) -> String {
        let mut text = String::from(self.reason.phrase());
        if let Some(value) = self.bad_value.as_ref().filter(|_| self.reason.shows_value()) {
            text.push_str(": ");
            show_value(&mut text, value);
        }
        if !self.detail.is_empty() {
            text.push_str(": ");
            text.push_str(&self.detail);
        }
        text
    }

    /// One entry of `details.causes` of a `Status`.
    pub fn cause(&self) -> Value {
        serde_json::json!({ "reason": self.reason.as_str(), "message": self.body(), "field": self.path })
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.body())
    }
}

impl std::error::Error for FieldError {}

/// Several errors as one text: alone as it is, else `[a, b]`; a text that repeats is given once.
pub fn join(errors: &[FieldError]) -> String {
    let mut texts: Vec<String> = Vec::with_capacity(errors.len());
    for error in errors {
        let text = error.to_string();
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    match texts.as_slice() {
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    }
}

/// Where in an object: `spec.hard[requests.cpu]`, `spec.containers[0].name`.
#[derive(Debug, Clone, Copy)]
pub struct Path<'a> {
    parent: Option<&'a Path<'a>>,
    step: Step<'a>,
}

#[derive(Debug, Clone, Copy)]
enum Step<'a> {
    Nothing,
    Field(&'a str),
    Index(usize),
    Key(&'a str),
}

impl<'a> Path<'a> {
    /// The object itself; children of it start without a dot.
    pub const ROOT: Path<'static> = Path { parent: None, step: Step::Nothing };

    /// A path starting at a field of the object. A dotted name is taken as it is.
    pub fn new(field: &'a str) -> Self {
        Self { parent: None, step: Step::Field(field) }
    }

    pub fn child<'b>(&'b self, field: &'b str) -> Path<'b> {
        Path { parent: Some(self), step: Step::Field(field) }
    }

    pub fn index(&self, index: usize) -> Path<'_> {
        Path { parent: Some(self), step: Step::Index(index) }
    }

    pub fn key<'b>(&'b self, key: &'b str) -> Path<'b> {
        Path { parent: Some(self), step: Step::Key(key) }
    }

    pub fn is_root(&self) -> bool {
        self.parent.is_none() && matches!(self.step, Step::Nothing)
    }

    /// Returns whether anything has been written, so that the next field knows whether it needs a dot.
    fn write(&self, f: &mut fmt::Formatter<'_>) -> Result<bool, fmt::Error> {
        let begun = match self.parent {
            Some(parent) => parent.write(f)?,
            None => false,
        };
        match self.step {
            Step::Nothing => return Ok(begun),
            Step::Field(name) if begun => write!(f, ".{name}")?,
            Step::Field(name) => f.write_str(name)?,
            Step::Index(index) => write!(f, "[{index}]")?,
            Step::Key(key) => write!(f, "[{key}]")?,
        }
        Ok(true)
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f).map(drop)
    }
}

/// A string between quotes with Go's `%q` escapes, the form every quoted name in a Kubernetes message has.
pub fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    quote_into(&mut out, text);
    out
}

/// [`quote`], appended.
pub fn quote_into(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{b}' => out.push_str("\\v"),
            '\u{c}' => out.push_str("\\f"),
            c if c.is_ascii_control() => escape(out, 'x', 2, c),
            c if is_unprintable(c) && u32::from(c) > 0xffff => escape(out, 'U', 8, c),
            c if is_unprintable(c) => escape(out, 'u', 4, c),
            c => out.push(c),
        }
    }
    out.push('"');
}

fn escape(out: &mut String, letter: char, width: usize, c: char) {
    // Writing to a String cannot fail.
    let _ = write!(out, "\\{letter}{:0width$x}", u32::from(c));
}

/// Go escapes what its Unicode tables call unprintable; these are the ranges that occur in practice: C1 controls, exotic
/// spaces, joiners, direction marks, byte order mark, private use and the replacement of half a surrogate pair.
fn is_unprintable(c: char) -> bool {
    matches!(u32::from(c), 0x80..=0xa0 | 0xad | 0x1680 | 0x2000..=0x200f | 0x2028..=0x202f | 0x205f..=0x206f | 0x3000
        | 0xe000..=0xf8ff | 0xfeff | 0xfff0..=0xfffb | 0xfffe | 0xffff | 0xe0000..=0xe0fff | 0xf0000..=0x10ffff)
}

/// Longest rendering of a bad value inside a message. A client may send megabytes in one field; repeating them once per
/// error would let one request fill the answer and the log.
pub const SHOWN_VALUE_BYTES_MAX: usize = 4096;

/// Longest path and longest explanation in a message, for the same reason: names of fields and values of an `enum` are as
/// long as clients make them.
const PATH_BYTES_MAX: usize = 4096;
const DETAIL_BYTES_MAX: usize = 16 * 1024;

fn cut(mut text: String, bytes_max: usize) -> String {
    if text.len() > bytes_max {
        text.truncate(text.floor_char_boundary(bytes_max));
        text.push('…');
    }
    text
}

fn show_value(out: &mut String, value: &Value) {
    let start = out.len();
    match value {
        Value::String(text) => quote_into(out, text),
        Value::Bool(_) | Value::Number(_) | Value::Null => {
            let _ = write!(out, "{value}");
        }
        // Go's JSON encoder escapes the three characters that are dangerous inside HTML.
        Value::Array(_) | Value::Object(_) => {
            for c in value.to_string().chars() {
                match c {
                    '<' => out.push_str("\\u003c"),
                    '>' => out.push_str("\\u003e"),
                    '&' => out.push_str("\\u0026"),
                    c => out.push(c),
                }
            }
        }
    }
    if out.len() - start > SHOWN_VALUE_BYTES_MAX {
        let mut end = start + SHOWN_VALUE_BYTES_MAX;
        while !out.is_char_boundary(end) {
            end -= 1;
        }
        out.truncate(end);
        out.push('…');
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn texts_are_kubernetes_own() {
        let spec = Path::new("spec");
        let hard = spec.child("hard");
        let cases: Vec<(FieldError, &str)> = vec![
            (
                FieldError::invalid(hard.key("foo"), "foo", "must be a standard resource for quota"),
                r#"spec.hard[foo]: Invalid value: "foo": must be a standard resource for quota"#,
            ),
            (FieldError::required(spec.child("x"), ""), "spec.x: Required value"),
            (FieldError::required(spec.child("x"), "name is needed"), "spec.x: Required value: name is needed"),
            (
                FieldError::not_supported(spec.child("type"), "x", &["a", "b"]),
                r#"spec.type: Unsupported value: "x": supported values: "a", "b""#,
            ),
            (
                FieldError::duplicate(spec.child("ports").index(2).child("name"), "http"),
                r#"spec.ports[2].name: Duplicate value: "http""#,
            ),
            (FieldError::forbidden(spec, "may not change"), "spec: Forbidden: may not change"),
            (FieldError::too_long(spec, 63), "spec: Too long: may not be more than 63 bytes"),
            (FieldError::too_many(spec, 3, 1), "spec: Too many: 3: must have at most 1 item"),
            (FieldError::not_found(spec, "a\tb"), r#"spec: Not found: "a\tb""#),
            (FieldError::internal(spec, "broken"), "spec: Internal error: broken"),
            (FieldError::type_invalid(spec, Value::Null, "expected map"), "spec: Invalid value: null: expected map"),
            (FieldError::invalid(spec, json!({"a": "<b>"}), "no"), r#"spec: Invalid value: {"a":"\u003cb\u003e"}: no"#),
            (FieldError::invalid(spec, 7, "no"), "spec: Invalid value: 7: no"),
        ];
        for (error, text) in cases {
            assert_eq!(error.to_string(), text);
        }
    }

    #[test]
    fn a_cause_carries_reason_message_and_field() {
        let error = FieldError::not_supported("spec.type", "x", &["a"]);
        assert_eq!(
            error.cause(),
            json!({
                "reason": "FieldValueNotSupported",
                "message": r#"Unsupported value: "x": supported values: "a""#,
                "field": "spec.type",
            })
        );
    }

    #[test]
    fn several_errors_become_one_bracketed_list_without_repeats() {
        let a = FieldError::required("spec.a", "");
        let b = FieldError::required("spec.b", "");
        assert_eq!(join(std::slice::from_ref(&a)), "spec.a: Required value");
        assert_eq!(join(&[a.clone(), b, a]), "[spec.a: Required value, spec.b: Required value]");
    }

    #[test]
    fn a_huge_value_is_cut_in_the_message() {
        let error = FieldError::invalid("spec", "é".repeat(100_000), "no");
        assert!(error.to_string().len() < SHOWN_VALUE_BYTES_MAX + 100);
    }

    #[test]
    fn quoting_is_go_quoting() {
        assert_eq!(quote("a\"b\\c\n\u{1}\u{200b}é😀"), r#""a\"b\\c\n\x01\u200bé😀""#);
    }
}
