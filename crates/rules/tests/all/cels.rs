//! CEL: what expressions give, what is refused and why, and that nothing hangs or dies.

use rules::cel::{CelError, EXPRESSION_BYTES_MAX, Outcome, Program};
use serde_json::{Value, json};

use super::cel_harness;
use super::random::Random;

/// `expression => what comes out`, on the object below.
const TABLE: &str = r#"
    object.spec.replicas + 1                                     => int 4
    object.spec.replicas == 3                                    => bool true
    object.spec.replicas * object.spec.replicas - 10             => int -1
    object.spec.big                                              => uint 18446744073709551615
    object.spec.replicas > 2 && object.metadata.name == 'web'    => bool true
    has(object.spec.replicas)                                    => bool true
    has(object.spec.missing)                                     => bool false
    object.metadata.labels['app.kubernetes.io/name']             => string web
    object.spec.containers.map(c, c.name)                        => list a,b
    object.spec.containers.filter(c, c.name == 'b').size()       => int 1
    object.spec.containers.all(c, c.name.size() == 1)            => bool true
    object.spec.containers.exists(c, c.name == 'z')              => bool false
    quantity(object.spec.size)                                   => quantity 1Gi
    quantity(object.spec.size).add(quantity('512Mi'))            => quantity 1536Mi
    quantity(object.spec.size).sub(1)                            => quantity 1073741823
    quantity('1').compareTo(quantity('1000m'))                   => int 0
    quantity('1') == quantity('1000m')                           => bool true
    quantity('2Gi').isGreaterThan(quantity('2G'))                => bool true
    quantity('1500m').isInteger()                                => bool false
    quantity('2k').asInteger()                                   => int 2000
    quantity('-1').sign()                                        => int -1
    isQuantity('1Kb')                                            => bool false
    quantity('9223372036854775807').add(quantity('1'))           => quantity 9223372036854775808
    semver('1.2.3').isLessThan(semver('1.10.0'))                 => bool true
    math.greatest(1, 5)                                          => int 5
    sets.contains([1, 2], [2])                                   => bool true
    [1, 2, 3].sum()                                              => int 6
    'a-b'.split('-')                                             => list a,b
    'web-1'.matches('^[a-z]+-[0-9]$')                            => bool true
    'ab12'.find('[0-9]+')                                        => string 12
    'a1b2'.findAll('[0-9]')                                      => list 1,2
    lists.range(3)                                               => list 0,1,2
    object.?spec.?missing.orValue(7)                             => int 7
    object[?'spec'].orValue({}).replicas                         => int 3
    object.?spec.replicas.orValue(0)                             => int 3
    object.spec.on ? 'y' : 'n'                                   => string y
    dyn(1) == 1                                                  => bool true
    1.5                                                          => double
    {'a': 1}                                                     => map
    null                                                         => null
    duration('1h')                                               => duration
    object.spec.missing                                          => error no such key: missing
    object.metadata.name.first                                   => error no such overload
    1 / 0                                                        => error division by zero
    9223372036854775807 + 1                                      => error integer overflow
    'a' + 1                                                      => error no such overload
    quantity('999E').add(quantity('1E'))                         => error add: quantity overflow
    quantity('1e999999999')                                      => error quantity: the exponent of a quantity must be between -60 and 60
    quantity('1Kb')                                              => error quantity: quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'
    lists.range(1000000000)                                      => error lists.range: must be between 0 and 10000
    '%.999999999f'.format([1.5])                                 => error the expression engine failed on this expression
"#;

fn object() -> Value {
    json!({
        "metadata": {"name": "web", "labels": {"app.kubernetes.io/name": "web"}},
        "spec": {"replicas": 3, "big": 18446744073709551615u64, "size": "1Gi", "on": true,
                 "containers": [{"name": "a"}, {"name": "b"}]},
    })
}

#[test]
fn expressions_give_typed_outcomes() {
    let object = object();
    for row in TABLE.lines().map(str::trim).filter(|row| !row.is_empty()) {
        let (source, expected) = row.split_once("=>").expect("an arrow");
        let program = Program::compile(source.trim(), &["object"]).unwrap_or_else(|error| panic!("{row}: {error}"));
        let shown = match program.eval(&[("object", &object)]) {
            Ok(outcome) => show(&outcome),
            Err(error) => format!("error {error}"),
        };
        assert_eq!(shown, expected.trim(), "{source}");
    }
}

fn show(outcome: &Outcome) -> String {
    let inner = |items: &[Outcome]| -> String {
        let shown: Vec<String> = items.iter().map(|item| show(item).split(' ').nth(1).unwrap_or("").into()).collect();
        shown.join(",")
    };
    let value = match outcome {
        Outcome::Bool(bool) => bool.to_string(),
        Outcome::Int(int) => int.to_string(),
        Outcome::Uint(uint) => uint.to_string(),
        Outcome::Text(text) => text.clone(),
        Outcome::Quantity(quantity) => quantity.to_string(),
        Outcome::List(items) => inner(items),
        _ => return outcome.type_name().into(),
    };
    format!("{} {value}", outcome.type_name())
}

