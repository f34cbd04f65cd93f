//! From text to nodes. client-go's parser is a hand-written scanner with habits of its own (brackets end at the first
//! `]`, a quoted key is a path again); they are kept, because paths in the wild rely on them.

use super::{CompileError, End, Filter, Node, PATH_DEPTH_MAX, Slice};

/// Parses what stands between the braces of one action.
pub(super) fn action(text: &str, depth: usize) -> Result<Vec<Node>, CompileError> {
    if depth > PATH_DEPTH_MAX {
        return Err(CompileError::TooDeep);
    }
    let mut parser = Parser { rest: text, depth, nodes: Vec::new() };
    while !parser.rest.is_empty() {
        parser.next_node()?;
    }
    Ok(parser.nodes)
}

struct Parser<'t> {
    rest: &'t str,
    depth: usize,
    nodes: Vec<Node>,
}

fn syntax<T>(text: impl Into<String>) -> Result<T, CompileError> {
    Err(CompileError::Syntax(text.into()))
}

impl<'t> Parser<'t> {
    /// Takes one node, or a character that means nothing, from the front.
    fn next_node(&mut self) -> Result<(), CompileError> {
        if let Some(rest) = self.rest.strip_prefix("[?(") {
            return self.filter(rest);
        }
        if let Some(rest) = self.rest.strip_prefix("..") {
            return self.recursive(rest);
        }
        let Some(first) = self.rest.chars().next() else { return Ok(()) };
        let after = &self.rest[first.len_utf8()..];
        match first {
            '}' => Err(CompileError::Template),
            '\r' | '\n' => syntax("unclosed action"),
            ' ' | '@' | '$' => {
                self.rest = after;
                Ok(())
            }
            '[' => self.array(after),
            '"' | '\'' => self.quote(first),
            '.' => {
                self.rest = after;
                self.field()
            }
            '+' | '-' => self.number(),
            first if first.is_ascii_digit() => self.number(),
            first if is_word(first) => self.identifier(),
            other => syntax(format!("unrecognized character in action: U+{:04X} '{other}'", u32::from(other))),
        }
    }

