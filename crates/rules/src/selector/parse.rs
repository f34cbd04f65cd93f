//! The text form of a label selector, and its complaints, as k8s.io/apimachinery's `labels.Parse` has them.

use super::name::{label_key_problems, label_value_problems, quoted};
use super::{Operator, Requirement, SELECTOR_BYTES_MAX, SelectorError};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    End,
    Close,
    Comma,
    Not,
    DoubleEquals,
    Equals,
    Greater,
    Word,
    In,
    Less,
    NotEquals,
    NotIn,
    Open,
}

#[derive(Clone, Copy)]
struct Token<'a> {
    kind: Kind,
    text: &'a str,
}

pub(super) fn parse(text: &str) -> Result<Vec<Requirement>, SelectorError> {
    if text.len() > SELECTOR_BYTES_MAX {
        return Err(SelectorError::TooLong);
    }
    let mut parser = Parser { tokens: tokens(text), at: 0 };
    let mut requirements = Vec::new();
    loop {
        match parser.peek_value() {
            Token { kind: Kind::Word | Kind::Not, .. } => {}
            Token { kind: Kind::End, .. } => return Ok(requirements),
            other => return Err(found(other, ", expected: !, identifier, or 'end of string'")),
        }
        let requirement = parser.requirement().map_err(within_requirement)?;
        requirements.push(requirement);
        match parser.take_value() {
            Token { kind: Kind::End, .. } => return Ok(requirements),
            Token { kind: Kind::Comma, .. } => {
                let next = parser.peek_value();
                if !matches!(next.kind, Kind::Word | Kind::Not) {
                    return Err(found(next, ", expected: identifier after ','"));
                }
            }
            other => return Err(found(other, ", expected: ',' or 'end of string'")),
        }
    }
}

fn within_requirement(error: SelectorError) -> SelectorError {
    match error {
        SelectorError::Syntax(text) => SelectorError::Syntax(format!("unable to parse requirement: {text}")),
        SelectorError::Invalid(text) => SelectorError::Invalid(format!("unable to parse requirement: {text}")),
        other => other,
    }
}

fn found(token: Token<'_>, expected: &str) -> SelectorError {
    SelectorError::Syntax(format!("found '{}'{expected}", token.text))
}

/// The tokens of the text, with an end token last.
fn tokens(text: &str) -> Vec<Token<'_>> {
    let bytes = text.as_bytes();
    let mut tokens = Vec::new();
    let mut at = 0;
    loop {
        while bytes.get(at).is_some_and(|byte| b" \t\r\n".contains(byte)) {
            at += 1;
        }
        let start = at;
        // A zero byte ends a text upstream.
        let Some(first) = bytes.get(at).copied().filter(|byte| *byte != 0) else {
            tokens.push(Token { kind: Kind::End, text: "" });
            return tokens;
        };
        if is_symbol(first) {
            let doubled = matches!((first, bytes.get(at + 1)), (b'=' | b'!', Some(b'=')));
            at += 1 + usize::from(doubled);
            tokens.push(Token { kind: symbol_kind(first, doubled), text: &text[start..at] });
            continue;
        }
        while bytes.get(at).is_some_and(|byte| *byte != 0 && !is_symbol(*byte) && !b" \t\r\n".contains(byte)) {
            at += 1;
        }
        let word = &text[start..at];
        let kind = match word {
            "in" => Kind::In,
            "notin" => Kind::NotIn,
            _ => Kind::Word,
        };
        tokens.push(Token { kind, text: word });
        at += usize::from(bytes.get(at) == Some(&0)); // inside a word it only ends the word
    }
}

fn is_symbol(byte: u8) -> bool {
    b"=!(),><".contains(&byte)
}

fn symbol_kind(first: u8, doubled: bool) -> Kind {
    match (first, doubled) {
        (b'=', true) => Kind::DoubleEquals,
        (b'=', false) => Kind::Equals,
        (b'!', true) => Kind::NotEquals,
        (b'!', false) => Kind::Not,
        (b'(', _) => Kind::Open,
        (b')', _) => Kind::Close,
        (b',', _) => Kind::Comma,
        (b'>', _) => Kind::Greater,
        _ => Kind::Less,
    }
}

