//! How much work an evaluation can be, from the expression and the size of its inputs.
//!
//! The engine has no run-time budget, so this one is spent in advance. It is an upper estimate in the manner of
//! Kubernetes' static cost, but with the real sizes instead of the schema's maxima. The unit is about a tenth of a
//! microsecond: one node of the tree visited, or one value copied.

use kube_cel::cel::IdedExpr;
use kube_cel::cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, LiteralValue, operators};

use super::convert::Size;
use super::library::RANGE_MAX;

/// What compiling and running a pattern may cost; most are found compiled.
const PATTERN_COST: u64 = 500;

pub(super) fn estimate(expression: &IdedExpr, size: &Size) -> u64 {
    Estimator { size, scope: Vec::new() }.of(expression).work
}

#[derive(Clone, Copy, Default)]
struct Estimate {
    /// Steps to compute it.
    work: u64,
    /// The longest list it may contain.
    length: u64,
    /// How many values it consists of.
    values: u64,
    /// Whether it lies inside an input: then the items of its lists together are no more than that input.
    is_part: bool,
}

struct Estimator<'a> {
    size: &'a Size,
    scope: Vec<(&'a str, Estimate)>,
}

impl<'a> Estimator<'a> {
    fn of(&mut self, expression: &'a IdedExpr) -> Estimate {
        match &expression.expr {
            Expr::Unspecified => Estimate::default(),
            Expr::Literal(LiteralValue::String(text)) => {
                Estimate { work: 1, length: 1, values: 1 + text.inner().len() as u64 / 64, is_part: false }
            }
            Expr::Literal(_) => Estimate { work: 1, length: 1, values: 1, is_part: false },
            Expr::Ident(name) => match self.scope.iter().rev().find(|(known, _)| known == name) {
                Some((_, bound)) => Estimate { work: 1, ..*bound },
                None => Estimate { work: 1, length: self.size.length, values: self.size.values, is_part: true },
            },
            Expr::Select(select) => plus(self.of(&select.operand), 1),
            Expr::List(list) => {
                let items = self.all(list.elements.iter());
                Estimate { length: items.length.max(list.elements.len() as u64), is_part: false, ..items }
            }
            Expr::Map(map) => {
                let mut items = Estimate { work: 1, length: map.entries.len() as u64, values: 1, is_part: false };
                for entry in &map.entries {
                    if let EntryExpr::MapEntry(entry) = &entry.expr {
                        items = join(items, self.of(&entry.key));
                        items = join(items, self.of(&entry.value));
                    }
                }
                items
            }
            Expr::Struct(_) => Estimate::default(),
            Expr::Call(call) => self.call(call),
            Expr::Comprehension(comprehension) => self.comprehension(comprehension),
        }
    }

    fn all(&mut self, expressions: impl Iterator<Item = &'a IdedExpr>) -> Estimate {
        expressions.fold(Estimate { work: 1, ..Estimate::default() }, |sum, one| join(sum, self.of(one)))
    }

    fn call(&mut self, call: &'a CallExpr) -> Estimate {
        if call.func_name == operators::INDEX || call.func_name == operators::OPT_INDEX {
            // An index borrows from its operand.
            let operand = call.args.first().map_or(Estimate::default(), |operand| self.of(operand));
            return plus(operand, 1 + call.args.get(1).map_or(0, |key| self.of(key).work));
        }
        let parts: Vec<Estimate> =
            call.target.iter().map(AsRef::as_ref).chain(&call.args).map(|part| self.of(part)).collect();
        let sum = parts.iter().fold(Estimate { work: 1, ..Estimate::default() }, |sum, part| join(sum, *part));
        let product = parts.iter().fold(1u64, |product, part| product.saturating_mul(part.values.max(1)));
        match call.func_name.as_str() {
            name if !name.starts_with(|c: char| c.is_ascii_alphabetic()) => self.operator(name, sum),
            // Each function is handed copies of its arguments.
            "flatten" => {
                let length = sum.length.saturating_mul(sum.length);
                Estimate { length, ..plus(sum, sum.values) }
            }
            "contains" | "equivalent" | "intersects" | "distinct" => {
                plus(sum, sum.values.saturating_add(sum.length.saturating_mul(sum.length)))
            }
            "range" => {
                let wanted = match call.args.first().map(|argument| &argument.expr) {
                    Some(Expr::Literal(LiteralValue::Int(end))) => u64::try_from(*end.inner()).unwrap_or(0),
                    _ => RANGE_MAX.unsigned_abs(),
                };
                let length = wanted.min(RANGE_MAX.unsigned_abs());
                Estimate { work: sum.work.saturating_add(length), length, values: length, is_part: false }
            }
            "matches" | "find" => plus(sum, sum.values.saturating_add(PATTERN_COST)),
            "findAll" | "split" => {
                let length = sum.length.max(self.size.text);
                plus(Estimate { length, values: sum.values.max(length), ..sum }, PATTERN_COST + length)
            }
            "replace" | "join" | "format" => Estimate { values: product, ..plus(sum, product) },
            _ => plus(sum, sum.values),
        }
    }