    /// Splits the rest at `length` bytes and moves behind.
    fn take(&mut self, length: usize) -> &'t str {
        let (taken, rest) = self.rest.split_at(length);
        self.rest = rest;
        taken
    }

    fn field(&mut self) -> Result<(), CompileError> {
        let mut length = 0;
        let mut chars = self.rest.chars();
        while let Some(c) = chars.next() {
            if c == '\\' {
                // A last backslash would escape the closing brace.
                let Some(escaped) = chars.next() else { return syntax("unclosed action") };
                length += 1 + escaped.len_utf8();
            } else if is_terminator(c) {
                break;
            } else {
                length += c.len_utf8();
            }
        }
        let name = self.take(length);
        self.nodes.push(if name == "*" { Node::Wildcard } else { Node::Field(name.replace('\\', "")) });
        Ok(())
    }

    fn recursive(&mut self, rest: &'t str) -> Result<(), CompileError> {
        if self.nodes.last() == Some(&Node::Recursive) {
            return syntax("invalid multiple recursive descent");
        }
        self.rest = rest;
        self.nodes.push(Node::Recursive);
        if rest.chars().next().is_some_and(is_word) { self.field() } else { Ok(()) }
    }

    fn identifier(&mut self) -> Result<(), CompileError> {
        let length = self.rest.find(is_terminator).unwrap_or(self.rest.len());
        match self.take(length) {
            "true" => self.nodes.push(Node::Bool(true)),
            "false" => self.nodes.push(Node::Bool(false)),
            "range" | "end" => return Err(CompileError::Template),
            word => self.nodes.push(Node::Identifier(word.to_string())),
        }
        Ok(())
    }

    fn number(&mut self) -> Result<(), CompileError> {
        let sign = usize::from(self.rest.starts_with(['+', '-']));
        let digits = &self.rest[sign..];
        let length = digits.find(|c: char| c != '.' && !c.is_ascii_digit()).unwrap_or(digits.len());
        let text = self.take(sign + length);
        if let Ok(int) = text.parse::<i64>() {
            self.nodes.push(Node::Int(int));
            return Ok(());
        }
        // A decimal point, or more digits than an integer holds. Only filters compare it; it never becomes an amount.
        match text.parse::<f64>() {
            Ok(float) if float.is_finite() => {
                self.nodes.push(Node::Float(float));
                Ok(())
            }
            _ => syntax(format!("cannot parse number {text}")),
        }
    }

    fn quote(&mut self, quote: char) -> Result<(), CompileError> {
        let bytes = self.rest.as_bytes();
        let mut at = 1;
        loop {
            match bytes.get(at) {
                None | Some(b'\n') => return syntax("unterminated quoted string"),
                // The byte before decides, so an escaped backslash cannot end a string; upstream's habit.
                Some(byte) if char::from(*byte) == quote && bytes[at - 1] != b'\\' => break,
                Some(_) => at += 1,
            }
        }
        let text = self.take(at + 1);
        match unquote(&text[1..text.len() - 1], quote) {
            Some(value) => self.nodes.push(Node::Text(value)),
            None => return syntax(format!("unquote string {text} error invalid syntax")),
        }
        Ok(())
    }

    /// `[…]`: an index, a slice, a quoted key, `*`, or a union of those.
    fn array(&mut self, rest: &'t str) -> Result<(), CompileError> {
        let end = match rest.find([']', '\n']) {
            Some(end) if rest.as_bytes()[end] == b']' => end,
            _ => return syntax("unterminated array"),
        };
        let text = &rest[..end];
        self.rest = &rest[end + 1..];
        let text = if text == "*" { ":" } else { text };
        if text.contains(',') {
            let members = text.split(',').map(|member| {
                let member = member.trim_matches(' ');
                action(&format!("[{member}]"), self.depth + 1)
            });
            self.nodes.push(Node::Union(members.collect::<Result<_, _>>()?));
            return Ok(());
        }
        let key = text.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\'')).filter(|key| !key.contains('\''));
        if let Some(key) = key {
            self.nodes.extend(action(&format!(".{key}"), self.depth + 1)?);
            return Ok(());
        }
        self.nodes.push(Node::Slice(slice(text)?));
        Ok(())
    }

    fn filter(&mut self, rest: &'t str) -> Result<(), CompileError> {
        let close = filter_end(rest)?;
        if !rest[close + 1..].starts_with(']') {
            return syntax("unclosed array expect ]");
        }
        let text = &rest[..close];
        self.rest = &rest[close + 2..];
        let depth = self.depth + 1;
        let is_operator = |c: char| "!<>=".contains(c);
        // Something, operator characters, something: otherwise it asks for existence.
        let split = text.find(is_operator).filter(|start| *start > 0).and_then(|start| {
            let length = text[start..].find(|c| !is_operator(c))?;
            Some((&text[..start], &text[start..start + length], &text[start + length..]))
        });
        let filter = match split {
            None => match trailing_operator(text) {
                // The right side needs a character of its own, so a run of two gives up its last.
                Some((left, operator, right)) => comparison(left, operator, right, depth)?,
                None => Filter { left: action(text, depth)?, right: Vec::new(), operator: None },
            },
            Some((left, operator, right)) => comparison(left, operator, right, depth)?,
        };
        self.nodes.push(Node::Filter(Box::new(filter)));
        Ok(())
    }
}

fn comparison(left: &str, operator: &str, right: &str, depth: usize) -> Result<Filter, CompileError> {
    Ok(Filter { left: action(left, depth)?, right: action(right, depth)?, operator: Some(operator.to_string()) })
}

