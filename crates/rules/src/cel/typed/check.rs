//! The type checker of the language definition: Hindley-Milner with `dyn`, overloads, and the first matching overload's
//! result type (or `dyn` where several match with different ones).

use std::collections::HashMap;
use std::sync::Arc;

use kube_cel::cel::IdedExpr;
use kube_cel::cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, LiteralValue, operators};

use super::function::{Functions, functions};
use super::{Shape, Type, Variable};
use crate::cel::library;

/// What checking found out, by the ids of nodes.
#[derive(Default)]
pub(in crate::cel) struct Checked {
    pub types: HashMap<u64, Type>,
    pub overloads: HashMap<u64, Vec<&'static str>>,
    /// Calls that look like `a.f(x)` and are the function `a.f`.
    pub qualified: HashMap<u64, String>,
    /// Variables from outside that are spoken of.
    pub used: Vec<String>,
}

impl Checked {
    pub(in crate::cel) fn ty(&self, node: &IdedExpr) -> &Type {
        self.types.get(&node.id).unwrap_or(&Type::Error)
    }
}

/// How strict the checker is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::cel) enum Dialect {
    /// The functions of Kubernetes' CEL, and items of one type in a list.
    Kubernetes,
    /// All functions the engine has: of those Kubernetes does not know, no type is known. A list may mix.
    Engine,
}

/// Types of the expression's nodes, or the first complaint.
pub(in crate::cel) fn check(
    expression: &IdedExpr,
    variables: &[Variable],
    dialect: Dialect,
) -> Result<Checked, String> {
    let mut scope = Vec::new();
    for variable in variables {
        let ty = variable.declared.ty();
        scope.push((variable.name.to_owned(), if variable.is_optional { Type::optional(ty) } else { ty }));
    }
    let outside = scope.len();
    let mut checker = Checker {
        functions: functions(),
        dialect,
        checked: Checked::default(),
        scope,
        outside,
        bound: HashMap::new(),
        trail: Vec::new(),
        fresh: 0,
        complaint: None,
    };
    checker.node(expression);
    if let Some(complaint) = checker.complaint {
        return Err(complaint);
    }
    let mut checked = std::mem::take(&mut checker.checked);
    for ty in checked.types.values_mut() {
        *ty = checker.resolved(ty, true);
    }
    if dialect == Dialect::Kubernetes {
        homogeneous(expression, &checked, false)?;
    }
    Ok(checked)
}

struct Checker {
    functions: &'static Functions,
    dialect: Dialect,
    checked: Checked,
    scope: Vec<(String, Type)>,
    /// How many of the scope's variables come from outside.
    outside: usize,
    /// What type variables stand for.
    bound: HashMap<u32, Type>,
    /// What was bound since an attempt began, to take it back.
    trail: Vec<(u32, Option<Type>)>,
    fresh: u32,
    complaint: Option<String>,
}

impl Checker {
    fn complain(&mut self, complaint: impl Into<String>) -> Type {
        self.complaint.get_or_insert_with(|| complaint.into());
        Type::Error
    }

    fn node(&mut self, node: &IdedExpr) -> Type {
        if self.complaint.is_some() {
            return Type::Error;
        }
        let ty = match &node.expr {
            Expr::Unspecified => Type::Error,
            Expr::Literal(literal) => match literal {
                LiteralValue::Boolean(_) => Type::Bool,
                LiteralValue::Bytes(_) => Type::Bytes,
                LiteralValue::Double(_) => Type::Double,
                LiteralValue::Int(_) => Type::Int,
                LiteralValue::Null => Type::Null,
                LiteralValue::String(_) => Type::Text,
                LiteralValue::UInt(_) => Type::Uint,
            },
            Expr::Ident(name) => self.variable(name),
            Expr::Select(select) => {
                let field = self.field(&select.operand, &select.field, false);
                if select.test { Type::Bool } else { self.resolved(&field, false) }
            }
            Expr::List(list) => {
                let mut item: Option<Type> = None;
                for (i, element) in list.elements.iter().enumerate() {
                    let mut ty = self.node(element);
                    if list.optional_indices.contains(&i) {
                        ty = self.unwrapped(ty);
                    }
                    item = Some(self.joined(item, ty));
                }
                let item = item.unwrap_or_else(|| self.fresh());
                Type::list(item)
            }
            Expr::Map(map) => {
                let (mut key, mut value): (Option<Type>, Option<Type>) = (None, None);
                for entry in &map.entries {
                    let EntryExpr::MapEntry(entry) = &entry.expr else { continue };
                    let ty = self.node(&entry.key);
                    key = Some(self.joined(key, ty));
                    let mut ty = self.node(&entry.value);
                    if entry.optional {
                        ty = self.unwrapped(ty);
                    }
                    value = Some(self.joined(value, ty));
                }
                let (key, value) = (key.unwrap_or_else(|| self.fresh()), value.unwrap_or_else(|| self.fresh()));
                Type::map(key, value)
            }
            Expr::Struct(message) => {
                self.complain(format!("undeclared reference to '{}' (in container '')", message.type_name))
            }
            Expr::Call(call) => self.call(node.id, call),
            Expr::Comprehension(comprehension) => self.comprehension(comprehension),
        };
        self.checked.types.insert(node.id, ty.clone());
        ty
    }