/// `expression => why it is refused when it is compiled`
const REFUSED: &str = r#"
    subject.x                        => undeclared reference to 'subject' (in container '')
    object.spec.all(c, d)            => undeclared reference to 'd' (in container '')
    [1].map(x, x) + [x]              => undeclared reference to 'x' (in container '')
    nope(1)                          => undeclared reference to 'nope' (in container '')
    object.nope()                    => undeclared reference to 'nope' (in container '')
    math.nope(1)                     => undeclared reference to 'nope' (in container '')
    cel.bind(x, 1, x)                => undeclared reference to 'x' (in container '')
    [1].all(a, [1].all(b, [1].all(c, [1].all(d, [1].all(e, true))))) => comprehensions may be nested at most 4 deep
"#;

#[test]
fn unknown_names_are_found_when_compiling() {
    for row in REFUSED.lines().map(str::trim).filter(|row| !row.is_empty()) {
        let (source, expected) = row.split_once("=>").expect("an arrow");
        let error = Program::compile(source.trim(), &["object"]).expect_err(source);
        assert_eq!(error.to_string(), expected.trim(), "{source}");
    }
    assert!(matches!(Program::compile("1 +", &[]), Err(CelError::Syntax(_))));
}

#[test]
fn every_listed_function_exists_and_the_list_is_sorted() {
    assert!(rules::cel::FUNCTIONS.is_sorted());
    for name in rules::cel::FUNCTIONS {
        for source in [format!("{name}()"), format!("{name}(1)"), format!("x.{name}(1, 2)")] {
            let Ok(program) = Program::compile(&source, &["x"]) else { continue };
            if let Err(CelError::Evaluation(text)) = program.eval(&[("x", &json!("a"))]) {
                assert!(!text.contains("undeclared"), "{source}: {text}");
            }
        }
    }
}

#[test]
fn hostile_texts_are_refused_before_they_are_parsed() {
    let long = "a".repeat(EXPRESSION_BYTES_MAX + 1);
    assert_eq!(Program::compile(&long, &[]).err(), Some(CelError::TooLong));
    let chains = ["a.", "a[0]", "1+", "1<", "!", "-", "(", "[", "{", "a?a:", "a.f()", "1 in ", "'' + "];
    for chain in chains {
        let source = format!("{}1", chain.repeat(1500));
        assert_eq!(
            Program::compile(&source[..source.len().min(8000)], &["a"]).err(),
            Some(CelError::TooComplex),
            "{chain}"
        );
    }
    // An unclosed quote hides nothing.
    let hidden = format!("'{}", "a.".repeat(1000));
    assert!(Program::compile(&hidden, &["a"]).is_err());
}

#[test]
fn types_are_values_and_optionals_map() {
    let object = json!({"n": 1, "t": "a", "l": [1], "o": {"p": 2}});
    for source in [
        "type(object.n) == int && type(object.t) == string && type(object.l) == list && type(object) == map",
        "type(object.n) != type(object.t) && type(1.5) == double && type(null) == null_type",
        "object.?o.?p.optMap(v, v + 1).orValue(0) == 3 && object.?x.optMap(v, v + 1).orValue(0) == 0",
        "object.?o.optFlatMap(o, o.?p).orValue(0) == 2",
    ] {
        let program = Program::compile(source, &["object"]).unwrap_or_else(|why| panic!("{source}: {why}"));
        assert_eq!(program.eval_bool(&[("object", &object)]), Ok(true), "{source}");
    }
}

#[test]
fn the_deepest_expressions_accepted_fit_a_small_stack() {
    let runs = std::thread::Builder::new().stack_size(1024 * 1024).spawn(|| {
        let x = json!(1);
        for source in [
            format!("x{}", ".a".repeat(390)),
            format!("1{}", " + 1".repeat(390)),
            format!("x{}", "[0]".repeat(390)),
            format!("{}1{}", "[".repeat(30), "]".repeat(30)),
            format!("{}1{}", "(".repeat(30), ")".repeat(30)),
            format!("{}1", "x==x?1:".repeat(30)),
        ] {
            if let Ok(program) = Program::compile(&source, &["x"]) {
                let _ = program.eval(&[("x", &x)]);
            }
        }
        // Rules of CRDs join dozens of parts; those are no chain.
        let wide = format!("x == 1{}", " && (x == 1 || !(x < 1))".repeat(500));
        let program = Program::compile(&wide, &["x"]).expect("wide and not deep");
        assert_eq!(program.eval_bool(&[("x", &x)]), Ok(true));
    });
    runs.expect("a thread").join().expect("no panic");
}

