//! The functions an expression may call: Kubernetes' libraries, with quantities, regular expressions and ranges replaced
//! by exact and bounded ones.

use std::cell::RefCell;
use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use kube_cel::KubeCelExt;
use kube_cel::cel::common::ast::{Expr, operators};
use kube_cel::cel::extractors::{Arguments, This};
use kube_cel::cel::objects::Opaque;
use kube_cel::cel::parser::Parser;
use kube_cel::cel::{Context, ExecutionError, IdedExpr, ResolveResult, Value};
use quantity::{Amount, Quantity};
use regex::{Regex, RegexBuilder};

/// The longest list `lists.range` makes.
pub(super) const RANGE_MAX: i64 = 10_000;

/// The memory a compiled pattern may take; a pattern that needs more is a bomb.
const PATTERN_BYTES_MAX: usize = 256 * 1024;

/// How many compiled patterns a thread keeps. Patterns nearly always come from the expression and not from the object.
const PATTERNS_KEPT_MAX: usize = 64;

thread_local! {
    static BASE: Context<'static> = base();
    static PATTERNS: RefCell<HashMap<String, Regex>> = RefCell::new(HashMap::new());
}

/// The context with all functions and no variables. Filling one takes longer than most evaluations, so a thread keeps it.
pub(super) fn with_base<R>(call: impl FnOnce(&Context<'static>) -> R) -> R {
    BASE.with(call)
}

fn base() -> Context<'static> {
    let mut context = Context::default().with_all();
    context.add_function("dyn", |value: Value| -> ResolveResult { Ok(value) });
    context.add_function("type", |value: Value| -> ResolveResult { Ok(type_value(type_of(&value))) });
    for name in TYPES {
        context.add_variable_from_value(*name, type_value(name));
    }
    context.add_function("lists.range", range);
    context.add_function("matches", matches);
    context.add_function("find", find);
    context.add_function("findAll", find_all);
    context.add_function("quantity", |text: Arc<String>| -> ResolveResult {
        Quantity::parse(&text).map(exact).map_err(|error| ExecutionError::function_error("quantity", error))
    });
    context.add_function("isQuantity", |text: Arc<String>| Quantity::parse(&text).is_ok());
    context.add_function("isInteger", |This(this): This<Value>| -> ResolveResult {
        Ok(Value::Bool(quantity_of("isInteger", &this)?.amount().to_units().is_some()))
    });
    context.add_function("asInteger", |This(this): This<Value>| -> ResolveResult {
        let units = quantity_of("asInteger", &this)?.amount().to_units();
        let units =
            units.ok_or_else(|| ExecutionError::function_error("asInteger", "cannot convert value to integer"))?;
        Ok(Value::Int(units))
    });
    context.add_function("asApproximateFloat", |This(this): This<Value>| -> ResolveResult {
        // Approximate by name, and refused as an amount wherever it comes out.
        Ok(Value::Float(quantity_of("asApproximateFloat", &this)?.amount().nanos() as f64 / 1e9))
    });
    context.add_function("sign", |This(this): This<Value>| -> ResolveResult {
        let sign = quantity_of("sign", &this)?.amount().cmp(&Amount::ZERO);
        Ok(Value::Int(i64::from(sign as i8)))
    });
    context.add_function("add", |This(this): This<Value>, Arguments(args): Arguments| -> ResolveResult {
        let sum = quantity_of("add", &this)?.checked_add(&operand("add", &args)?);
        sum.map(exact).ok_or_else(|| ExecutionError::function_error("add", "quantity overflow"))
    });
    context.add_function("sub", |This(this): This<Value>, Arguments(args): Arguments| -> ResolveResult {
        let difference = quantity_of("sub", &this)?.checked_sub(&operand("sub", &args)?);
        difference.map(exact).ok_or_else(|| ExecutionError::function_error("sub", "quantity overflow"))
    });
    compare_function(&mut context, "isGreaterThan", |order| Value::Bool(order == Ordering::Greater));
    compare_function(&mut context, "isLessThan", |order| Value::Bool(order == Ordering::Less));
    compare_function(&mut context, "compareTo", |order| Value::Int(i64::from(order as i8)));
    context
}

/// The names of types, which expressions compare with what `type` gives.
const TYPES: &[&str] = &["bool", "bytes", "double", "int", "list", "map", "null_type", "string", "type", "uint"];

pub(super) fn is_type(name: &str) -> bool {
    TYPES.contains(&name)
}

fn type_of(value: &Value) -> &str {
    match value {
        Value::Null => "null_type",
        Value::Bool(_) => "bool",
        Value::Bytes(_) => "bytes",
        Value::Float(_) => "double",
        Value::Int(_) => "int",
        Value::List(_) => "list",
        Value::Map(_) => "map",
        Value::String(_) => "string",
        Value::UInt(_) => "uint",
        Value::Duration(_) => "google.protobuf.Duration",
        Value::Timestamp(_) => "google.protobuf.Timestamp",
        Value::Opaque(opaque) => opaque.runtime_type_name(),
        Value::Function(..) => "type",
    }
}