    fn variable(&mut self, name: &str) -> Type {
        if let Some(at) = self.scope.iter().rposition(|(known, _)| known == name) {
            if at < self.outside && !self.checked.used.iter().any(|used| used == name) {
                self.checked.used.push(name.to_owned());
            }
            return self.scope[at].1.clone();
        }
        match self.functions.types.get(name) {
            Some(ty) => {
                let ty = ty.clone();
                self.instance(&ty, 8).0
            }
            None => self.complain(format!("undeclared reference to '{name}' (in container '')")),
        }
    }

    fn field(&mut self, operand: &IdedExpr, field: &str, is_optional: bool) -> Type {
        let operand = self.node(operand);
        let operand = self.resolved(&operand, false);
        let (target, was_optional) = match &operand {
            Type::Optional(inner) => ((**inner).clone(), true),
            other => (other.clone(), false),
        };
        let found = match &target {
            Type::Map(entry) => entry.1.clone(),
            Type::Object(declared) => match &declared.shape {
                Shape::Object(fields) => match fields.get(field) {
                    Some(field) => field.ty(),
                    None => self.complain(format!("undefined field '{field}'")),
                },
                _ => Type::Error,
            },
            Type::Library(_) => self.complain(format!("undefined field '{field}'")),
            Type::Variable(_) => {
                self.assignable(&Type::Dyn, &target);
                Type::Dyn
            }
            other if other.is_dyn_or_error() => Type::Dyn,
            other => self.complain(format!("type '{other}' does not support field selection")),
        };
        if was_optional || is_optional { Type::optional(found) } else { found }
    }

    fn call(&mut self, id: u64, call: &CallExpr) -> Type {
        if call.func_name == operators::OPT_SELECT {
            let [operand, IdedExpr { expr: Expr::Literal(LiteralValue::String(field)), .. }] = call.args.as_slice()
            else {
                return self.complain("unsupported optional field selection");
            };
            let field = self.field(operand, field.inner(), true);
            self.checked.overloads.insert(id, vec!["select_optional_field"]);
            return self.resolved(&field, false);
        }
        let mut types: Vec<Type> = call.args.iter().map(|argument| self.node(argument)).collect();
        let Some(target) = &call.target else { return self.resolve(id, &call.func_name, false, &types) };
        if let Some(namespace) = library::namespace(target) {
            let name = format!("{namespace}.{}", call.func_name);
            if self.functions.overloads.contains_key(name.as_str()) || self.is_untyped(&name) {
                let ty = self.resolve(id, &name, false, &types);
                self.checked.qualified.insert(id, name);
                return ty;
            }
        }
        types.insert(0, self.node(target));
        self.resolve(id, &call.func_name, true, &types)
    }

