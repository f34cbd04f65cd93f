//! Patterns of schemas are written for Go's RE2. The regex crate is of the same family and as safe against hostile
//! patterns, but spells a few things differently; this brings a pattern over.

use regex::{Regex, RegexBuilder};

/// Largest compiled pattern. Repetition multiplies: `(a{1000}){1000}` is short to write.
const COMPILED_BYTES_MAX: usize = 1 << 20;

/// Longest pattern text; a pattern longer than this is data.
const PATTERN_BYTES_MAX: usize = 16 << 10;

pub(super) fn compile(pattern: &str) -> Result<Regex, String> {
    if pattern.len() > PATTERN_BYTES_MAX {
        return Err(format!("longer than {PATTERN_BYTES_MAX} bytes"));
    }
    RegexBuilder::new(&translate(pattern)).size_limit(COMPILED_BYTES_MAX).build().map_err(|why| why.to_string())
}

/// In Go `\d`, `\w`, `\s` and `\b` are ASCII, and inside a class `[`, `&&`, `--` and `~~` mean themselves.
fn translate(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len() + 16);
    let mut chars = pattern.chars().peekable();
    let mut in_class = false;
    let mut class_start = false;
    while let Some(c) = chars.next() {
        let at_start = std::mem::take(&mut class_start);
        match c {
            '\\' => match chars.next() {
                Some('d') => out.push_str("[0-9]"),
                Some('D') => out.push_str("[^0-9]"),
                Some('w') => out.push_str("[0-9A-Za-z_]"),
                Some('W') => out.push_str("[^0-9A-Za-z_]"),
                Some('s') => out.push_str(r"[\t\n\f\r ]"),
                Some('S') => out.push_str(r"[^\t\n\f\r ]"),
                Some('b') if !in_class => out.push_str(r"(?-u:\b)"),
                Some(escaped) => {
                    out.push('\\');
                    out.push(escaped);
                }
                None => out.push('\\'),
            },
            '[' if !in_class => {
                in_class = true;
                class_start = true;
                out.push('[');
                if chars.peek() == Some(&'^') {
                    chars.next();
                    out.push('^');
                }
            }
            '[' if chars.peek() == Some(&':') => {
                // A named class such as [:alpha:] is copied to its end.
                out.push('[');
                for inner in chars.by_ref() {
                    out.push(inner);
                    if inner == ']' {
                        break;
                    }
                }
            }
            '[' => out.push_str(r"\["),
            ']' if in_class && at_start => out.push_str(r"\]"),
            ']' if in_class => {
                in_class = false;
                out.push(']');
            }
            '&' | '~' if in_class => {
                out.push('\\');
                out.push(c);
            }
            '-' if in_class && chars.peek() == Some(&'-') => out.push_str(r"\-"),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_patterns_keep_their_meaning() {
        for (pattern, yes, no) in [
            (r"^\d+$", "12", "١٢"),
            (r"^[^[]+$", "ab", "a[b"),
            (r"^[a&&b]+$", "a&b", "c"),
            (r"^[]a]+$", "]a", "b"),
            (r"^[[:alpha:]_]+$", "a_b", "1"),
            (r"\bfoo\b", "a foo b", "afoo"),
            (r"^[\w.-]+$", "a.b-c", "é"),
            (r"^a\/b$", "a/b", "a"),
            ("^([a-z0-9]([-a-z0-9]*[a-z0-9])?)$", "a-b", "-a"),
        ] {
            let regex = compile(pattern).unwrap_or_else(|why| panic!("{pattern}: {why}"));
            assert!(regex.is_match(yes), "{pattern} {yes}");
            assert!(!regex.is_match(no), "{pattern} {no}");
        }
    }

    #[test]
    fn bad_and_hostile_patterns_are_refused() {
        for pattern in ["(", "a**b(", "(a{1000}){1000}", r"(?=a)", &"a".repeat(PATTERN_BYTES_MAX + 1)] {
            assert!(compile(pattern).is_err(), "{pattern:.40}");
        }
    }
}