struct Parser<'a> {
    tokens: Vec<Token<'a>>,
    at: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Token<'a> {
        // The end token is never passed, so looking there again is what reading past the end means.
        self.tokens.get(self.at).copied().unwrap_or(Token { kind: Kind::End, text: "" })
    }

    fn take(&mut self) -> Token<'a> {
        let token = self.peek();
        self.at += 1;
        token
    }

    /// Where a key or value may stand, `in` and `notin` are ordinary words.
    fn peek_value(&self) -> Token<'a> {
        as_value(self.peek())
    }

    fn take_value(&mut self) -> Token<'a> {
        as_value(self.take())
    }

    fn requirement(&mut self) -> Result<Requirement, SelectorError> {
        let mut token = self.take_value();
        let negated = token.kind == Kind::Not;
        if negated {
            token = self.take_value();
        }
        if token.kind != Kind::Word {
            return Err(found(token, ", expected: identifier"));
        }
        let key = token.text;
        let problems = label_key_problems(key);
        if !problems.is_empty() {
            return Err(invalid_key("<nil>", key, &problems));
        }
        if negated {
            return requirement(key, Operator::DoesNotExist, vec![]);
        }
        if matches!(self.peek_value().kind, Kind::End | Kind::Comma) {
            return requirement(key, Operator::Exists, vec![]);
        }
        let operator = self.operator()?;
        let mut values = match operator {
            Operator::In | Operator::NotIn => self.values()?,
            _ => vec![self.exact_value()?],
        };
        values.sort_unstable();
        values.dedup();
        requirement(key, operator, values)
    }

    fn operator(&mut self) -> Result<Operator, SelectorError> {
        let token = self.take();
        Ok(match token.kind {
            Kind::In => Operator::In,
            Kind::NotIn => Operator::NotIn,
            Kind::Equals => Operator::Equals,
            Kind::DoubleEquals => Operator::DoubleEquals,
            Kind::NotEquals => Operator::NotEquals,
            Kind::Greater => Operator::GreaterThan,
            Kind::Less => Operator::LessThan,
            _ => return Err(found(token, ", expected: in, notin, =, ==, !=, gt, lt")),
        })
    }

    /// `(a,b)`, where nothing between two commas, or between the brackets, is the empty value.
    fn values(&mut self) -> Result<Vec<String>, SelectorError> {
        let open = self.take_value();
        if open.kind != Kind::Open {
            return Err(found(open, " expected: '('"));
        }
        match self.peek_value() {
            Token { kind: Kind::Close, .. } => {
                self.take();
                return Ok(vec![String::new()]);
            }
            Token { kind: Kind::Word | Kind::Comma, .. } => {}
            other => return Err(found(other, ", expected: ',', ')' or identifier")),
        }
        let mut values = Vec::new();
        loop {
            let token = self.take_value();
            let next = self.peek_value();
            match (token.kind, next.kind) {
                (Kind::Word, Kind::Comma) => values.push(token.text.to_string()),
                (Kind::Word, Kind::Close) => {
                    values.push(token.text.to_string());
                    self.take();
                    return Ok(values);
                }
                (Kind::Word, _) => return Err(found(next, ", expected: ',' or ')'")),
                (Kind::Comma, Kind::Close) => {
                    values.push(String::new());
                    self.take();
                    return Ok(values);
                }
                (Kind::Comma, next) => {
                    if values.is_empty() || next == Kind::Comma {
                        values.push(String::new());
                    }
                }
                _ => return Err(found(token, ", expected: ',', or identifier")),
            }
        }
    }

    fn exact_value(&mut self) -> Result<String, SelectorError> {
        if matches!(self.peek_value().kind, Kind::End | Kind::Comma) {
            return Ok(String::new());
        }
        let token = self.take_value();
        if token.kind == Kind::Word { Ok(token.text.to_string()) } else { Err(found(token, ", expected: identifier")) }
    }
}

fn as_value(token: Token<'_>) -> Token<'_> {
    match token.kind {
        Kind::In | Kind::NotIn => Token { kind: Kind::Word, ..token },
        _ => token,
    }
}

fn invalid_key(path: &str, key: &str, problems: &[String]) -> SelectorError {
    SelectorError::Invalid(format!("{path}: Invalid value: {}: {}", quoted(key), problems.join("; ")))
}

/// A requirement whose key and values are allowed; every complaint at once otherwise.
pub(super) fn requirement(key: &str, operator: Operator, values: Vec<String>) -> Result<Requirement, SelectorError> {
    let mut complaints: Vec<String> = Vec::new();
    let mut complain = |text: String| {
        if !complaints.contains(&text) {
            complaints.push(text);
        }
    };
    let key_problems = label_key_problems(key);
    if !key_problems.is_empty() {
        complain(format!("key: Invalid value: {}: {}", quoted(key), key_problems.join("; ")));
    }
    match operator {
        Operator::In | Operator::NotIn if values.is_empty() => {
            complain("values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty".into());
        }
        Operator::Exists | Operator::DoesNotExist if !values.is_empty() => {
            let shown = serde_json::Value::from(values.clone());
            complain(format!("values: Invalid value: {shown}: values set must be empty for exists and does not exist"));
        }
        Operator::GreaterThan | Operator::LessThan => {
            for (at, value) in values.iter().enumerate() {
                if value.parse::<i64>().is_err() {
                    let value = quoted(value);
                    complain(format!(
                        "values[{at}]: Invalid value: {value}: for 'Gt', 'Lt' operators, the value must be an integer"
                    ));
                }
            }
        }
        _ => {}
    }
    for (at, value) in values.iter().enumerate() {
        let problems = label_value_problems(value);
        if !problems.is_empty() {
            complain(format!("values[{at}][{key}]: Invalid value: {}: {}", quoted(value), problems.join("; ")));
        }
    }
    match complaints.len() {
        0 => Ok(Requirement { key: key.into(), operator, values }),
        1 => Err(SelectorError::Invalid(complaints.remove(0))),
        _ => Err(SelectorError::Invalid(format!("[{}]", complaints.join(", ")))),
    }
}
