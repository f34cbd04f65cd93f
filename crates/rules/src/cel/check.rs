//! What is looked at before an expression may run: its size as text, its tree, its names.

use kube_cel::cel::IdedExpr;
use kube_cel::cel::common::ast::{CallExpr, EntryExpr, Expr, IdedEntryExpr, LiteralValue, operators};

use super::library;
use super::{COMPREHENSIONS_NESTED_MAX, CelError, EXPRESSION_BYTES_MAX, NESTING_MAX, OPERATORS_MAX};

/// Bounds the text, before the parser builds a tree that is deeper than the stack.
pub(super) fn scan(source: &str) -> Result<(), CelError> {
    if source.len() > EXPRESSION_BYTES_MAX {
        return Err(CelError::TooLong);
    }
    let (mut operators, mut nesting) = (0usize, 0usize);
    let bytes = source.as_bytes();
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' | b'\'' => at = string_end(bytes, at),
            b'(' | b'[' | b'{' => {
                operators += 1;
                nesting += 1;
                if nesting > NESTING_MAX {
                    return Err(CelError::TooComplex);
                }
            }
            b')' | b']' | b'}' => nesting = nesting.saturating_sub(1),
            b'?' => {
                // A conditional nests without brackets: its right side holds the next one.
                operators += 1;
                nesting += usize::from(!matches!(bytes.get(at.wrapping_sub(1)), Some(b'.' | b'[' | b'{' | b',')));
                if nesting > NESTING_MAX {
                    return Err(CelError::TooComplex);
                }
            }
            b'.' | b'+' | b'-' | b'*' | b'/' | b'%' | b'<' | b'>' | b'=' | b'!' | b'&' | b'|' => operators += 1,
            _ => {}
        }
        at += 1;
    }
    // `in` is the one operator spelled with letters.
    operators += source.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| *word == "in").count();
    if operators > OPERATORS_MAX { Err(CelError::TooComplex) } else { Ok(()) }
}

/// The index of the closing quote. A string that never closes ends nowhere: what follows is counted as text, and the
/// parser refuses it.
fn string_end(bytes: &[u8], start: usize) -> usize {
    let quote = bytes[start];
    let triple = bytes[start..].starts_with(&[quote; 3]);
    let raw = start > 0 && matches!(bytes[start - 1], b'r' | b'R');
    let mut at = start + if triple { 3 } else { 1 };
    while at < bytes.len() {
        match bytes[at] {
            b'\\' if !raw => at += 1,
            byte if byte == quote && !triple => return at,
            byte if byte == quote && bytes[at..].starts_with(&[quote; 3]) => return at + 2,
            // A plain string ends with its line; the parser complains, and the count must go on.
            b'\n' | b'\r' if !triple => return at,
            _ => {}
        }
        at += 1;
    }
    // Unclosed: count everything after the quote as if it were outside.
    start
}

/// Replaces what the engine gets wrong by what it gets right. A select on something that is no map gives `false` there,
/// and copies the map; the same thing written as an index is an error, and borrows. `x.?y` fails on a missing key, where
/// `x[?'y']` is the empty optional it should be.
pub(super) fn rewrite(expression: &mut IdedExpr) {
    visit_mut(expression, &mut |node| match &mut node.expr {
        Expr::Select(select) if !select.test => {
            let operand = std::mem::take(select.operand.as_mut());
            let field = std::mem::take(&mut select.field);
            let key = IdedExpr { id: node.id, expr: Expr::Literal(LiteralValue::String(field.as_str().into())) };
            node.expr =
                Expr::Call(CallExpr { func_name: operators::INDEX.into(), target: None, args: vec![operand, key] });
        }
        Expr::Call(call) if call.func_name == operators::OPT_SELECT => call.func_name = operators::OPT_INDEX.into(),
        _ => {}
    });
}

/// Every variable is declared, every function exists, and comprehensions do not nest too deep.
pub(super) fn names(expression: &IdedExpr, variables: &[&str]) -> Result<(), CelError> {
    Names { scope: variables.iter().map(|name| (*name).to_string()).collect(), comprehensions: 0 }.check(expression)
}

struct Names {
    scope: Vec<String>,
    comprehensions: usize,
}