    fn resolve(&mut self, id: u64, name: &str, is_method: bool, arguments: &[Type]) -> Type {
        if self.complaint.is_some() {
            return Type::Error;
        }
        let Some(overloads) = self.functions.overloads.get(name) else {
            if self.is_untyped(name) {
                return Type::Dyn;
            }
            return self.complain(format!("undeclared reference to '{name}' (in container '')"));
        };
        if name == operators::LOGICAL_AND || name == operators::LOGICAL_OR {
            for argument in arguments {
                if !self.assignable(argument, &Type::Bool) {
                    let found = self.resolved(argument, true);
                    return self.complain(format!("expected type 'bool' but found '{found}'"));
                }
            }
            self.checked.overloads.insert(id, overloads.iter().map(|overload| overload.id).collect());
            return Type::Bool;
        }
        let mut result: Option<Type> = None;
        let mut matching = Vec::new();
        for overload in overloads.iter().filter(|overload| overload.is_method == is_method) {
            let first = self.fresh;
            self.fresh += overload.variables;
            let wanted = |ty: &Type| shifted(ty, first);
            if overload.arguments.len() != arguments.len() {
                continue;
            }
            let wanted_arguments: Vec<Type> = overload.arguments.iter().map(wanted).collect();
            if self.all_assignable(arguments, &wanted_arguments) {
                matching.push(overload.id);
                let found = self.resolved(&wanted(&overload.result), false);
                result = Some(match result {
                    None => found,
                    Some(earlier) if earlier.is_dyn() || found.is(&earlier) => earlier,
                    Some(_) => Type::Dyn,
                });
            }
        }
        if let Some(result) = result {
            self.checked.overloads.insert(id, matching);
            return result;
        }
        let shown: Vec<String> = arguments.iter().map(|ty| self.resolved(ty, true).to_string()).collect();
        let shown = match shown.split_first() {
            Some((target, rest)) if is_method => format!("{target}.({})", rest.join(", ")),
            _ => format!("({})", shown.join(", ")),
        };
        self.complain(format!("found no matching overload for '{name}' applied to '{shown}'"))
    }

    fn is_untyped(&self, name: &str) -> bool {
        self.dialect == Dialect::Engine && library::has_function(name)
    }

    fn comprehension(&mut self, comprehension: &ComprehensionExpr) -> Type {
        let range = self.node(&comprehension.iter_range);
        let start = self.node(&comprehension.accu_init);
        let range = self.resolved(&range, false);
        let outer = self.scope.len();
        self.scope.push((comprehension.accu_var.clone(), start.clone()));
        let (first, second) = match &range {
            Type::List(item) if comprehension.iter_var2.is_some() => (Type::Int, (**item).clone()),
            Type::List(item) => ((**item).clone(), Type::Error),
            Type::Map(entry) => entry.as_ref().clone(),
            Type::Dyn | Type::Error | Type::Variable(_) => {
                self.assignable(&Type::Dyn, &range);
                (Type::Dyn, Type::Dyn)
            }
            other => {
                let ty = self.complain(format!(
                    "expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"
                ));
                (ty.clone(), ty)
            }
        };
        self.scope.push((comprehension.iter_var.clone(), first));
        if let Some(name) = &comprehension.iter_var2 {
            self.scope.push((name.clone(), second));
        }
        let condition = self.node(&comprehension.loop_cond);
        self.expect(&Type::Bool, &condition);
        let step = self.node(&comprehension.loop_step);
        self.expect(&start, &step);
        self.scope.truncate(outer + 1);
        let result = self.node(&comprehension.result);
        self.scope.truncate(outer);
        self.resolved(&result, false)
    }

    fn expect(&mut self, wanted: &Type, found: &Type) {
        if !self.assignable(wanted, found) {
            let (wanted, found) = (self.resolved(wanted, true), self.resolved(found, true));
            self.complain(format!("expected type '{wanted}' but found '{found}'"));
        }
    }

    fn unwrapped(&mut self, ty: Type) -> Type {
        match ty {
            Type::Optional(inner) => (*inner).clone(),
            Type::Dyn | Type::Error => ty,
            other => self.complain(format!("expected type 'optional_type({other})' but found '{other}'")),
        }
    }

    /// The type of a list's items so far and one more.
    fn joined(&mut self, earlier: Option<Type>, next: Type) -> Type {
        let Some(earlier) = earlier else { return next };
        if self.assignable(&earlier, &next) {
            return if is_general(&earlier, &next) { earlier } else { next };
        }
        if self.dialect == Dialect::Engine {
            return Type::Dyn;
        }
        let (earlier, next) = (self.resolved(&earlier, true), self.resolved(&next, true));
        self.complain(format!("expected type '{earlier}' but found '{next}'"))
    }

    fn fresh(&mut self) -> Type {
        self.fresh += 1;
        Type::Variable(self.fresh - 1)
    }

    /// A declared type with type variables of its own.
    fn instance(&mut self, ty: &Type, variables: u32) -> (Type, u32) {
        let first = self.fresh;
        self.fresh += variables;
        (shifted(ty, first), first)
    }

