//! The worst an expression can cost, as Kubernetes estimates it when a CRD is written.
//!
//! The rules and numbers are those of cel-go's cost estimate and of Kubernetes' estimates for its libraries; they are
//! part of the API there, since they decide which CRDs are accepted. So this follows them to the unit, odd places
//! included: the size of an item of a list that is written out is looked up as if it were the root of the schema.

use std::collections::HashMap;
use std::rc::Rc;

use kube_cel::cel::IdedExpr;
use kube_cel::cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, LiteralValue, operators};

use super::check::Checked;
use super::path::Path;
use super::size::{Entry, PATTERN_FACTOR, Range, TEXT_FACTOR};
use super::{Declared, QUANTITY, Shape, Type};

const LIST_COST: u64 = 10;
const MAP_COST: u64 = 30;

/// The size of the pattern a named format is taken to be.
const FORMAT_PATTERN_BYTES: f64 = 128.0;

/// The longest named format.
const FORMAT_BYTES_MAX: u64 = 64;

/// The most one evaluation can cost, where `root` is what `self` is declared to be.
pub(in crate::cel) fn cost(expression: &IdedExpr, checked: &Checked, root: &Declared) -> u64 {
    let mut coster = Coster {
        checked,
        root,
        paths: HashMap::new(),
        sizes: HashMap::new(),
        entries: HashMap::new(),
        scope: Vec::new(),
    };
    coster.node(expression).max
}

struct Local {
    name: String,
    path: Path,
    size: Option<Range>,
    entry: Option<Entry>,
}

struct Coster<'c> {
    checked: &'c Checked,
    root: &'c Declared,
    paths: HashMap<u64, Path>,
    sizes: HashMap<u64, Range>,
    entries: HashMap<u64, Entry>,
    scope: Vec<Local>,
}

/// An argument of a call.
struct Argument<'c> {
    node: &'c IdedExpr,
    path: Path,
    ty: &'c Type,
    size: Option<Range>,
    cost: Range,
}

/// What a call costs, and how large its result is where that is known.
struct Call {
    cost: Range,
    size: Option<Range>,
}

impl<'c> Coster<'c> {
    fn node(&mut self, node: &'c IdedExpr) -> Range {
        match &node.expr {
            Expr::Unspecified | Expr::Literal(_) | Expr::Struct(_) => Range::ZERO,
            Expr::Ident(name) => {
                let path = self.local(name).map_or_else(|| Path::of(name), |local| local.path.clone());
                self.paths.insert(node.id, path);
                Range::ONE
            }
            Expr::Select(select) => {
                let operand = self.node(&select.operand);
                if select.test {
                    return operand;
                }
                let path = self.path(&select.operand).with(&select.field);
                self.paths.insert(node.id, path);
                match self.checked.ty(&select.operand) {
                    Type::Map(_) | Type::Object(_) | Type::Library(_) => operand.plus(Range::ONE),
                    _ => operand,
                }
            }
            Expr::List(list) => {
                let mut sum = Range::ZERO;
                let mut item = none_so_far(list.elements.is_empty());
                for element in &list.elements {
                    sum = sum.plus(self.node(element));
                    item = item.or(self.size_or_unknown(element));
                }
                self.entries.insert(node.id, Entry { is_list: true, key: Range::ONE, value: item });
                sum.plus(Range::exactly(LIST_COST))
            }
            Expr::Map(map) => {
                let mut sum = Range::ZERO;
                let mut entry = Entry {
                    is_list: false,
                    key: none_so_far(map.entries.is_empty()),
                    value: none_so_far(map.entries.is_empty()),
                };
                for one in &map.entries {
                    let EntryExpr::MapEntry(one) = &one.expr else { continue };
                    sum = sum.plus(self.node(&one.key)).plus(self.node(&one.value));
                    entry.key = entry.key.or(self.size_or_unknown(&one.key));
                    entry.value = entry.value.or(self.size_or_unknown(&one.value));
                }
                self.entries.insert(node.id, entry);
                sum.plus(Range::exactly(MAP_COST))
            }
            Expr::Call(call) => self.call(node, call),
            Expr::Comprehension(comprehension) if is_bind(comprehension) => self.bind(node, comprehension),
            Expr::Comprehension(comprehension) => self.comprehension(node, comprehension),
        }
    }