/// A type inside the engine.
#[derive(Debug, Clone, PartialEq, Eq)]
struct TypeName(String);

impl Opaque for TypeName {
    fn runtime_type_name(&self) -> &str {
        "type"
    }
}

fn type_value(name: &str) -> Value {
    Value::Opaque(Arc::new(TypeName(name.to_owned())))
}

/// A quantity inside the engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ExactQuantity(pub Quantity);

impl Opaque for ExactQuantity {
    fn runtime_type_name(&self) -> &str {
        "kubernetes.Quantity"
    }
}

fn exact(quantity: Quantity) -> Value {
    Value::Opaque(Arc::new(ExactQuantity(quantity)))
}

fn as_quantity(value: &Value) -> Option<&Quantity> {
    match value {
        Value::Opaque(opaque) => opaque.downcast_ref::<ExactQuantity>().map(|exact| &exact.0),
        _ => None,
    }
}

fn quantity_of<'a>(function: &str, value: &'a Value) -> Result<&'a Quantity, ExecutionError> {
    as_quantity(value).ok_or_else(|| ExecutionError::function_error(function, "no such overload"))
}

/// The argument of `add` and `sub`: a quantity or a whole number.
fn operand(function: &str, args: &[Value]) -> Result<Quantity, ExecutionError> {
    match args {
        [Value::Int(int)] => Ok(Amount::from_units(*int).into()),
        [one] => quantity_of(function, one).cloned(),
        _ => Err(ExecutionError::invalid_argument_count(1, args.len())),
    }
}

/// Comparisons of quantities are ours; those of versions stay the library's, which is reached by evaluating a call.
fn compare_function(context: &mut Context<'_>, name: &'static str, answer: fn(Ordering) -> Value) {
    let call = Parser::new().parse(&format!("left.{name}(right)"));
    context.add_function(name, move |This(this): This<Value>, Arguments(args): Arguments| -> ResolveResult {
        let [other] = args.as_slice() else {
            return Err(ExecutionError::invalid_argument_count(1, args.len()));
        };
        if let (Some(left), Some(right)) = (as_quantity(&this), as_quantity(other)) {
            return Ok(answer(left.cmp(right)));
        }
        let Ok(call) = &call else { return Err(ExecutionError::NoSuchOverload) };
        thread_local! {
            static UPSTREAM: Context<'static> = Context::default().with_all();
        }
        UPSTREAM.with(|upstream| {
            let mut scope = upstream.new_inner_scope();
            scope.add_variable_from_value("left", this);
            scope.add_variable_from_value("right", other.clone());
            scope.resolve(call)
        })
    });
}

fn range(end: i64) -> ResolveResult {
    if !(0..=RANGE_MAX).contains(&end) {
        return Err(ExecutionError::function_error("lists.range", format!("must be between 0 and {RANGE_MAX}")));
    }
    Ok(Value::List(Arc::new((0..end).map(Value::Int).collect())))
}

fn matches(This(text): This<Arc<String>>, pattern: Arc<String>) -> ResolveResult {
    with_pattern("matches", &pattern, |regex| Value::Bool(regex.is_match(&text)))
}

fn find(This(text): This<Arc<String>>, pattern: Arc<String>) -> ResolveResult {
    with_pattern("find", &pattern, |regex| {
        Value::String(Arc::new(regex.find(&text).map_or_else(String::new, |found| found.as_str().to_string())))
    })
}

fn find_all(This(text): This<Arc<String>>, Arguments(args): Arguments) -> ResolveResult {
    let (pattern, limit) = match args.as_slice() {
        [Value::String(pattern)] => (pattern, None),
        [Value::String(pattern), Value::Int(limit)] => (pattern, usize::try_from(*limit).ok()),
        _ => return Err(ExecutionError::NoSuchOverload),
    };
    with_pattern("findAll", pattern, |regex| {
        let found = regex.find_iter(&text).take(limit.unwrap_or(usize::MAX));
        Value::List(Arc::new(found.map(|found| Value::String(Arc::new(found.as_str().to_string()))).collect()))
    })
}

pub(super) fn is_pattern(pattern: &str) -> bool {
    with_pattern("matches", pattern, |_| Value::Null).is_ok()
}

