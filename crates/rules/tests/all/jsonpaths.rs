//! JSONPath: by table, against client-go, and on noise.

use rules::jsonpath::{CompileError, FindError, JsonPath, MissingKeys, PATH_BYTES_MAX, UsageError, text, usage};
use serde_json::{Value, json};

use super::jsonpath_harness;
use super::peer::{ask, hex, unhex};
use super::random::Random;

fn object() -> Value {
    json!({
        "metadata": {"name": "web", "labels": {"app.kubernetes.io/name": "shop", "my-label": "x"}},
        "spec": {
            "replicas": 3, "on": true, "none": null, "ratio": 1.5, "big": 1e21,
            "containers": [
                {"name": "a", "port": 80, "cpu": "100m", "tags": ["x", "y"]},
                {"name": "b", "port": 443, "cpu": "2", "tags": []},
                {"name": "c", "port": 8080, "memory": "1Gi"},
            ],
            "matrix": [[1, 2], [3, 4]],
        },
    })
}

/// `path -> what is printed`, missing keys allowed.
const TABLE: &str = r#"
    .spec.replicas                                   -> 3
    {.spec.replicas}                                 -> 3
    $.spec.replicas                                  -> 3
    {$.spec.replicas}                                -> 3
    @.spec.replicas                                  -> 3
    .spec['replicas']                                -> 3
    ['spec']['replicas']                             -> 3
    ['spec.replicas']                                -> 3
    .metadata.labels.app\.kubernetes\.io/name        -> shop
    .metadata.labels['app\.kubernetes\.io/name']     -> shop
    .metadata.labels.my-label                        -> x
    .spec.on                                         -> true
    .spec.none                                       -> null
    .spec.ratio                                      -> 1.5
    .spec.big                                        -> 1e+21
    .spec.missing                                    ->
    .spec.missing.further                            ->
    .spec.containers[0].name                         -> a
    .spec.containers[-1].name                        -> c
    .spec.containers[].name                          -> a
    .spec.containers[*].name                         -> a b c
    .spec.containers[:].name                         -> a b c
    .spec.containers[0:2].name                       -> a b
    .spec.containers[1:].name                        -> b c
    .spec.containers[:-1].name                       -> a b
    .spec.containers[::2].name                       -> a c
    .spec.containers[0:0].name                       ->
    .spec.containers[0,2].name                       -> a c
    .spec.containers[*]['name', 'port']              -> a b c 80 443 8080
    .spec.containers[?(@.name=="b")].port            -> 443
    .spec.containers[?(@.name!="b")].port            -> 80 8080
    .spec.containers[?(@.port>80)].name              -> b c
    .spec.containers[?(@.port>=443)].name            -> b c
    .spec.containers[?(@.port<443)].name             -> a
    .spec.containers[?(@.port<=443)].name            -> a b
    .spec.containers[?(@.memory)].name               -> c
    .spec.containers[?(@.name=='a')].tags[*]         -> x y
    .spec.containers[?(@.tags[0]=="x")].name         -> error array index out of bounds: index 0, length 0
    .spec.matrix[*][1]                               -> 2 4
    .spec.matrix[?(@[0]==3)][1]                      -> 4
    ..cpu                                            -> 100m 2
    .spec..name                                      -> a b c
    .spec.containers[0].tags                         -> ["x","y"]
    .metadata.labels                                 -> {"app.kubernetes.io/name":"shop","my-label":"x"}
    .spec.containers[3].name                         -> error array index out of bounds: index 3, length 3
    .spec.containers[2:1]                            -> error starting index 2 is greater than ending index 1
    .spec.containers[::0]                            -> error step must be > 0
    .spec[0]                                         -> error map[string]interface {} is not array or slice
    .spec.replicas[0]                                -> error int64 is not array or slice
    .metadata.name[?(@.x)]                           -> error web is not array or slice and cannot be filtered
    .spec.containers[?(@.port==80.5)]                -> error incompatible types for comparison
    .spec.containers[?(@.port=="80")]                -> error incompatible types for comparison
    .spec.containers[?(@.tags=="x")]                 -> error invalid type for comparison
    .spec.containers[?(@.port=<80)]                  -> error unrecognized filter operator =<
    .spec.containers[?(@.tags[*]=="x")].name         -> error can only compare one element at a time
    spec.replicas                                    -> error unrecognized identifier spec
    .spec.containers[                                -> refused unterminated array
    .spec.containers[x]                              -> refused invalid array index x
    .spec.containers[-]                              -> refused array index - is not a number
    .spec.containers[?(@.x)                          -> refused unclosed array expect ]
    .spec.containers[?(@.x]                          -> refused unterminated filter
    ....a                                            -> refused invalid multiple recursive descent
    .a"b                                             ->
    "b                                               -> refused unterminated quoted string
    !x                                               -> refused unrecognized character in action: U+0021 '!'
    .a}5{.b                                          -> refused jsonpath must be a single expression, not a template
    {range .items[*]}{end}                           -> refused jsonpath must be a single expression, not a template
"#;

#[test]
fn paths_select() {
    let object = object();
    for row in TABLE.lines().map(str::trim).filter(|row| !row.is_empty()) {
        let (path, expected) = row.split_once("->").expect("an arrow");
        assert_eq!(answer(path.trim(), &object, MissingKeys::Allow), expected.trim(), "{path}");
    }
}

fn answer(path: &str, object: &Value, missing: MissingKeys) -> String {
    match JsonPath::compile(path) {
        Err(error) => format!("refused {error}"),
        Ok(path) => match path.find(object, missing) {
            Err(error) => format!("error {error}"),
            Ok(found) => text(&found).expect("short"),
        },
    }
}

#[test]
fn a_missing_key_is_an_error_when_asked_for() {
    let object = object();
    assert_eq!(answer(".spec.missing", &object, MissingKeys::Refuse), "error missing is not found");
    assert_eq!(answer(".spec.replicas", &object, MissingKeys::Refuse), "3");
}

#[test]
fn usage_is_the_sum_of_what_is_printed() {
    let object = object();
    let sum = |path: &str| usage(&JsonPath::compile(path).unwrap().find(&object, MissingKeys::Allow).unwrap());
    assert_eq!(sum("..cpu").map(|sum| sum.to_string()), Ok("2100m".into()));
    assert_eq!(sum(".spec.containers[*].memory").map(|sum| sum.to_string()), Ok("1Gi".into()));
    assert_eq!(sum(".spec.ratio").map(|sum| sum.to_string()), Ok("1500m".into()));
    assert_eq!(sum(".spec.missing"), Err(UsageError::Empty));
    assert_eq!(
        sum(".metadata.name").unwrap_err().to_string(),
        "invalid quantity \"web\": quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
    );
    assert!(matches!(sum(".spec.big"), Err(UsageError::Quantity { .. }) | Ok(_)));
}

#[test]
fn everything_is_bounded() {
    assert_eq!(JsonPath::compile(&".a".repeat(PATH_BYTES_MAX)), Err(CompileError::TooLong));
    // A filter ends at its first bracket, so filters cannot nest at all.
    let deep = format!("{}@.a{}", "[?(".repeat(60), ")]".repeat(60));
    assert!(JsonPath::compile(&deep).is_err());

    let wide = json!({"items": vec![json!({"a": 1}); 20_000]});
    let path = JsonPath::compile(".items[*]").unwrap();
    assert_eq!(path.find(&wide, MissingKeys::Allow), Err(FindError::TooManyResults));
    let path = JsonPath::compile("..a").unwrap();
    assert_eq!(path.find(&wide, MissingKeys::Allow), Err(FindError::TooManyResults));

    let square = json!({"items": vec![json!({"rows": vec![1; 1200]}); 1000]});
    let path = JsonPath::compile(".items[?(@..x)]").unwrap();
    assert_eq!(path.find(&square, MissingKeys::Allow), Err(FindError::TooManySteps));

    let mut nested = json!(1);
    for _ in 0..2000 {
        nested = json!([nested]);
    }
    let path = JsonPath::compile("..a").unwrap();
    assert_eq!(path.find(&nested, MissingKeys::Allow), Err(FindError::TooDeep));
    drop_deep(nested);
}

/// Dropping a deep value recurses; take it apart instead.
fn drop_deep(mut value: Value) {
    while let Value::Array(mut items) = value {
        value = items.pop().unwrap_or(Value::Null);
    }
}

const PIECES: [&str; 48] = [
    ".spec",
    ".containers",
    ".matrix",
    ".name",
    ".port",
    ".cpu",
    ".tags",
    ".missing",
    "[0]",
    "[-1]",
    "[5]",
    "[1:]",
    "[:2]",
    "[::2]",
    "[*]",
    "[0,1]",
    "['name']",
    "['name','port']",
    "[?(@.name==\"a\")]",
    "[?(@.port>80)]",
    "[?(@.cpu)]",
    "[?(@.tags[0])]",
    "[?(@.port!='x')]",
    "[?(@[0]<=1)]",
    "[?(@.on==true)]",
    "@",
    "$",
    " ",
    "..",
    "*",
    ".",
    "[",
    "]",
    "\"x\"",
    "'y'",
    "1",
    "-2",
    "1.5",
    "true",
    "x",
    "\\.",
    "\\",
    ",",
    "!",
    "[]",
    "[-]",
    "[?(",
    ")]",
];

#[test]
fn client_go_selects_the_same() {
    // A map with several keys comes in random order in Go, so the object for `*` and `..` has one key a map.
    let many = object();
    let single =
        json!({"spec": {"containers": [{"name": "a"}, {"name": "b"}, {"tags": ["x", {"cpu": 1}, 2.5, null, ""]}]}});
    let mut random = Random(11);
    let mut cases = Vec::new();
    while cases.len() < 40_000 {
        let path = random.row(&PIECES, 6);
        // Rows of pieces mostly go wrong early; start half of them on a good path.
        let path = if random.below(2) == 0 { format!(".spec.containers{path}") } else { path };
        let is_unordered = path.contains('*') || path.contains("..");
        let object = if is_unordered { &single } else { &many };
        let missing = if random.below(2) == 0 { MissingKeys::Allow } else { MissingKeys::Refuse };
        cases.push((path, object, missing));
    }
    let questions: Vec<String> = cases
        .iter()
        .map(|(path, object, missing)| {
            let kind = if *missing == MissingKeys::Allow { "allow" } else { "refuse" };
            format!("{kind}|{}|{}", hex(path), hex(&object.to_string()))
        })
        .collect();
    let mut selected = 0;
    for ((path, object, missing), theirs) in cases.iter().zip(ask("jsonpath", &questions)) {
        let (kind, message) = theirs.split_once('|').expect("two words");
        let expected = match kind {
            "ok" => unhex(message),
            "parse" => format!("refused {}", unhex(message)),
            "error" => format!("error {}", unhex(message)),
            // Where client-go falls over, any answer of ours will do.
            _ => continue,
        };
        selected += usize::from(kind == "ok" && !expected.is_empty());
        assert_eq!(answer(path, object, *missing), expected, "{path:?}");
    }
    assert!(selected > 1000, "only {selected} paths selected anything: the generator went astray");
}

#[test]
fn any_path_text_is_answered() {
    let mut random = Random(12);
    for _ in 0..30_000 {
        jsonpath_harness::check_bytes(random.row(&PIECES, 9).as_bytes());
        jsonpath_harness::check_bytes(&random.bytes(b".ab[]'\"?()@$*:,-1=<! \\{}n\n\xff", 20));
    }
}

#[test]
fn a_forgiving_path_selects_nothing_where_nothing_is() {
    let object = json!({"spec": {"type": "LoadBalancer", "none": null, "ports": [{"port": 80}], "modes": ["rwo"]}});
    let cases = [
        (r#".spec.type[?(@=="LoadBalancer")]"#, "LoadBalancer"),
        (r#".spec.type[?(@=="ClusterIP")]"#, ""),
        (r#".spec.modes[?(@=="rwo")]"#, "rwo"),
        (r#".spec.absent[?(@=="a")]"#, ""),
        (r#".spec.none[?(@=="a")]"#, ""),
        (".spec.none", ""),
        (".spec.ports[3].port", ""),
        (".spec.ports[0].port", "80"),
        (".spec.type[0]", ""),
    ];
    for (path, expected) in cases {
        let path = JsonPath::compile(path).unwrap();
        let found = path.find_forgiving(&object).unwrap();
        assert_eq!(text(&found).unwrap(), expected, "{}", path.source());
    }
}