    fn bind(&mut self, node: &'c IdedExpr, bind: &'c ComprehensionExpr) -> Range {
        let mut sum = self.node(&bind.iter_range).plus(self.node(&bind.accu_init));
        self.push_value(&bind.accu_var, &bind.accu_init);
        sum = sum.plus(self.node(&bind.result));
        let (size, entry) = (self.size(&bind.result), self.entry(&bind.result));
        self.scope.pop();
        self.set(node, size, entry);
        sum
    }

    fn comprehension(&mut self, node: &'c IdedExpr, comprehension: &'c ComprehensionExpr) -> Range {
        let range = &comprehension.iter_range;
        let mut sum = self.node(range).plus(self.node(&comprehension.accu_init));
        self.push_value(&comprehension.accu_var, &comprehension.accu_init);
        let entry = self.entry(range);
        let is_list = entry.map_or(matches!(self.checked.ty(range), Type::List(_)), |entry| entry.is_list);
        let at = self.path(range);
        let mut push = |name: &str, below: &str, size: Option<Range>| {
            self.scope.push(Local { name: name.to_owned(), path: at.with(below), size, entry: None });
        };
        let (key, value) = (entry.map(|entry| entry.key), entry.map(|entry| entry.value));
        match &comprehension.iter_var2 {
            Some(second) => {
                push(&comprehension.iter_var, if is_list { "@indices" } else { "@keys" }, key);
                push(second, if is_list { "@items" } else { "@values" }, value);
            }
            None if is_list => push(&comprehension.iter_var, "@items", value),
            None => push(&comprehension.iter_var, "@keys", key),
        }
        let condition = self.node(&comprehension.loop_cond);
        let step = self.node(&comprehension.loop_step);
        let step_entry = self.entry(&comprehension.loop_step);
        self.scope.truncate(self.scope.len() - 1 - usize::from(comprehension.iter_var2.is_some()));
        sum = sum.plus(self.node(&comprehension.result));
        self.scope.pop();

        let count = self.size_or_unknown(range);
        sum = sum.plus(count.times(step.plus(condition)));
        match &comprehension.accu_init.expr {
            Expr::Literal(_) => {
                let size = self.size(&comprehension.accu_init);
                self.set(node, size, None);
            }
            Expr::List(_) | Expr::Map(_) => self.set(node, Some(count), step_entry),
            _ => {}
        }
        sum
    }

    fn call(&mut self, node: &'c IdedExpr, call: &'c CallExpr) -> Range {
        let name = self.checked.qualified.get(&node.id).map_or(call.func_name.as_str(), String::as_str);
        if name == "dyn"
            && let [argument] = call.args.as_slice()
        {
            let cost = self.node(argument);
            let (size, entry) = (self.size(argument), self.entry(argument));
            self.set(node, size, entry);
            return cost.plus(Range::ONE);
        }
        let mut arguments = Vec::with_capacity(call.args.len());
        for argument in &call.args {
            let cost = self.node(argument);
            arguments.push(self.argument(argument, cost));
        }
        let Some(overloads) = self.checked.overloads.get(&node.id) else { return Range::ZERO };
        let is_method = !self.checked.qualified.contains_key(&node.id);
        let target = call.target.as_deref().filter(|_| is_method).map(|target| {
            let cost = self.node(target);
            self.argument(target, cost)
        });
        let mut total = Range { min: u64::MAX, max: 0 };
        let mut size: Option<Range> = None;
        for overload in overloads {
            let made = self.overload(node, name, overload, target.as_ref(), &arguments);
            total = total.or(made.cost);
            if let Some(made) = made.size {
                size = Some(size.map_or(made, |size| size.or(made)));
            }
            let below = match *overload {
                "index_list" => Some("@items"),
                "index_map" => Some("@values"),
                _ => None,
            };
            if let (Some(below), Some(first)) = (below, call.args.first()) {
                size = self.entry(first).map(|entry| entry.value);
                let path = self.path(first).with(below);
                self.paths.insert(node.id, path);
            }
            if size.is_none() {
                size = self.size(node);
            }
        }
        self.set(node, size, None);
        target.map_or(Range::ZERO, |target| target.cost).plus(total)
    }