fn with_pattern(function: &str, pattern: &str, call: impl FnOnce(&Regex) -> Value) -> ResolveResult {
    PATTERNS.with_borrow_mut(|kept| {
        if let Some(regex) = kept.get(pattern) {
            return Ok(call(regex));
        }
        let regex = RegexBuilder::new(pattern)
            .size_limit(PATTERN_BYTES_MAX)
            .dfa_size_limit(PATTERN_BYTES_MAX)
            .build()
            .map_err(|error| ExecutionError::function_error(function, error))?;
        let value = call(&regex);
        if kept.len() >= PATTERNS_KEPT_MAX {
            kept.clear();
        }
        kept.insert(pattern.to_string(), regex);
        Ok(value)
    })
}

/// Every function name known to the engine, to Kubernetes' libraries or to us. The engine has no way to ask; a test
/// calls each.
pub const FUNCTIONS: &[&str] = &[
    "add",
    "asApproximateFloat",
    "asInteger",
    "base64.decode",
    "base64.encode",
    "bytes",
    "charAt",
    "cidr",
    "compareTo",
    "contains",
    "containsCIDR",
    "containsIP",
    "distinct",
    "double",
    "duration",
    "dyn",
    "endsWith",
    "family",
    "find",
    "findAll",
    "first",
    "flatten",
    "format",
    "format.byte",
    "format.date",
    "format.datetime",
    "format.dns1035Label",
    "format.dns1035LabelPrefix",
    "format.dns1123Label",
    "format.dns1123LabelPrefix",
    "format.dns1123Subdomain",
    "format.dns1123SubdomainPrefix",
    "format.labelValue",
    "format.named",
    "format.qualifiedName",
    "format.uri",
    "format.uuid",
    "getDate",
    "getDayOfMonth",
    "getDayOfWeek",
    "getDayOfYear",
    "getEscapedPath",
    "getFullYear",
    "getHost",
    "getHostname",
    "getHours",
    "getMilliseconds",
    "getMinutes",
    "getMonth",
    "getPort",
    "getQuery",
    "getScheme",
    "getSeconds",
    "hasValue",
    "indexOf",
    "int",
    "ip",
    "ip.isCanonical",
    "isCIDR",
    "isGlobalUnicast",
    "isGreaterThan",
    "isIP",
    "isInteger",
    "isLessThan",
    "isLinkLocalMulticast",
    "isLinkLocalUnicast",
    "isLoopback",
    "isQuantity",
    "isSemver",
    "isSorted",
    "isURL",
    "isUnspecified",
    "join",
    "jsonpatch.escapeKey",
    "last",
    "lastIndexOf",
    "lists.range",
    "lowerAscii",
    "major",
    "masked",
    "matches",
    "math.abs",
    "math.bitAnd",
    "math.bitNot",
    "math.bitOr",
    "math.bitShiftLeft",
    "math.bitShiftRight",
    "math.bitXor",
    "math.ceil",
    "math.floor",
    "math.greatest",
    "math.isFinite",
    "math.isInf",
    "math.isNaN",
    "math.least",
    "math.round",
    "math.sign",
    "math.sqrt",
    "math.trunc",
    "max",
    "min",
    "minor",
    "optional.none",
    "optional.of",
    "optional.ofNonZeroValue",
    "or",
    "orValue",
    "patch",
    "prefixLength",
    "quantity",
    "replace",
    "reverse",
    "semver",
    "sets.contains",
    "sets.equivalent",
    "sets.intersects",
    "sign",
    "size",
    "slice",
    "sort",
    "split",
    "startsWith",
    "string",
    "strings.quote",
    "sub",
    "substring",
    "sum",
    "timestamp",
    "trim",
    "type",
    "uint",
    "upperAscii",
    "url",
    "validate",
    "value",
];

pub(super) fn has_function(name: &str) -> bool {
    FUNCTIONS.binary_search(&name).is_ok()
}

pub(super) fn is_operator(name: &str) -> bool {
    static OPERATORS: OnceLock<Vec<&str>> = OnceLock::new();
    OPERATORS
        .get_or_init(|| {
            vec![
                operators::CONDITIONAL,
                operators::LOGICAL_AND,
                operators::LOGICAL_OR,
                operators::LOGICAL_NOT,
                operators::SUBSTRACT,
                operators::ADD,
                operators::MULTIPLY,
                operators::DIVIDE,
                operators::MODULO,
                operators::EQUALS,
                operators::NOT_EQUALS,
                operators::GREATER_EQUALS,
                operators::LESS_EQUALS,
                operators::GREATER,
                operators::LESS,
                operators::NEGATE,
                operators::INDEX,
                operators::OPT_INDEX,
                operators::NOT_STRICTLY_FALSE,
                operators::IN,
            ]
        })
        .contains(&name)
}

/// `math` in `math.ceil(x)`.
pub(super) fn namespace(target: &IdedExpr) -> Option<&str> {
    match &target.expr {
        Expr::Ident(name) => Some(name),
        _ => None,
    }
}