    fn assignable(&mut self, from: &Type, to: &Type) -> bool {
        self.all_assignable(std::slice::from_ref(from), std::slice::from_ref(to))
    }

    /// Tries all; what was bound is taken back unless all fit.
    fn all_assignable(&mut self, from: &[Type], to: &[Type]) -> bool {
        self.trail.clear();
        let fits = from.len() == to.len() && from.iter().zip(to).all(|(from, to)| self.fits(from, to));
        if !fits {
            while let Some((variable, before)) = self.trail.pop() {
                match before {
                    Some(before) => self.bound.insert(variable, before),
                    None => self.bound.remove(&variable),
                };
            }
        }
        fits
    }

    fn bind(&mut self, variable: u32, ty: Type) {
        let before = self.bound.insert(variable, ty);
        self.trail.push((variable, before));
    }

    fn fits(&mut self, from: &Type, to: &Type) -> bool {
        if let Type::Variable(variable) = to {
            let (is_valid, is_bound) = self.substitutes(from, *variable);
            if is_valid || is_bound {
                return is_valid;
            }
        }
        if let Type::Variable(variable) = from {
            return self.substitutes(to, *variable).0;
        }
        if from.is_dyn_or_error() || to.is_dyn_or_error() {
            return true;
        }
        match (from, to) {
            (Type::Null, other) | (other, Type::Null) => is_nullable(other),
            (Type::Kind(_), Type::Kind(_)) => true,
            (Type::List(a), Type::List(b)) | (Type::Optional(a), Type::Optional(b)) => self.fits(a, b),
            (Type::Map(a), Type::Map(b)) => self.fits(&a.0, &b.0) && self.fits(&a.1, &b.1),
            _ => from.is(to),
        }
    }

    /// Whether the variable may stand for the type, and whether it stood for something before.
    fn substitutes(&mut self, ty: &Type, variable: u32) -> (bool, bool) {
        if matches!(ty, Type::Variable(same) if *same == variable) {
            return (true, true);
        }
        if let Some(known) = self.bound.get(&variable).cloned() {
            if ty.is(&known) {
                return (true, true);
            }
            if self.fits(ty, &known) {
                let general = if is_general(ty, &known) { ty.clone() } else { known };
                if !self.occurs(variable, &general) {
                    self.bind(variable, general);
                }
                return (true, true);
            }
            return (false, true);
        }
        if self.occurs(variable, ty) {
            return (false, false);
        }
        self.bind(variable, ty.clone());
        (true, false)
    }

    fn occurs(&self, variable: u32, within: &Type) -> bool {
        match within {
            Type::Variable(same) if *same == variable => true,
            Type::Variable(other) => self.bound.get(other).is_some_and(|ty| self.occurs(variable, ty)),
            Type::List(inner) | Type::Optional(inner) | Type::Kind(inner) => self.occurs(variable, inner),
            Type::Map(entry) => self.occurs(variable, &entry.0) || self.occurs(variable, &entry.1),
            _ => false,
        }
    }

    /// With type variables replaced by what they stand for; the rest become `dyn` at the end.
    fn resolved(&self, ty: &Type, is_final: bool) -> Type {
        match ty {
            Type::Variable(variable) => match self.bound.get(variable) {
                Some(bound) => self.resolved(bound, is_final),
                None if is_final => Type::Dyn,
                None => ty.clone(),
            },
            Type::List(inner) => Type::list(self.resolved(inner, is_final)),
            Type::Optional(inner) => Type::optional(self.resolved(inner, is_final)),
            Type::Kind(inner) => Type::Kind(self.resolved(inner, is_final).into()),
            Type::Map(entry) => Type::map(self.resolved(&entry.0, is_final), self.resolved(&entry.1, is_final)),
            other => other.clone(),
        }
    }
}

/// The type with its variables numbered from `first`.
fn shifted(ty: &Type, first: u32) -> Type {
    match ty {
        Type::Variable(variable) => Type::Variable(first.saturating_add(*variable)),
        Type::List(inner) => Type::list(shifted(inner, first)),
        Type::Optional(inner) => Type::optional(shifted(inner, first)),
        Type::Kind(inner) => Type::Kind(shifted(inner, first).into()),
        Type::Map(entry) => Type::map(shifted(&entry.0, first), shifted(&entry.1, first)),
        other => other.clone(),
    }
}