    fn argument(&mut self, node: &'c IdedExpr, cost: Range) -> Argument<'c> {
        let mut path = self.path(node);
        if path.first_is("@result") {
            path = Path::default();
        }
        Argument { node, path, ty: self.checked.ty(node), size: self.size(node), cost }
    }

    fn overload(
        &mut self,
        node: &IdedExpr,
        name: &str,
        overload: &str,
        target: Option<&Argument<'c>>,
        arguments: &[Argument<'c>],
    ) -> Call {
        let paid = arguments.iter().fold(Range::ZERO, |sum, argument| sum.plus(argument.cost));
        if let Some(made) =
            self.list_call(overload, target, arguments).or_else(|| self.library(name, overload, target, arguments))
        {
            return Call { cost: made.cost.plus(paid), ..made };
        }
        let size = |argument: &Argument<'_>| argument.size.unwrap_or(Range::UNKNOWN);
        let text = |argument: &Argument<'_>| size(argument).scaled(TEXT_FACTOR);
        let costs = |cost: Range| Call { cost: cost.plus(paid), size: None };
        match (overload, target, arguments) {
            ("string_format", Some(target), _) => costs(text(target)),
            ("string_to_bytes", _, [one]) => {
                let of = size(one);
                let size = Some(Range { min: of.min, max: of.max.wrapping_mul(4) });
                Call { size, ..costs(text(one)) }
            }
            ("bytes_to_string", _, [one]) => {
                let of = size(one);
                Call { size: Some(Range { min: of.min / 4, max: of.max }), ..costs(text(one)) }
            }
            ("strings_quote", _, [one]) => {
                let of = size(one);
                let size = Range { min: of.min.wrapping_add(2), max: of.max.wrapping_mul(2).wrapping_add(2) };
                Call { size: Some(size), ..costs(text(one)) }
            }
            ("starts_with_string" | "ends_with_string", _, [one]) => costs(text(one)),
            ("in_list", _, [_, list]) => costs(size(list).scaled(1.0)),
            ("matches_string", Some(target), [pattern]) => {
                let text = size(target).plus(Range::ONE).scaled(TEXT_FACTOR);
                costs(text.times(size(pattern).scaled(PATTERN_FACTOR)))
            }
            ("contains_string", Some(target), [part]) => costs(text(target).times(text(part))),
            ("logical_or" | "logical_and", _, [left, right]) => {
                let max = left.cost.plus(right.cost).max;
                Call { cost: Range { min: left.cost.min, max }, size: None }
            }
            ("conditional", _, [condition, yes, no]) => {
                if let (Some(yes), Some(no)) = (self.entry(yes.node), self.entry(no.node)) {
                    self.entries.insert(node.id, yes.or(no));
                }
                let cost = condition.cost.plus(yes.cost.or(no.cost));
                Call { cost, size: Some(size(yes).or(size(no))) }
            }
            ("add_string" | "add_bytes" | "add_list", _, [left, right]) => {
                let sum = size(left).plus(size(right));
                if let (Some(left), Some(right)) = (self.entry(left.node), self.entry(right.node)) {
                    self.entries.insert(node.id, left.or(right));
                }
                let cost = if overload == "add_list" { Range::ONE } else { sum.scaled(TEXT_FACTOR) };
                Call { size: Some(sum), ..costs(cost) }
            }
            (
                "less_string"
                | "greater_string"
                | "less_equals_string"
                | "greater_equals_string"
                | "less_bytes"
                | "greater_bytes"
                | "less_equals_bytes"
                | "greater_equals_bytes"
                | "equals"
                | "not_equals",
                _,
                [left, right],
            ) => {
                let max = size(left).max.min(size(right).max);
                costs(Range { min: u64::from(max > 0), max }.scaled(TEXT_FACTOR))
            }
            _ => costs(Range::ONE),
        }
    }

    /// The functions that make lists of lists, and those of sets.
    fn list_call(&self, overload: &str, target: Option<&Argument<'_>>, arguments: &[Argument<'_>]) -> Option<Call> {
        let made = |factor: f64, size: Range| {
            Some(Call { cost: size.scaled(factor).plus(Range::exactly(1 + LIST_COST)), size: Some(size) })
        };
        let squared = |of: &Argument<'_>| self.size_of(of).times(self.size_of(of));
        match (overload, target, arguments) {
            ("list_slice", Some(target), [start, end]) => {
                let (start, end) = (whole(start, 0), whole(end, self.size_of(target).max));
                made(1.0, Range::exactly(end.wrapping_sub(start)))
            }
            ("list_flatten", Some(target), []) => made(1.0, self.size_of(target)),
            ("list_flatten_int", Some(target), [depth]) => made(whole(depth, u64::MAX) as f64, self.size_of(target)),
            ("lists_range", None, [end]) => made(1.0, Range::exactly(whole(end, u64::MAX))),
            ("list_reverse", Some(target), []) => made(1.0, self.size_of(target)),
            ("list_distinct", Some(target), []) => made(2.0, squared(target)),
            (sort, Some(target), []) if sort.starts_with("list_") && sort.ends_with("_sort") => {
                let is_text = sort == "list_string_sort" || sort == "list_bytes_sort";
                made(if is_text { 2.0 + TEXT_FACTOR } else { 2.0 }, squared(target))
            }
            (sort, Some(_), [keys]) if sort.ends_with("_sortByAssociatedKeys") => {
                let is_text = sort.starts_with("list_string") || sort.starts_with("list_bytes");
                made(if is_text { 2.0 + TEXT_FACTOR } else { 2.0 }, squared(keys))
            }
            (
                "list_sets_contains_list" | "list_sets_intersects_list" | "list_sets_equivalent_list",
                _,
                [left, right],
            ) => {
                let factor = if overload == "list_sets_equivalent_list" { 2.0 } else { 1.0 };
                let product = self.size_of(left).times(self.size_of(right));
                Some(Call { cost: product.scaled(factor).plus(Range::ONE), size: None })
            }
            _ => None,
        }
    }

    /// The functions of Kubernetes' libraries; the same name means the same cost, whatever it is called on.
    fn library(
        &self,
        name: &str,
        overload: &str,
        target: Option<&Argument<'_>>,
        arguments: &[Argument<'_>],
    ) -> Option<Call> {
        let costs = |cost: Range| Some(Call { cost, size: None });
        let sized = |cost: Range, size: Range| Some(Call { cost, size: Some(size) });
        match (name, target, arguments) {
            ("check", ..) => costs(Range::exactly(350_000)),
            (
                "serviceAccount"
                | "path"
                | "group"
                | "resource"
                | "subresource"
                | "namespace"
                | "name"
                | "allowed"
                | "reason"
                | "error"
                | "errored"
                | "masked"
                | "prefixLength"
                | "family"
                | "isUnspecified"
                | "isLoopback"
                | "isLinkLocalMulticast"
                | "isLinkLocalUnicast"
                | "isGlobalUnicast"
                | "format.named"
                | "sign"
                | "asInteger"
                | "isInteger"
                | "asApproximateFloat"
                | "isGreaterThan"
                | "isLessThan"
                | "compareTo"
                | "add"
                | "sub"
                | "major"
                | "minor"
                | "patch"
                | "getScheme"
                | "getHostname"
                | "getHost"
                | "getPort"
                | "getEscapedPath"
                | "getQuery",
                ..,
            ) => costs(Range::ONE),
            ("isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf", Some(target), _) => {
                let Some(item) = item_type(target.ty) else {
                    return costs(self.size_of(target).scaled(TEXT_FACTOR));
                };
                let mut each = Range::ONE;
                if matches!(item, Type::Text | Type::Bytes) {
                    each = each.plus(self.item_size(target).scaled(TEXT_FACTOR));
                }
                costs(self.size_of(target).times(each))
            }
            ("url" | "jsonpatch.escapeKey", _, [one]) => {
                let size = self.size_of(one);
                sized(size.scaled(TEXT_FACTOR), size)
            }
            ("lowerAscii" | "upperAscii" | "substring" | "trim", Some(target), _) => {
                let size = self.size_of(target);
                sized(size.scaled(TEXT_FACTOR), size)
            }
            ("replace", Some(target), [from, to, ..]) => {
                let size = self.size_of(target);
                sized(size.scaled(2.0 * TEXT_FACTOR), replaced(size, self.size_of(from), self.size_of(to)))
            }
            ("split", Some(target), _) => {
                let size = self.size_of(target);
                let max = match arguments.get(1).map(|limit| &limit.node.expr) {
                    Some(Expr::Literal(LiteralValue::Int(limit))) => i64::cast_unsigned(*limit.inner()),
                    _ => size.max,
                };
                sized(size.scaled(2.0 * TEXT_FACTOR), Range { min: 0, max })
            }
            ("join", Some(target), _) => {
                let count = self.size_of(target);
                let mut size = Range::ZERO;
                if item_type(target.ty).is_some() {
                    size = count.times(self.item_size(target));
                }
                if let Some(separator) = arguments.first() {
                    let between = Range { min: count.min.saturating_sub(1), max: count.max.saturating_sub(1) };
                    size = size.plus(self.size_of(separator).times(between));
                }
                sized(size.scaled(TEXT_FACTOR), size)
            }
            ("find" | "findAll", Some(target), [pattern, ..]) => {
                let size = self.size_of(target);
                let text = size.plus(Range::ONE).scaled(TEXT_FACTOR);
                let cost = text.times(self.size_of(pattern).scaled(PATTERN_FACTOR));
                sized(cost, Range { min: 0, max: size.max })
            }
            ("ip", ..) if overload == "cidr_ip" => costs(Range::ONE),
            ("cidr" | "isIP" | "isCIDR" | "ip" | "quantity" | "isQuantity" | "semver" | "isSemver", _, [one, ..]) => {
                costs(self.size_of(one).scaled(TEXT_FACTOR))
            }
            ("ip.isCanonical", _, [one, ..]) => costs(self.size_of(one).scaled(2.0 * TEXT_FACTOR)),
            ("containsIP" | "containsCIDR", _, [other, ..]) => {
                // Addresses are compared byte by byte, 4 or 16 of them; a text is parsed first.
                let address = Range { min: 4, max: 16 };
                let mut cost = address.plus(address).scaled(TEXT_FACTOR);
                if name == "containsCIDR" {
                    cost = cost.plus(address.scaled(TEXT_FACTOR)).plus(Range::ONE);
                }
                if overload.ends_with("_string") {
                    cost = cost.plus(self.size_of(other).scaled(TEXT_FACTOR));
                }
                costs(cost)
            }
            ("validate", _, [one, ..]) => {
                costs(self.size_of(one).scaled(TEXT_FACTOR).scaled(FORMAT_PATTERN_BYTES * PATTERN_FACTOR))
            }
            (operators::EQUALS, _, [left, right]) if left.ty.is(right.ty) => match left.ty {
                Type::Opaque(_) => costs(Range::ONE),
                Type::Library("kubernetes.NamedFormat") => {
                    costs(Range { min: 1, max: FORMAT_BYTES_MAX }.scaled(TEXT_FACTOR))
                }
                Type::Library("kubernetes.URL") => {
                    let max = right.size.map_or(1, |size| size.max);
                    costs(Range { min: 1, max }.scaled(TEXT_FACTOR))
                }
                Type::Library(name)
                    if *name == QUANTITY || *name == "kubernetes.Semver" || name.contains("authorization") =>
                {
                    costs(Range::ONE)
                }
                _ => None,
            },
            _ => None,
        }
    }

    fn local(&self, name: &str) -> Option<&Local> {
        self.scope.iter().rfind(|local| local.name == name)
    }

    fn push_value(&mut self, name: &str, value: &'c IdedExpr) {
        let local =
            Local { name: name.to_owned(), path: self.path(value), size: self.size(value), entry: self.entry(value) };
        self.scope.push(local);
    }

    fn set(&mut self, node: &IdedExpr, size: Option<Range>, entry: Option<Entry>) {
        if let Some(size) = size {
            self.sizes.insert(node.id, size);
        }
        if let Some(entry) = entry {
            self.entries.insert(node.id, entry);
        }
    }

    fn path(&self, node: &IdedExpr) -> Path {
        if let Expr::Ident(name) = &node.expr
            && let Some(local) = self.local(name)
        {
            return local.path.clone();
        }
        self.paths.get(&node.id).cloned().unwrap_or_default()
    }

    fn entry(&self, node: &IdedExpr) -> Option<Entry> {
        if let Some(entry) = self.entries.get(&node.id) {
            return Some(*entry);
        }
        match &node.expr {
            Expr::Ident(name) => self.local(name).and_then(|local| local.entry),
            _ => None,
        }
    }

    fn size_or_unknown(&mut self, node: &IdedExpr) -> Range {
        self.size(node).unwrap_or(Range::UNKNOWN)
    }

    fn size(&mut self, node: &IdedExpr) -> Option<Range> {
        if let Some(size) = self.sizes.get(&node.id) {
            return Some(*size);
        }
        if let Some(size) = written_size(&node.expr) {
            return Some(Range::exactly(size));
        }
        if let Some(size) = self.declared_size(&self.path(node)) {
            self.sizes.insert(node.id, size);
            return Some(size);
        }
        if is_scalar(self.checked.ty(node)) {
            return Some(Range::ONE);
        }
        match &node.expr {
            Expr::Ident(name) => self.local(name).and_then(|local| local.size),
            _ => None,
        }
    }

    fn size_of(&self, argument: &Argument<'_>) -> Range {
        argument.size.or_else(|| self.declared_size(&argument.path)).unwrap_or(Range::UNKNOWN)
    }

    /// The size of the items of a list.
    fn item_size(&self, list: &Argument<'_>) -> Range {
        if list.path.is_empty() {
            return Range::UNKNOWN;
        }
        let mut steps = list.path.steps();
        steps.push("@items".into());
        self.declared(&steps).unwrap_or(Range::UNKNOWN)
    }

    /// What the schema says of a place. The first step is the variable, whichever it is.
    fn declared_size(&self, path: &Path) -> Option<Range> {
        self.declared(&path.steps())
    }

    fn declared(&self, path: &[Rc<str>]) -> Option<Range> {
        let (_, mut steps) = path.split_first()?;
        let mut at = self.root;
        while let [step, rest @ ..] = steps {
            at = match (&at.shape, &**step) {
                (Shape::List(below) | Shape::Map(below), "@items" | "@values") => below,
                // Keys are texts of which no length is known, and that counts as none.
                (Shape::Map(_), "@keys") => return rest.is_empty().then_some(Range::ZERO),
                (Shape::Object(fields), name) => fields.get(name)?,
                _ => return None,
            };
            steps = rest;
        }
        Some(Range { min: 0, max: at.size_max })
    }
}

fn none_so_far(is_empty: bool) -> Range {
    Range { min: if is_empty { 0 } else { u64::MAX }, max: 0 }
}

/// `optMap` and `sortBy` bind a variable by a comprehension that never runs.
fn is_bind(comprehension: &ComprehensionExpr) -> bool {
    let is_empty = matches!(&comprehension.iter_range.expr, Expr::List(list) if list.elements.is_empty());
    let is_never = matches!(&comprehension.loop_cond.expr, Expr::Literal(LiteralValue::Boolean(flag)) if !flag.inner());
    is_empty && is_never
}

fn written_size(expression: &Expr) -> Option<u64> {
    match expression {
        Expr::Literal(LiteralValue::String(text)) => Some(text.inner().chars().count() as u64),
        Expr::Literal(LiteralValue::Bytes(bytes)) => Some(bytes.inner().len() as u64),
        Expr::Literal(_) => Some(1),
        Expr::List(list) => Some(list.elements.len() as u64),
        Expr::Map(map) => Some(map.entries.len() as u64),
        _ => None,
    }
}

fn is_scalar(ty: &Type) -> bool {
    match ty {
        Type::Bool | Type::Double | Type::Duration | Type::Int | Type::Timestamp | Type::Uint => true,
        Type::Optional(inner) => is_scalar(inner),
        _ => false,
    }
}

/// The first parameter of a type that has some.
fn item_type(ty: &Type) -> Option<&Type> {
    match ty {
        Type::List(item) | Type::Optional(item) | Type::Kind(item) => Some(item),
        Type::Map(entry) => Some(&entry.0),
        _ => None,
    }
}

/// A whole number that is written out; a negative one counts as none.
fn whole(argument: &Argument<'_>, otherwise: u64) -> u64 {
    match &argument.node.expr {
        Expr::Literal(LiteralValue::Int(int)) => u64::try_from(*int.inner()).unwrap_or(0),
        _ => otherwise,
    }
}

/// How long a text can be after replacing: the shortest parts by the longest replacement, and the other way round.
fn replaced(size: Range, from: Range, to: Range) -> Range {
    let parts = |size: u64, part: u64| (size as f64 / part as f64).ceil() as u64;
    let (count_max, kept_max) = match from.min {
        0 => (size.max.saturating_add(1), size.max),
        part if to.max <= part => (0, size.max),
        part => (parts(size.max, part), 0),
    };
    let (count_min, kept_min) = match from.max {
        0 => (size.min.saturating_add(1), size.min),
        part if part <= to.min => (0, size.min),
        part => (parts(size.min, part), 0),
    };
    let count = Range { min: count_min, max: count_max };
    count.times(to).plus(Range { min: kept_min, max: kept_max })
}