/// `@.a==` with nothing behind: upstream's pattern takes the last operator character for the right side.
fn trailing_operator(text: &str) -> Option<(&str, &str, &str)> {
    let start = text.find(['!', '<', '>', '=']).filter(|start| *start > 0)?;
    let last = text.len() - 1;
    (last > start).then(|| (&text[..start], &text[start..last], &text[last..]))
}

/// Where the filter's bracket closes: at a `)` outside the first pair of quotes.
fn filter_end(text: &str) -> Result<usize, CompileError> {
    let bytes = text.as_bytes();
    let (mut opened, mut closed) = (None, false);
    for (at, byte) in bytes.iter().enumerate() {
        match (byte, opened) {
            (b'\n', _) => break,
            (b'"' | b'\'', None) => opened = Some(*byte),
            (b'"' | b'\'', Some(pair)) => {
                closed |= *byte == pair && bytes[at - 1] != b'\\';
            }
            (b')', _) if opened.is_some() == closed => return Ok(at),
            _ => {}
        }
    }
    syntax("unterminated filter")
}

/// `1`, `-1`, `1:3`, `::2`, and nothing at all, which is the first item.
fn slice(text: &str) -> Result<Slice, CompileError> {
    let parts: Vec<&str> = text.split(':').collect();
    let is_number = |part: &str| {
        let digits = part.strip_prefix('-').unwrap_or(part);
        digits.bytes().all(|byte| byte.is_ascii_digit())
    };
    if parts.len() > 3 || !parts.iter().all(|part| is_number(part)) {
        return syntax(format!("invalid array index {text}"));
    }
    let number = |part: &&str| -> Result<Option<i64>, CompileError> {
        if part.is_empty() {
            return Ok(None);
        }
        match part.parse() {
            Ok(number) => Ok(Some(number)),
            Err(_) => syntax(format!("array index {part} is not a number")),
        }
    };
    let start = parts.first().map_or(Ok(None), number)?;
    let end = match parts.get(1) {
        None => End::One,
        Some(part) => number(part)?.map_or(End::Open, End::At),
    };
    let step = parts.get(2).map_or(Ok(None), number)?;
    Ok(Slice { start, end, step })
}

fn is_terminator(c: char) -> bool {
    " \t\r\n.,[]$@{}".contains(c)
}

fn is_word(c: char) -> bool {
    c == '_' || c.is_alphabetic() || c.is_numeric()
}

/// Go's escapes inside quotes. `None` for one that does not exist.
fn unquote(text: &str, quote: char) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c == quote {
            return None;
        }
        if c != '\\' {
            out.push(c);
            continue;
        }
        let escape = chars.next()?;
        match escape {
            'a' => out.push('\u{7}'),
            'b' => out.push('\u{8}'),
            'f' => out.push('\u{c}'),
            'n' => out.push('\n'),
            'r' => out.push('\r'),
            't' => out.push('\t'),
            'v' => out.push('\u{b}'),
            '\\' => out.push('\\'),
            '\'' | '"' if escape == quote => out.push(escape),
            'x' => out.push(code(&mut chars, 2, 16, 0)?),
            'u' => out.push(code(&mut chars, 4, 16, 0)?),
            'U' => out.push(code(&mut chars, 8, 16, 0)?),
            '0'..='7' => {
                let value = code(&mut chars, 2, 8, escape.to_digit(8)?)?;
                out.push(Some(value).filter(|value| u32::from(*value) < 256)?);
            }
            _ => return None,
        }
    }
    Some(out)
}

/// `digits` more digits behind those already in `value`. Bytes above 127 become the character of that number: a text of
/// ours is always valid Unicode.
fn code(chars: &mut std::str::Chars<'_>, digits: usize, radix: u32, mut value: u32) -> Option<char> {
    for _ in 0..digits {
        value = value.checked_mul(radix)?.checked_add(chars.next()?.to_digit(radix)?)?;
    }
    char::from_u32(value)
}