fn is_nullable(ty: &Type) -> bool {
    matches!(
        ty,
        Type::Null
            | Type::Optional(_)
            | Type::Opaque(_)
            | Type::Object(_)
            | Type::Library(_)
            | Type::Duration
            | Type::Timestamp
    )
}

/// Whether the first is the second or says less.
fn is_general(first: &Type, second: &Type) -> bool {
    if first.is_dyn() || matches!(first, Type::Variable(_)) {
        return true;
    }
    if second.is_dyn() || matches!(second, Type::Variable(_)) {
        return false;
    }
    match (first, second) {
        (Type::List(a), Type::List(b)) | (Type::Optional(a), Type::Optional(b)) => is_general(a, b),
        (Type::Map(a), Type::Map(b)) => is_general(&a.0, &b.0) && is_general(&a.1, &b.1),
        (Type::Kind(_), Type::Kind(_)) => true,
        _ => first.is(second),
    }
}

/// Lists and maps written out have items of one type, `format`'s arguments excepted; `dyn` is a type of its own here.
fn homogeneous(node: &IdedExpr, checked: &Checked, is_exempt: bool) -> Result<(), String> {
    let mismatch = |wanted: &Type, found: &Type| format!("expected type '{wanted}' but found '{found}'");
    let inner = |ty: &Type| match ty {
        Type::Optional(inner) => (**inner).clone(),
        other => other.clone(),
    };
    match &node.expr {
        Expr::Unspecified | Expr::Literal(_) | Expr::Ident(_) | Expr::Struct(_) => Ok(()),
        Expr::Select(select) => homogeneous(&select.operand, checked, is_exempt),
        Expr::List(list) => {
            let mut first: Option<Type> = None;
            for (i, element) in list.elements.iter().enumerate() {
                homogeneous(element, checked, is_exempt)?;
                let ty = checked.ty(element);
                let ty = if list.optional_indices.contains(&i) { inner(ty) } else { ty.clone() };
                match &first {
                    Some(first) if !is_exempt && !is_equivalent(first, &ty) => return Err(mismatch(first, &ty)),
                    Some(_) => {}
                    None => first = Some(ty),
                }
            }
            Ok(())
        }
        Expr::Map(map) => {
            let mut first: Option<(Type, Type)> = None;
            for entry in &map.entries {
                let EntryExpr::MapEntry(entry) = &entry.expr else { continue };
                homogeneous(&entry.key, checked, is_exempt)?;
                homogeneous(&entry.value, checked, is_exempt)?;
                let (key, value) = (checked.ty(&entry.key).clone(), checked.ty(&entry.value));
                let value = if entry.optional { inner(value) } else { value.clone() };
                match &first {
                    Some((wanted, _)) if !is_exempt && !is_equivalent(wanted, &key) => {
                        return Err(mismatch(wanted, &key));
                    }
                    Some((_, wanted)) if !is_exempt && !is_equivalent(wanted, &value) => {
                        return Err(mismatch(wanted, &value));
                    }
                    Some(_) => {}
                    None => first = Some((key, value)),
                }
            }
            Ok(())
        }
        Expr::Call(call) => {
            let is_exempt = is_exempt || call.func_name == "format";
            call.target.iter().try_for_each(|target| homogeneous(target, checked, is_exempt))?;
            call.args.iter().try_for_each(|argument| homogeneous(argument, checked, is_exempt))
        }
        Expr::Comprehension(comprehension) => [
            &comprehension.iter_range,
            &comprehension.accu_init,
            &comprehension.loop_cond,
            &comprehension.loop_step,
            &comprehension.result,
        ]
        .into_iter()
        .try_for_each(|part| homogeneous(part, checked, is_exempt)),
    }
}

fn is_equivalent(first: &Type, second: &Type) -> bool {
    match (first, second) {
        (Type::Kind(_), Type::Kind(_)) => true,
        (Type::List(a), Type::List(b)) | (Type::Optional(a), Type::Optional(b)) => is_equivalent(a, b),
        (Type::Map(a), Type::Map(b)) => is_equivalent(&a.0, &b.0) && is_equivalent(&a.1, &b.1),
        (Type::Object(a), Type::Object(b)) => Arc::ptr_eq(a, b),
        _ => first.is(second),
    }
}
