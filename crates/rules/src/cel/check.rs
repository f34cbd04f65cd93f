//! What is looked at before an expression may run: its size as text, its tree, its names.

use kube_cel::cel::IdedExpr;
use kube_cel::cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedEntryExpr, ListExpr, LiteralValue, operators,
};

use super::library;
use super::{COMPREHENSIONS_NESTED_MAX, CelError, DEPTH_MAX, EXPRESSION_BYTES_MAX, NESTING_MAX};

/// Bounds the text, before the parser builds a tree that is deeper than the stack: how deep it can be is told from the
/// longest chain of operators inside each open bracket. `&&` and `||` make a balanced tree, so chains begin anew there, as
/// they do at a comma.
pub(super) fn scan(source: &str) -> Result<(), CelError> {
    if source.len() > EXPRESSION_BYTES_MAX {
        return Err(CelError::TooLong);
    }
    let mut open = Vec::new();
    let mut here = Chain::default();
    let mut depth = 0usize;
    let bytes = source.as_bytes();
    let mut at = 0;
    let mut is_word = false;
    while let Some(byte) = bytes.get(at) {
        let was_word = std::mem::replace(&mut is_word, byte.is_ascii_alphanumeric() || *byte == b'_');
        let is_doubled = bytes.get(at + 1) == Some(byte);
        match byte {
            b'"' | b'\'' => at = string_end(bytes, at),
            b'(' | b'[' | b'{' => {
                here.links += 1;
                depth += here.links + here.conditionals;
                open.push(std::mem::take(&mut here));
            }
            b')' | b']' | b'}' => {
                here = open.pop().unwrap_or_default();
                depth = depth.saturating_sub(here.links + here.conditionals);
            }
            // A conditional nests without brackets: its right side holds the next one.
            b'?' if !matches!(bytes.get(at.wrapping_sub(1)), Some(b'.' | b'[' | b'{' | b',')) => {
                here = Chain { links: 0, conditionals: here.conditionals + 1 };
            }
            b',' | b':' => here.links = 0,
            b'&' | b'|' if is_doubled => {
                here.links = 0;
                at += 1;
            }
            b'.' | b'?' | b'+' | b'-' | b'*' | b'/' | b'%' | b'<' | b'>' | b'=' | b'!' | b'&' | b'|' => here.links += 1,
            // `in` is the one operator spelled with letters.
            b'i' if !was_word && bytes.get(at + 1) == Some(&b'n') => here.links += 1,
            _ => {}
        }
        let nesting = open.len() + open.iter().map(|chain| chain.conditionals).sum::<usize>() + here.conditionals;
        if nesting > NESTING_MAX || depth + here.links + here.conditionals > DEPTH_MAX {
            return Err(CelError::TooComplex);
        }
        at += 1;
    }
    Ok(())
}

/// The operators inside one bracket so far: those that can be levels of one chain, and conditionals.
#[derive(Default)]
struct Chain {
    links: usize,
    conditionals: usize,
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

/// Expands the macros the parser does not know, and numbers the nodes: the parser gives some of them one number.
pub(super) fn expand(expression: &mut IdedExpr) {
    visit_mut(expression, &mut |node| {
        if let Expr::Call(call) = &mut node.expr
            && call.args.len() == 2
            && let Some(target) = call.target.take_if(|_| matches!(call.func_name.as_str(), "optMap" | "optFlatMap"))
            && let Expr::Ident(variable) = &call.args[0].expr
        {
            node.expr = mapped_optional(*target, variable, call.args[1].clone(), call.func_name == "optMap");
        }
    });
    let mut id = 0;
    visit_mut(expression, &mut |node| {
        id += 1;
        node.id = id;
    });
}

/// `target.optMap(variable, step)`: `target.hasValue() ? optional.of(step) : optional.none()` with the variable bound, by
/// a comprehension that never runs, to `target.value()`.
fn mapped_optional(target: IdedExpr, variable: &str, step: IdedExpr, is_wrapped: bool) -> Expr {
    let node = |expr: Expr| IdedExpr { id: 0, expr };
    let call = |name: &str, target: Option<IdedExpr>, args: Vec<IdedExpr>| {
        node(Expr::Call(CallExpr { func_name: name.into(), target: target.map(Box::new), args }))
    };
    let bound = node(Expr::Comprehension(Box::new(ComprehensionExpr {
        iter_range: node(Expr::List(ListExpr::default())),
        iter_var: "#unused".into(),
        iter_var2: None,
        accu_var: variable.into(),
        accu_init: call("value", Some(target.clone()), Vec::new()),
        loop_cond: node(Expr::Literal(LiteralValue::Boolean(false.into()))),
        loop_step: node(Expr::Ident(variable.into())),
        result: step,
    })));
    let optional = || Some(node(Expr::Ident("optional".into())));
    let some = if is_wrapped { call("of", optional(), vec![bound]) } else { bound };
    let none = call("none", optional(), Vec::new());
    let has = call("hasValue", Some(target), Vec::new());
    Expr::Call(CallExpr { func_name: operators::CONDITIONAL.into(), target: None, args: vec![has, some, none] })
}

/// Every variable is declared, every function exists, and comprehensions do not nest too deep.
pub(super) fn names(expression: &IdedExpr, variables: &[String]) -> Result<(), CelError> {
    Names { scope: variables.to_vec(), comprehensions: 0 }.check(expression)
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
        if self.scope.iter().any(|known| known == name) || library::is_type(name) {
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
