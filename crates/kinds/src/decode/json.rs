//! A JSON reader of our own. It is here for three things serde_json cannot give together: unknown fields and fields that
//! appear twice are reported with their path in the order of the text, a bare number in the place of a quantity keeps every digit, and a syntax error speaks the
//! words clients know from Kubernetes (Go's). Recursive, bounded by [`DEPTH_MAX`].

use serde_json::map::Entry;
use serde_json::{Map, Number, Value};

use super::{DEPTH_MAX, DecodeError, FIELD_PROBLEMS_MAX, Parsed, VALUES_MAX};
use crate::field_error::Path;
use crate::schema::{Catalogue, Shape, TypeId};

/// Where in the schema the reader is; none where there is no schema or the text left it.
type Place<'a> = Option<(&'a Catalogue, TypeId)>;

/// Reads one JSON value. The schema is only asked where quantities are and which fields there are.
pub fn json(bytes: &[u8], schema: Option<(&Catalogue, TypeId)>) -> Result<Parsed, DecodeError> {
    let mut values = 0;
    json_inside(bytes, schema, 0, &mut values)
}

/// The same for a text that stands inside of something else: so many levels and values are above and before it.
pub(super) fn json_inside(
    bytes: &[u8],
    schema: Option<(&Catalogue, TypeId)>,
    depth: usize,
    values: &mut usize,
) -> Result<Parsed, DecodeError> {
    let text = std::str::from_utf8(bytes).map_err(|_| DecodeError::Utf8)?;
    let mut reader = Reader { text, bytes, at: 0, depth, values: *values, problems: Vec::new() };
    reader.space();
    let value = reader.value(&Path::ROOT, schema)?;
    reader.space();
    if reader.at < bytes.len() {
        return Err(reader.unexpected("after top-level value"));
    }
    *values = reader.values;
    Ok(Parsed { value, problems: reader.problems })
}

struct Reader<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
    depth: usize,
    values: usize,
    problems: Vec<String>,
}

impl<'a> Reader<'a> {
    fn value(&mut self, path: &Path<'_>, place: Place<'_>) -> Result<Value, DecodeError> {
        self.values += 1;
        if self.values > VALUES_MAX {
            return Err(DecodeError::TooManyValues);
        }
        match self.peek()? {
            b'{' => self.nested(|reader| reader.object(path, place)),
            b'[' => self.nested(|reader| reader.array(path, place)),
            b'"' => self.string().map(Value::String),
            b't' => self.literal("true", Value::Bool(true)),
            b'f' => self.literal("false", Value::Bool(false)),
            b'n' => self.literal("null", Value::Null),
            b'-' | b'0'..=b'9' => self.number(place),
            _ => Err(self.unexpected("looking for beginning of value")),
        }
    }

