//! Arguments that are written out and can never be right: `duration('soon')`, `matches('(')`.

use kube_cel::cel::IdedExpr;
use kube_cel::cel::common::ast::{CallExpr, EntryExpr, Expr, LiteralValue};

use crate::cel::{inputs, library};

/// The first such argument's complaint.
pub(in crate::cel) fn literals(node: &IdedExpr) -> Result<(), String> {
    match &node.expr {
        Expr::Unspecified | Expr::Literal(_) | Expr::Ident(_) | Expr::Struct(_) => Ok(()),
        Expr::Select(select) => literals(&select.operand),
        Expr::List(list) => list.elements.iter().try_for_each(literals),
        Expr::Map(map) => map.entries.iter().try_for_each(|entry| match &entry.expr {
            EntryExpr::MapEntry(entry) => literals(&entry.key).and_then(|()| literals(&entry.value)),
            EntryExpr::StructField(_) => Ok(()),
        }),
        Expr::Call(call) => {
            argument(call)?;
            call.target.iter().try_for_each(|target| literals(target))?;
            call.args.iter().try_for_each(literals)
        }
        Expr::Comprehension(comprehension) => [
            &comprehension.iter_range,
            &comprehension.accu_init,
            &comprehension.loop_cond,
            &comprehension.loop_step,
            &comprehension.result,
        ]
        .into_iter()
        .try_for_each(literals),
    }
}

fn argument(call: &CallExpr) -> Result<(), String> {
    let Some(IdedExpr { expr: Expr::Literal(LiteralValue::String(text)), .. }) = call.args.first() else {
        return Ok(());
    };
    let is_right = match call.func_name.as_str() {
        "duration" => inputs::duration(text.inner()).is_some(),
        "timestamp" => inputs::timestamp(text.inner()).is_some(),
        "matches" => library::is_pattern(text.inner()),
        _ => true,
    };
    if is_right { Ok(()) } else { Err(format!("invalid {} argument", call.func_name)) }
}