impl Names {
    fn check(&mut self, expression: &IdedExpr) -> Result<(), CelError> {
        match &expression.expr {
            Expr::Unspecified | Expr::Literal(_) => Ok(()),
            Expr::Ident(name) => self.variable(name),
            Expr::Select(select) => self.check(&select.operand),
            Expr::List(list) => list.elements.iter().try_for_each(|element| self.check(element)),
            Expr::Map(map) => map.entries.iter().try_for_each(|entry| self.entry(entry)),
            Expr::Struct(_) => Err(CelError::Unsupported("message construction")),
            Expr::Call(call) => self.call(call),
            Expr::Comprehension(comprehension) => {
                self.check(&comprehension.iter_range)?;
                self.check(&comprehension.accu_init)?;
                if comprehension.iter_var2.is_some() {
                    return Err(CelError::Unsupported("two-variable comprehension"));
                }
                self.comprehensions += 1;
                if self.comprehensions > COMPREHENSIONS_NESTED_MAX {
                    return Err(CelError::ComprehensionsTooDeep);
                }
                let outer = self.scope.len();
                self.scope.push(comprehension.accu_var.clone());
                self.scope.push(comprehension.iter_var.clone());
                self.check(&comprehension.loop_cond)?;
                self.check(&comprehension.loop_step)?;
                self.check(&comprehension.result)?;
                self.scope.truncate(outer);
                self.comprehensions -= 1;
                Ok(())
            }
        }
    }

    fn variable(&self, name: &str) -> Result<(), CelError> {
        if self.scope.iter().any(|known| known == name) {
            Ok(())
        } else {
            Err(CelError::UnknownVariable(name.to_string()))
        }
    }

    fn entry(&mut self, entry: &IdedEntryExpr) -> Result<(), CelError> {
        match &entry.expr {
            EntryExpr::StructField(_) => Err(CelError::Unsupported("message construction")),
            EntryExpr::MapEntry(entry) => {
                self.check(&entry.key)?;
                self.check(&entry.value)
            }
        }
    }

    fn call(&mut self, call: &CallExpr) -> Result<(), CelError> {
        call.args.iter().try_for_each(|argument| self.check(argument))?;
        let Some(target) = &call.target else {
            return if library::is_operator(&call.func_name) || library::has_function(&call.func_name) {
                Ok(())
            } else {
                Err(CelError::UnknownFunction(call.func_name.clone()))
            };
        };
        // `math.ceil(x)` parses like a method of a variable; the engine prefers the function, and so does this.
        if let Some(namespace) = library::namespace(target)
            && library::has_function(&format!("{namespace}.{}", call.func_name))
        {
            return Ok(());
        }
        if !library::has_function(&call.func_name) {
            return Err(CelError::UnknownFunction(call.func_name.clone()));
        }
        self.check(target)
    }
}

/// Children first, so that a rewrite sees its operands rewritten.
fn visit_mut(expression: &mut IdedExpr, change: &mut impl FnMut(&mut IdedExpr)) {
    match &mut expression.expr {
        Expr::Unspecified | Expr::Literal(_) | Expr::Ident(_) => {}
        Expr::Select(select) => visit_mut(&mut select.operand, change),
        Expr::List(list) => list.elements.iter_mut().for_each(|element| visit_mut(element, change)),
        Expr::Map(map) => map.entries.iter_mut().for_each(|entry| visit_entry_mut(entry, change)),
        Expr::Struct(message) => message.entries.iter_mut().for_each(|entry| visit_entry_mut(entry, change)),
        Expr::Call(call) => {
            if let Some(target) = &mut call.target {
                visit_mut(target, change);
            }
            call.args.iter_mut().for_each(|argument| visit_mut(argument, change));
        }
        Expr::Comprehension(comprehension) => {
            visit_mut(&mut comprehension.iter_range, change);
            visit_mut(&mut comprehension.accu_init, change);
            visit_mut(&mut comprehension.loop_cond, change);
            visit_mut(&mut comprehension.loop_step, change);
            visit_mut(&mut comprehension.result, change);
        }
    }
    change(expression);
}

fn visit_entry_mut(entry: &mut IdedEntryExpr, change: &mut impl FnMut(&mut IdedExpr)) {
    match &mut entry.expr {
        EntryExpr::StructField(field) => visit_mut(&mut field.value, change),
        EntryExpr::MapEntry(entry) => {
            visit_mut(&mut entry.key, change);
            visit_mut(&mut entry.value, change);
        }
    }
}