    fn nested(&mut self, read: impl FnOnce(&mut Self) -> Result<Value, DecodeError>) -> Result<Value, DecodeError> {
        self.at += 1;
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(DecodeError::TooDeep);
        }
        let value = read(self)?;
        self.depth -= 1;
        Ok(value)
    }

    fn object(&mut self, path: &Path<'_>, place: Place<'_>) -> Result<Value, DecodeError> {
        let mut map = Map::new();
        self.space();
        if self.peek()? == b'}' {
            self.at += 1;
            return Ok(Value::Object(map));
        }
        loop {
            self.space();
            if self.peek()? != b'"' {
                return Err(self.unexpected("looking for beginning of object key string"));
            }
            let key = self.string()?;
            self.space();
            if self.peek()? != b':' {
                return Err(self.unexpected("after object key"));
            }
            self.at += 1;
            self.space();
            let below = place.and_then(|(catalogue, ty)| Some((catalogue, catalogue.child(ty, &key)?)));
            let unknown = below.is_none() && place.is_some_and(|(catalogue, ty)| is_closed(catalogue, ty));
            if unknown {
                self.problem("unknown", &path.child(&key));
            }
            let before = self.problems.len();
            let value = self.value(&path.child(&key), below)?;
            if unknown {
                // What is dropped as a whole is not looked into.
                self.problems.truncate(before);
            }
            match map.entry(key) {
                Entry::Vacant(entry) => {
                    entry.insert(value);
                }
                Entry::Occupied(mut entry) => {
                    if !unknown {
                        self.problem("duplicate", &path.child(entry.key()));
                    }
                    entry.insert(value);
                }
            }
            self.space();
            match self.peek()? {
                b',' => self.at += 1,
                b'}' => break,
                _ => return Err(self.unexpected("after object key:value pair")),
            }
        }
        self.at += 1;
        Ok(Value::Object(map))
    }

    /// Notes something odd about a field, once.
    fn problem(&mut self, what: &str, path: &Path<'_>) {
        if self.problems.len() < FIELD_PROBLEMS_MAX {
            let problem = format!("{what} field {}", crate::field_error::quote(&path.to_string()));
            if !self.problems.contains(&problem) {
                self.problems.push(problem);
            }
        }
    }

    fn array(&mut self, path: &Path<'_>, place: Place<'_>) -> Result<Value, DecodeError> {
        let mut items = Vec::new();
        self.space();
        if self.peek()? == b']' {
            self.at += 1;
            return Ok(Value::Array(items));
        }
        let below = place.and_then(|(catalogue, ty)| Some((catalogue, catalogue.child(ty, "")?)));
        loop {
            self.space();
            items.push(self.value(&path.index(items.len()), below)?);
            self.space();
            match self.peek()? {
                b',' => self.at += 1,
                b']' => break,
                _ => return Err(self.unexpected("after array element")),
            }
        }
        self.at += 1;
        Ok(Value::Array(items))
    }

    fn string(&mut self) -> Result<String, DecodeError> {
        self.at += 1;
        let start = self.at;
        let length = self.bytes[start..].iter().position(|byte| matches!(byte, b'"' | b'\\' | 0..=0x1f));
        self.at = length.map_or(self.bytes.len(), |length| start + length);
        let plain = &self.text[start..self.at];
        if self.peek()? == b'"' {
            self.at += 1;
            return Ok(plain.to_owned());
        }
        self.escaped(plain.to_owned())
    }

    /// The rest of a string from its first escape on.
    fn escaped(&mut self, mut out: String) -> Result<String, DecodeError> {
        loop {
            match self.peek()? {
                b'"' => {
                    self.at += 1;
                    return Ok(out);
                }
                b'\\' => {
                    self.at += 1;
                    self.escape(&mut out)?;
                }
                0..=0x1f => return Err(self.unexpected("in string literal")),
                _ => {
                    let start = self.at;
                    let length = self.bytes[start..].iter().position(|byte| matches!(byte, b'"' | b'\\' | 0..=0x1f));
                    self.at = length.map_or(self.bytes.len(), |length| start + length);
                    out.push_str(&self.text[start..self.at]);
                }
            }
        }
    }

    fn escape(&mut self, out: &mut String) -> Result<(), DecodeError> {
        let plain = match self.peek()? {
            b'"' => '"',
            b'\\' => '\\',
            b'/' => '/',
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                self.at += 1;
                let unit = self.hex()?;
                out.push(self.unicode(unit)?);
                return Ok(());
            }
            _ => return Err(self.unexpected("in string escape code")),
        };
        self.at += 1;
        out.push(plain);
        Ok(())
    }

    /// One character of `\u` escapes. Half a surrogate pair becomes the replacement character, as Go has it.
    fn unicode(&mut self, unit: u16) -> Result<char, DecodeError> {
        if let 0xd800..=0xdbff = unit
            && self.bytes[self.at..].starts_with(b"\\u")
        {
            let before = self.at;
            self.at += 2;
            let low = self.hex()?;
            if let Some(Ok(c)) = char::decode_utf16([unit, low]).next() {
                return Ok(c);
            }
            self.at = before;
        }
        Ok(char::from_u32(u32::from(unit)).unwrap_or(char::REPLACEMENT_CHARACTER))
    }

    fn hex(&mut self) -> Result<u16, DecodeError> {
        let mut unit: u16 = 0;
        for _ in 0..4 {
            let Some(digit) = char::from(self.peek()?).to_digit(16) else {
                return Err(self.unexpected("in \\u hexadecimal character escape"));
            };
            // Four digits of four bits fill a u16 exactly, and a hexadecimal digit fits a byte.
            unit = (unit << 4) | u16::try_from(digit).unwrap_or(0);
            self.at += 1;
        }
        Ok(unit)
    }

    fn number(&mut self, place: Place<'_>) -> Result<Value, DecodeError> {
        let start = self.at;
        if self.bytes[self.at] == b'-' {
            self.at += 1;
        }
        match self.peek()? {
            b'0' => self.at += 1,
            b'1'..=b'9' => self.digits(),
            _ => return Err(self.unexpected("in numeric literal")),
        }
        let mut whole = true;
        if self.bytes.get(self.at) == Some(&b'.') {
            whole = false;
            self.at += 1;
            if !self.peek()?.is_ascii_digit() {
                return Err(self.unexpected("after decimal point in numeric literal"));
            }
            self.digits();
        }
        if let Some(b'e' | b'E') = self.bytes.get(self.at) {
            whole = false;
            self.at += 1;
            if let b'+' | b'-' = self.peek()? {
                self.at += 1;
            }
            if !self.peek()?.is_ascii_digit() {
                return Err(self.unexpected("in exponent of numeric literal"));
            }
            self.digits();
        }
        let text = &self.text[start..self.at];
        if place.is_some_and(|(catalogue, ty)| *catalogue.shape(ty) == Shape::Quantity) {
            return Ok(Value::String(text.to_owned()));
        }
        number(text, whole)
    }

    fn digits(&mut self) {
        while let Some(b'0'..=b'9') = self.bytes.get(self.at) {
            self.at += 1;
        }
    }

    fn literal(&mut self, word: &'static str, value: Value) -> Result<Value, DecodeError> {
        for expected in word.chars() {
            if char::from(self.peek()?) != expected {
                return Err(self.unexpected(&format!("in literal {word} (expecting '{expected}')")));
            }
            self.at += 1;
        }
        Ok(value)
    }

    fn space(&mut self) {
        while let Some(b' ' | b'\t' | b'\r' | b'\n') = self.bytes.get(self.at) {
            self.at += 1;
        }
    }

    fn peek(&self) -> Result<u8, DecodeError> {
        let end = || DecodeError::Syntax("unexpected end of JSON input".to_owned());
        self.bytes.get(self.at).copied().ok_or_else(end)
    }

    fn unexpected(&self, context: &str) -> DecodeError {
        // Every caller stands at the start of a character: the reader only steps over whole ones.
        let shown = match self.text[self.at..].chars().next() {
            Some('\'') => r"'\''".to_owned(),
            Some('"') => "'\"'".to_owned(),
            Some(c) => format!("'{}'", crate::field_error::quote(&c.to_string()).trim_matches('"')),
            None => return DecodeError::Syntax("unexpected end of JSON input".to_owned()),
        };
        DecodeError::Syntax(format!("invalid character {shown} {context}"))
    }
}