    fn operator(&self, name: &str, sum: Estimate) -> Estimate {
        match name {
            // Sums of lists and texts copy, comparisons walk, `in` searches.
            operators::ADD | operators::EQUALS | operators::NOT_EQUALS | operators::IN => {
                let copied = if sum.is_part { sum.values.min(self.size.values) } else { sum.values };
                Estimate { is_part: false, ..plus(sum, copied) }
            }
            operators::CONDITIONAL => sum,
            _ => Estimate { work: sum.work, length: 1, values: 1, is_part: false },
        }
    }

    fn comprehension(&mut self, comprehension: &'a ComprehensionExpr) -> Estimate {
        let range = self.of(&comprehension.iter_range);
        let start = self.of(&comprehension.accu_init);
        let times = range.length.max(1);
        let item_values = if range.is_part { range.values.div_ceil(times) } else { range.values };
        let item = Estimate { work: 1, length: range.length, values: item_values, is_part: range.is_part };
        let outer = self.scope.len();
        // The accumulator is accounted for below; inside the step it costs a look.
        self.scope.push((&comprehension.accu_var, Estimate { work: 1, length: 0, values: 0, is_part: false }));
        self.scope.push((&comprehension.iter_var, item));
        let condition = self.of(&comprehension.loop_cond);
        let step = self.of(&comprehension.loop_step);
        self.scope.truncate(outer);

        let each = condition.work.saturating_add(step.work).saturating_add(1);
        let mut work = range.work.saturating_add(start.work).saturating_add(times.saturating_mul(each));
        let collects = matches!(comprehension.accu_init.expr, Expr::List(_));
        if !collects {
            return Estimate { work, length: 1, values: 1, is_part: false };
        }
        // A collecting comprehension copies all it has so far at each step.
        let values = times.saturating_mul(step.values.max(1));
        work = work.saturating_add(times.saturating_mul(values) / 2);
        Estimate { work, length: times.max(step.length), values, is_part: range.is_part && keeps_items(comprehension) }
    }
}

/// Whether the comprehension is a filter: its items are items of its range.
fn keeps_items(comprehension: &ComprehensionExpr) -> bool {
    let Expr::Call(step) = &comprehension.loop_step.expr else { return false };
    let Some(IdedExpr { expr: Expr::Call(sum), .. }) = step.args.get(1) else { return false };
    let Some(IdedExpr { expr: Expr::List(list), .. }) = sum.args.get(1) else { return false };
    step.func_name == operators::CONDITIONAL
        && matches!(list.elements.as_slice(), [IdedExpr { expr: Expr::Ident(name), .. }] if *name == comprehension.iter_var)
}

fn plus(estimate: Estimate, work: u64) -> Estimate {
    Estimate { work: estimate.work.saturating_add(work), ..estimate }
}

/// Both computed, and the result made of both.
fn join(left: Estimate, right: Estimate) -> Estimate {
    Estimate {
        work: left.work.saturating_add(right.work),
        length: left.length.max(right.length),
        values: left.values.saturating_add(right.values),
        is_part: left.is_part || right.is_part,
    }
}
