//! Patterns of schemas are written for Go's RE2. The regex crate is of the same family and as safe against hostile
//! patterns, but spells a few things differently; this brings a pattern over.

use std::collections::HashMap;
use std::str::Chars;

use regex::{Regex, RegexBuilder};

/// Largest compiled pattern. Repetition multiplies: `(a{1000}){1000}` is short to write.
const COMPILED_BYTES_MAX: usize = 1 << 20;

/// Longest pattern text; a pattern longer than this is data.
const PATTERN_BYTES_MAX: usize = 16 << 10;

/// How large all patterns of one schema may be together, as [`size`] estimates them. Compiling takes time in proportion:
/// this much is a tenth of a second. The CRDs of well-known projects stay below a hundredth of it.
const PATTERNS_SIZE_MAX: usize = 400_000;

/// The patterns of one schema, each compiled once.
#[derive(Debug, Default)]
pub(super) struct Patterns {
    compiled: HashMap<Box<str>, Regex>,
    size: usize,
}

impl Patterns {
    pub fn add(&mut self, pattern: &str) -> Result<(), String> {
        if self.compiled.contains_key(pattern) {
            return Ok(());
        }
        self.size = self.size.saturating_add(size(pattern));
        if self.size > PATTERNS_SIZE_MAX {
            return Err("the patterns of the schema are too large together".to_owned());
        }
        self.compiled.insert(pattern.into(), compile(pattern)?);
        Ok(())
    }

    pub fn get(&self, pattern: &str) -> Option<&Regex> {
        self.compiled.get(pattern)
    }
}

/// About how many states a pattern compiles to: what stands in it, repeated as often as it is counted.
fn size(pattern: &str) -> usize {
    // What stood before each group that is open.
    let mut open: Vec<usize> = Vec::new();
    let (mut sum, mut last) = (16_usize, 0_usize);
    let mut rest = pattern.chars();
    while let Some(c) = rest.next() {
        let atom = match c {
            '(' => {
                open.push(sum.saturating_add(last));
                (sum, last) = (1, 0);
                continue;
            }
            ')' => {
                let inner = sum.saturating_add(last);
                sum = open.pop().unwrap_or_default();
                last = inner;
                continue;
            }
            '{' => {
                let counts = until(&mut rest, '}');
                let count = counts.split(',').filter_map(|count| count.parse::<usize>().ok()).max();
                last = last.saturating_mul(count.unwrap_or(1).max(1));
                continue;
            }
            '[' => class_size(&mut rest),
            '\\' => escape_size(&mut rest),
            '.' => 8,
            _ => 2,
        };
        sum = sum.saturating_add(last);
        last = atom;
    }
    open.iter().fold(sum.saturating_add(last), |all, before| all.saturating_add(*before))
}

/// Characters of a class are counted one by one, so a long one is large.
fn class_size(rest: &mut Chars<'_>) -> usize {
    let mut size = 8;
    while let Some(c) = rest.next() {
        match c {
            ']' => break,
            '\\' => size += escape_size(rest),
            _ => size += 1,
        }
    }
    size
}

/// A class of Unicode has hundreds of ranges.
fn escape_size(rest: &mut Chars<'_>) -> usize {
    match rest.next() {
        Some('p' | 'P') => {
            if let Some(named) = rest.as_str().strip_prefix('{') {
                *rest = named.chars();
                until(rest, '}');
            }
            256
        }
        _ => 2,
    }
}

/// What comes before a character, which is stepped over.
fn until<'p>(rest: &mut Chars<'p>, end: char) -> &'p str {
    let (before, after) = rest.as_str().split_once(end).unwrap_or((rest.as_str(), ""));
    *rest = after.chars();
    before
}

fn compile(pattern: &str) -> Result<Regex, String> {
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
    fn repetition_multiplies_a_patterns_size() {
        for (pattern, at_least, at_most) in [
            ("abc", 16, 30),
            ("^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$", 500, 2_000),
            ("(a{100}){90}", 18_000, 30_000),
            ("[a-z]{300}", 2_000, 6_000),
            (r"\p{L}{200}", 51_000, 60_000),
            ("((((a{1000}){1000}){1000}){1000}){1000}", 1_000_000, usize::MAX),
            ("(((", 1, 100),
            (")))){9", 1, 200),
        ] {
            let size = size(pattern);
            assert!((at_least..=at_most).contains(&size), "{pattern}: {size}");
        }
    }

    #[test]
    fn bad_and_hostile_patterns_are_refused() {
        for pattern in ["(", "a**b(", "(a{1000}){1000}", r"(?=a)", &"a".repeat(PATTERN_BYTES_MAX + 1)] {
            assert!(compile(pattern).is_err(), "{pattern:.40}");
        }
    }
}