/// Whether an object of this type has only the fields its schema names.
fn is_closed(catalogue: &Catalogue, ty: TypeId) -> bool {
    matches!(catalogue.shape(ty), Shape::Object(object) if !object.preserve_unknown)
}

/// Whole numbers stay whole as far as 64 bits reach; the rest become floats, as in Kubernetes' unstructured objects.
pub(super) fn number(text: &str, whole: bool) -> Result<Value, DecodeError> {
    if whole {
        if let Ok(signed) = text.parse::<i64>() {
            return Ok(signed.into());
        }
        if let Ok(unsigned) = text.parse::<u64>() {
            return Ok(unsigned.into());
        }
    }
    let float = text.parse::<f64>().ok().and_then(Number::from_f64);
    float.map(Value::Number).ok_or_else(|| {
        let shown: String = text.chars().take(40).collect();
        DecodeError::Type(format!("json: cannot unmarshal number {shown} into Go value of type float64"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts;

    fn error(text: &str) -> String {
        json(text.as_bytes(), None).expect_err(text).to_string()
    }

    #[test]
    fn it_reads_what_serde_json_reads() {
        for text in [
            "null",
            " [1, -2, 3.5, 1e3, -0, 18446744073709551615, 9223372036854775808, true, false] ",
            r#"{"a": {"b": ["c", {}, [], ""]}, "é": "日本\n\t\"\\\/\u00e9\ud83d\ude00"}"#,
            r#"{"": 0}"#,
        ] {
            let expected: Value = serde_json::from_str(&text.replace("-0,", "0,")).unwrap();
            assert_eq!(json(text.as_bytes(), None).unwrap().value, expected, "{text}");
        }
        assert_eq!(json(br#""\ud800x""#, None).unwrap().value, "\u{fffd}x");
        assert_eq!(json(br#""\ud800\u0041""#, None).unwrap().value, "\u{fffd}A");
    }

    #[test]
    fn syntax_errors_are_in_gos_words() {
        for (text, words) in [
            ("", "unexpected end of JSON input"),
            ("{\"a\":", "unexpected end of JSON input"),
            ("x", "invalid character 'x' looking for beginning of value"),
            ("'a'", r"invalid character '\'' looking for beginning of value"),
            ("{a:1}", "invalid character 'a' looking for beginning of object key string"),
            ("{\"a\" 1}", "invalid character '1' after object key"),
            ("{\"a\":1 \"b\"}", "invalid character '\"' after object key:value pair"),
            ("{\"a\":1,}", "invalid character '}' looking for beginning of object key string"),
            ("[1 2]", "invalid character '2' after array element"),
            ("{} {}", "invalid character '{' after top-level value"),
            ("\"a\nb\"", r"invalid character '\n' in string literal"),
            (r#""\q""#, "invalid character 'q' in string escape code"),
            (r#""\u00g0""#, r"invalid character 'g' in \u hexadecimal character escape"),
            ("01", "invalid character '1' after top-level value"),
            ("-x", "invalid character 'x' in numeric literal"),
            ("1.x", "invalid character 'x' after decimal point in numeric literal"),
            ("1ex", "invalid character 'x' in exponent of numeric literal"),
            ("trux", "invalid character 'x' in literal true (expecting 'e')"),
            ("é", "invalid character 'é' looking for beginning of value"),
            ("1e999", "json: cannot unmarshal number 1e999 into Go value of type float64"),
        ] {
            assert_eq!(error(text), words, "{text}");
        }
        assert_eq!(json(b"\"\xff\"", None), Err(DecodeError::Utf8));
    }

    #[test]
    fn depth_and_size_are_bounded() {
        let deep = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        assert!(json(deep(DEPTH_MAX).as_bytes(), None).is_ok());
        assert_eq!(json(deep(DEPTH_MAX + 1).as_bytes(), None), Err(DecodeError::TooDeep));
        assert_eq!(json("[".repeat(1_000_000).as_bytes(), None), Err(DecodeError::TooDeep));
        let wide = format!("[{}0]", "0,".repeat(VALUES_MAX));
        assert_eq!(json(wide.as_bytes(), None), Err(DecodeError::TooManyValues));
    }

    #[test]
    fn duplicates_are_named_with_their_path_and_the_last_counts() {
        let text = br#"{"spec":{"a":1,"a":2,"list":[{"x":1,"x":1}]},"spec":{"a":3}}"#;
        let parsed = json(text, None).unwrap();
        let problems =
            [r#"duplicate field "spec.a""#, r#"duplicate field "spec.list[0].x""#, r#"duplicate field "spec""#];
        assert_eq!(parsed.problems, problems);
        assert_eq!(parsed.value, serde_json::json!({"spec": {"a": 3}}));
        let twice = |number: u32| format!("\"{number}\":1,\"{number}\":1,");
        let many = format!("{{{}\"a\":1}}", (0..1000).map(twice).collect::<String>());
        assert_eq!(json(many.as_bytes(), None).unwrap().problems.len(), FIELD_PROBLEMS_MAX);
    }

    #[test]
    fn a_bare_number_in_the_place_of_a_quantity_keeps_every_digit() {
        let quota = facts().kind("", "v1", "ResourceQuota").unwrap();
        let text = br#"{"spec":{"hard":{"cpu":0.10000000000000000001,"pods":5}},"other":5}"#;
        let parsed = json(text, Some((&facts().catalogue, quota))).unwrap();
        assert_eq!(parsed.value["spec"]["hard"]["cpu"], "0.10000000000000000001");
        assert_eq!(parsed.value["spec"]["hard"]["pods"], "5");
        assert_eq!(parsed.value["other"], 5);
    }
}