#[test]
fn work_is_bounded_by_the_size_of_the_object() {
    let items: Vec<Value> = (0..2000).map(|n| json!({"n": n, "name": format!("item-{n}")})).collect();
    let object = json!({"spec": {"items": items}});
    let cheap = ["object.spec.items.all(i, i.n >= 0)", "object.spec.items.exists(i, i.name == 'item-1999')"];
    for source in cheap {
        let program = Program::compile(source, &["object"]).unwrap();
        assert_eq!(program.eval_bool(&[("object", &object)]), Ok(true), "{source}");
    }
    let dear = [
        "object.spec.items.all(a, object.spec.items.all(b, a.n == b.n))",
        "object.spec.items.map(a, object.spec.items)",
        "object.spec.items.map(a, [a, a]).flatten().map(b, [b, b]).flatten().size() > 0",
        "object.spec.items.all(a, object.spec.items.size() > 0)",
        "[object, object].all(o, o.spec.items.all(i, o.spec.items.size() > 0))",
        "lists.range(10000).all(a, lists.range(10000).all(b, true))",
        "lists.range(10000).map(a, a).size()",
        "sets.intersects(object.spec.items, object.spec.items)",
        "object.spec.items.map(i, i.name).join(object.spec.items.map(i, i.name).join('xx'))",
    ];
    for source in dear {
        let program = Program::compile(source, &["object"]).unwrap();
        let outcome = program.eval(&[("object", &object)]);
        assert!(
            matches!(outcome, Err(CelError::TooExpensive { .. })),
            "{source}: {:?}",
            outcome.map(|o| o.type_name())
        );
    }
    // The same expressions on a small object are fine.
    let small = json!({"spec": {"items": [{"n": 1, "name": "a"}]}});
    assert!(Program::compile(dear[0], &["object"]).unwrap().eval(&[("object", &small)]).is_ok());
}

#[test]
fn inputs_are_bounded_and_must_be_given() {
    let program = Program::compile("object == null", &["object", "other"]).unwrap();
    assert_eq!(program.eval(&[("object", &json!(1))]), Err(CelError::Unbound("other".into())));
    let mut deep = json!(1);
    for _ in 0..200 {
        deep = json!([deep]);
    }
    assert_eq!(program.eval(&[("object", &deep), ("other", &json!(1))]), Err(CelError::InputTooLarge));
}

#[test]
fn amounts_come_from_quantities_integers_and_texts_and_never_from_doubles() {
    let quantities = |source: &str| -> Result<Vec<String>, CelError> {
        let program = Program::compile(source, &["object"])?;
        let found = program.eval_quantities(&[("object", &object())])?;
        Ok(found.iter().map(ToString::to_string).collect())
    };
    assert_eq!(quantities("quantity('1.5Gi')"), Ok(vec!["1536Mi".into()]));
    assert_eq!(quantities("[quantity('1'), quantity('2')]"), Ok(vec!["1".into(), "2".into()]));
    assert_eq!(quantities("object.spec.replicas"), Ok(vec!["3".into()]));
    assert_eq!(quantities("object.spec.big"), Ok(vec!["18446744073709551615".into()]));
    assert_eq!(quantities("object.spec.size"), Ok(vec!["1Gi".into()]));
    assert_eq!(quantities("1.0"), Err(CelError::WrongType { wanted: "quantity", got: "double" }));
    assert_eq!(
        quantities("quantity('1').asApproximateFloat()"),
        Err(CelError::WrongType { wanted: "quantity", got: "double" })
    );
    assert_eq!(quantities("object.spec.on"), Err(CelError::WrongType { wanted: "quantity", got: "bool" }));
    assert!(matches!(quantities("'1Kb'"), Err(CelError::Quantity { .. })));
}

const PIECES: [&str; 44] = [
    "object",
    ".spec",
    ".items",
    ".list",
    ".size",
    ".replicas",
    ".on",
    ".none",
    ".metadata.labels",
    "['app']",
    "[0]",
    "[?0]",
    ".?spec",
    "1",
    "-",
    "2u",
    "1.5",
    "'a'",
    "true",
    "null",
    "quantity(",
    "'1Gi'",
    ")",
    "(",
    "[",
    "]",
    ",",
    " + ",
    " == ",
    " && ",
    " || ",
    "!",
    " ? ",
    " : ",
    ".map(x, x",
    ".filter(x, ",
    ".all(x, ",
    ".size()",
    ".add(",
    ".orValue(",
    "has(",
    " in ",
    "{",
    "}",
];

#[test]
fn any_expression_text_is_answered() {
    let mut random = Random(7);
    for _ in 0..4_000 {
        cel_harness::check_bytes(random.row(&PIECES, 9).as_bytes());
        cel_harness::check_bytes(&random.bytes(b"ab.()[]{}'\"+-!?:,1 \\r=<&|\n\xff", 16));
    }
}

#[test]
fn a_program_is_shared_between_threads() {
    fn shared<T: Send + Sync>(_: &T) {}
    shared(&Program::compile("1", &[]).unwrap());
}
