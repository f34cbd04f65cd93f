//! What bodies become, as data: the body in YAML (which JSON is a part of), and what is expected of it.

use serde_json::{Value, json};

use super::{
    Body, DEPTH_MAX, DecodeError, Format, apply_defaults, body, fit, is_protobuf, protobuf, refusal, strict_refusal,
    yaml,
};
use crate::facts;

fn read(kind: &str, text: &str) -> Result<Body, DecodeError> {
    let (group_version, kind) = kind.rsplit_once(' ').expect("group-version and kind");
    let (group, version) = group_version.split_once('/').unwrap_or(("", group_version));
    let ty = facts().kind(group, version, kind).expect("a kind");
    let format = if text.trim_start().starts_with('{') { Format::Json } else { Format::Yaml };
    body(format, text.as_bytes(), &facts().catalogue, ty)
}

fn becomes(kind: &str, text: &str, expected: Value) {
    let body = read(kind, text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    assert_eq!(body.value, expected, "{text}");
    assert_eq!(body.problems, Vec::<String>::new(), "{text}");
}

fn refused(kind: &str, text: &str, words: &str) {
    match read(kind, text) {
        Ok(body) => panic!("{} was read from\n{text}", body.value),
        Err(error) => assert_eq!(error.to_string(), words, "{text}"),
    }
}

#[test]
fn an_object_gets_the_form_go_would_give_it() {
    becomes(
        "v1 ResourceQuota",
        r#"{"metadata":{"name":"a","labels":{},"creationTimestamp":null,"generation":0},
            "spec":{"hard":{"cpu":0.50,"pods":"10","memory":"1Gi"},"scopes":[]}}"#,
        json!({"metadata": {"name": "a"}, "spec": {"hard": {"cpu": "500m", "pods": "10", "memory": "1Gi"}}, "status": {}}),
    );
    becomes(
        "apps/v1 Deployment",
        r#"{"spec":{"replicas":0,"paused":false,"template":{"spec":{"containers":[{"name":"c","stdin":false}]}}}}"#,
        json!({
            "metadata": {},
            "spec": {
                "replicas": 0,
                "strategy": {},
                "template": {"metadata": {}, "spec": {"containers": [{"name": "c", "resources": {}}]}},
            },
            "status": {},
        }),
    );
    becomes(
        "v1 Pod",
        r#"{"spec":{"volumes":[{"name":"v","emptyDir":{}}],"containers":[null]}}"#,
        json!({
            "metadata": {},
            "spec": {"volumes": [{"name": "v", "emptyDir": {}}], "containers": [{"name": "", "resources": {}}]},
            "status": {},
        }),
    );
    becomes(
        "v1 Secret",
        "{\"data\":{\"a\":\"YQ==\",\"b\":\"Y\\nWI=\"},\"immutable\":false}",
        json!({"metadata": {}, "data": {"a": "YQ==", "b": "YWI="}, "immutable": false}),
    );
}

#[test]
fn wrong_types_are_refused_in_kubernetes_words() {
    for (kind, text, words) in [
        (
            "apps/v1 Deployment",
            r#"{"spec":{"replicas":"3"}}"#,
            "json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32",
        ),
        (
            "apps/v1 Deployment",
            r#"{"spec":{"replicas":1.5}}"#,
            "json: cannot unmarshal number 1.5 into Go struct field DeploymentSpec.spec.replicas of type int32",
        ),
        (
            "apps/v1 Deployment",
            r#"{"spec":{"replicas":3000000000}}"#,
            "json: cannot unmarshal number 3000000000 into Go struct field DeploymentSpec.spec.replicas of type int32",
        ),
        (
            "v1 ConfigMap",
            r#"{"data":{"a":1}}"#,
            "json: cannot unmarshal number into Go struct field ConfigMap.data of type string",
        ),
        (
            "v1 Pod",
            r#"{"spec":{"containers":{}}}"#,
            "json: cannot unmarshal object into Go struct field PodSpec.spec.containers of type []v1.Container",
        ),
        (
            "v1 Pod",
            r#"{"spec":{"containers":[{"imagePullPolicy":1}]}}"#,
            "json: cannot unmarshal number into Go struct field Container.spec.containers.imagePullPolicy of type v1.PullPolicy",
        ),
        ("v1 Pod", r#"{"spec":5}"#, "json: cannot unmarshal number into Go struct field Pod.spec of type v1.PodSpec"),
        (
            "v1 Pod",
            r#"{"metadata":{"labels":{"a":["b"]}}}"#,
            "json: cannot unmarshal array into Go struct field ObjectMeta.metadata.labels of type string",
        ),
        (
            "v1 ResourceQuota",
            r#"{"spec":{"hard":{"cpu":"lots"}}}"#,
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        ),
        (
            "v1 ResourceQuota",
            r#"{"spec":{"hard":{"cpu":{}}}}"#,
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        ),
        (
            "v1 ResourceQuota",
            r#"{"spec":{"hard":5}}"#,
            "json: cannot unmarshal number into Go struct field ResourceQuotaSpec.spec.hard of type v1.ResourceList",
        ),
        ("v1 Secret", r#"{"data":{"a":"?"}}"#, "illegal base64 data at input byte 0"),
        ("v1 Secret", r#"{"data":{"a":"YQ="}}"#, "illegal base64 data at input byte 3"),
        ("v1 Secret", r#"{"data":{"a":"YWJ"}}"#, "illegal base64 data at input byte 0"),
        ("v1 Secret", r#"{"data":{"a":"YWJjZA==YWJj"}}"#, "illegal base64 data at input byte 8"),
        (
            "v1 Secret",
            r#"{"data":{"a":5}}"#,
            "json: cannot unmarshal number into Go struct field Secret.data of type []uint8",
        ),
        (
            "v1 Pod",
            r#"{"metadata":{"creationTimestamp":5}}"#,
            "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.creationTimestamp of type string",
        ),
        (
            "v1 Pod",
            r#"{"metadata":{"creationTimestamp":"now"}}"#,
            r#"parsing time "now" as "2006-01-02T15:04:05Z07:00": cannot parse "now" as "2006""#,
        ),
        (
            "v1 Service",
            r#"{"spec":{"ports":[{"targetPort":{}}]}}"#,
            "json: cannot unmarshal object into Go struct field ServicePort.spec.ports.targetPort of type int32",
        ),
    ] {
        refused(kind, text, words);
    }
    let pod = facts().kind("", "v1", "Pod").unwrap();
    let error = fit(&facts().catalogue, pod, json!([])).unwrap_err().to_string();
    assert_eq!(error, "json: cannot unmarshal array into Go value of type v1.Pod");
}

#[test]
fn unknown_and_duplicate_fields_are_named() {
    let text = r#"{"spec":{"hardd":{},"hard":{"pods":"1","pods":"2"}},"Spec":{}}"#;
    let body = read("v1 ResourceQuota", text).unwrap();
    let problems = [r#"unknown field "spec.hardd""#, r#"duplicate field "spec.hard.pods""#, r#"unknown field "Spec""#];
    assert_eq!(body.problems, problems);
    assert_eq!(body.value["spec"], json!({"hard": {"pods": "2"}}));

    let text = r#"{"spec":{"containers":[{"name":"a"},{"imagee":"b"}]}}"#;
    assert_eq!(read("v1 Pod", text).unwrap().problems, [r#"unknown field "spec.containers[1].imagee""#]);
}

#[test]
fn yaml_is_read_like_json() {
    let text = "
spec:
  hard: {cpu: 0.5, pods: 10, memory: 1Gi}
";
    let hard = json!({"cpu": "500m", "pods": "10", "memory": "1Gi"});
    becomes("v1 ResourceQuota", text, json!({"metadata": {}, "spec": {"hard": hard}, "status": {}}));
    let octal = "spec: {containers: [], volumes: [{name: v, configMap: {defaultMode: 0644}}]}";
    assert_eq!(read("v1 Pod", octal).unwrap().value["spec"]["volumes"][0]["configMap"]["defaultMode"], 0o644);
    assert!(read("v1 Pod", "a: [").unwrap_err().to_string().starts_with("yaml: "));
    let long = read("v1 ResourceQuota", "spec: {hard: {cpu: 0.12345678901234567}}").unwrap_err().to_string();
    assert!(long.ends_with("has too many digits for a number: write it as a string"), "{long}");
}

#[test]
fn yaml_bombs_do_not_go_off() {
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let before = format!("*a{}", level - 1);
        bomb += &format!("a{level}: &a{level} [{}]\n", vec![before; 9].join(", "));
    }
    assert!(matches!(yaml(bomb.as_bytes(), None), Err(DecodeError::Syntax(_))));
    let deep = "- ".repeat(100_000);
    assert!(yaml(deep.as_bytes(), None).is_err());
    assert!(yaml("[".repeat(100_000).as_bytes(), None).is_err());
    assert!(yaml(b"a: 1\n---\na: 2\n", None).is_err());
}

#[test]
fn refusals_are_kubernetes_sentences() {
    let pod = facts().kind("", "v1", "Pod").unwrap();
    for (format, bytes, words) in [
        (
            Format::Json,
            r#"{"spec":5}"#,
            r#"Pod in version "v1" cannot be handled as a Pod: json: cannot unmarshal number into Go struct field Pod.spec of type v1.PodSpec"#,
        ),
        (
            Format::Json,
            "x",
            "the object provided is unrecognized (must be of type Pod): couldn't get version/kind; json parse error: invalid character 'x' looking for beginning of value (78)",
        ),
        (
            Format::Json,
            "",
            "the object provided is unrecognized (must be of type Pod): couldn't get version/kind; json parse error: unexpected end of JSON input (<empty>)",
        ),
        (
            Format::Json,
            r#"{"apiVersion":"v1","kind":"Service","spec":5"#,
            r#"the object provided is unrecognized (must be of type Pod): couldn't get version/kind; json parse error: unexpected end of JSON input ({"apiVersion":"v1","kind":"Ser ...)"#,
        ),
        (
            Format::Json,
            r#"{"apiVersion":"v1","kind":"Service"}"#,
            r#"Service in version "v1" cannot be handled as a Pod: converting (v1.Service) to (core.Pod): unknown conversion"#,
        ),
        (
            Format::Json,
            r#"{"apiVersion":"v7","kind":"Pod"}"#,
            r#"Pod in version "v7" cannot be handled as a Pod: no kind "Pod" is registered for version "v7""#,
        ),
        (
            Format::Protobuf,
            "k8s",
            "the object provided is unrecognized (must be of type Pod): provided data does not appear to be a protobuf message, expected prefix [107 56 115 0] (6b3873)",
        ),
        (
            Format::Protobuf,
            "k8s\0\x12\x05ab",
            "the object provided is unrecognized (must be of type Pod): unexpected EOF (6b38730012056162)",
        ),
        (
            Format::Protobuf,
            "k8s\0\x0a\x09\x0a\x02v1\x12\x03Pod\x12\x02\x0a\x09",
            r#"Pod in version "v1" cannot be handled as a Pod: unexpected EOF"#,
        ),
    ] {
        let error = body(format, bytes.as_bytes(), &facts().catalogue, pod).expect_err(bytes);
        assert_eq!(refusal(&error, bytes.as_bytes(), "v1", "Pod"), words);
    }
    let problems = ["unknown field \"a\"".to_owned(), "duplicate field \"b\"".to_owned()];
    assert_eq!(
        strict_refusal(&problems, "v1", "Pod"),
        r#"Pod in version "v1" cannot be handled as a Pod: strict decoding error: unknown field "a", duplicate field "b""#
    );
}

#[test]
fn a_key_that_yaml_has_twice_is_a_problem_and_the_last_counts() {
    let body = read("v1 ResourceQuota", "spec: {hard: {pods: 1, pods: 2}}").unwrap();
    assert_eq!(body.value["spec"]["hard"]["pods"], "2");
    assert_eq!(body.problems, ["yaml: unmarshal errors:\n  line 1: key \"pods\" already set in map"]);
}

#[test]
fn declared_defaults_fill_what_is_absent() {
    let service = facts().kind("", "v1", "Service").unwrap();
    let mut value = json!({"spec": {"ports": [{"port": 1}, {"port": 2, "protocol": "UDP"}]}});
    apply_defaults(&facts().catalogue, service, &mut value).unwrap();
    assert_eq!(value["spec"]["ports"][0]["protocol"], "TCP");
    assert_eq!(value["spec"]["ports"][1]["protocol"], "UDP");

    let quota = facts().kind("", "v1", "ResourceQuota").unwrap();
    let mut value = json!({"spec": {"hard": {"cpu": "100u", "memory": "1Gi"}}});
    apply_defaults(&facts().catalogue, quota, &mut value).unwrap();
    assert_eq!(value["spec"]["hard"], json!({"cpu": "1m", "memory": "1Gi"}));
}

#[test]
fn hostile_protobuf_is_refused() {
    let pod = facts().kind("", "v1", "Pod").unwrap();
    let read = |message: &[u8]| {
        let bytes = [b"k8s\0", message].concat();
        assert!(is_protobuf(&bytes));
        protobuf(&bytes, &facts().catalogue, pod)
    };
    assert!(protobuf(b"{}", &facts().catalogue, pod).is_err());
    assert_eq!(read(b""), Ok(json!({})));
    for bytes in [
        &b"\x12\x05ab"[..],
        b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
        b"\x00\x00",
        b"\x13",
        b"\x80",
        b"\x12\x02\x0a\x05",
        b"\x12\x03\x08\x01\x0a",
        b"\x1a\x01z",
    ] {
        assert!(matches!(read(bytes), Err(DecodeError::Protobuf(_) | DecodeError::Envelope(_))), "{bytes:?}");
    }
    let unknown = read(b"\x0a\x06\x12\x04Nope").unwrap_err().to_string();
    assert_eq!(unknown, r#"no kind "Nope" is registered for version """#);
}

#[test]
fn protobuf_that_nests_without_end_is_refused() {
    let mut schema: Vec<u8> = Vec::new();
    for _ in 0..400 {
        // properties = 29, an entry of the map whose value = 2 is the schema so far.
        let entry = [&[0x12][..], &length(&schema), &schema].concat();
        schema = [&[0xea, 0x01][..], &length(&entry), &entry].concat();
    }
    let meta = b"\x0a\x17apiextensions.k8s.io/v1\x12\x18CustomResourceDefinition";
    let version = [&[0x22][..], &length(&wrap(0x0a, &schema)), &wrap(0x0a, &schema)].concat();
    let spec = wrap(0x3a, &version);
    let raw = wrap(0x12, &spec);
    let bytes = [b"k8s\0", &wrap(0x0a, &meta[..])[..], &wrap(0x12, &raw)].concat();
    let ty = facts().kind("apiextensions.k8s.io", "v1", "CustomResourceDefinition").unwrap();
    assert_eq!(protobuf(&bytes, &facts().catalogue, ty), Err(DecodeError::TooDeep));
}

#[test]
fn json_inside_of_protobuf_nests_in_what_it_stands_in() {
    let ty = facts().kind("apps", "v1", "ControllerRevision").unwrap();
    let read = |levels: usize| {
        let json = format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        let data = wrap(0x12, &wrap(0x0a, json.as_bytes()));
        let meta = wrap(0x0a, b"\x0a\x07apps/v1\x12\x12ControllerRevision");
        protobuf(&[b"k8s\0", &meta[..], &wrap(0x12, &data)].concat(), &facts().catalogue, ty)
    };
    assert!(read(DEPTH_MAX - 1).is_ok());
    assert_eq!(read(DEPTH_MAX), Err(DecodeError::TooDeep));
}

#[test]
fn what_aliases_repeat_is_no_longer_than_the_text() {
    // Four hundred bytes that would be half a million values.
    let mut bomb = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n".to_owned();
    for n in 1..9 {
        bomb.push_str(&format!("a{n}: &a{n} [{}]\n", vec![format!("*a{}", n - 1); 8].join(",")));
    }
    assert!(bomb.len() < 450, "{}", bomb.len());
    let why = yaml(bomb.as_bytes(), None).unwrap_err().to_string();
    assert!(why.contains("replay") || why.contains("limit"), "{why}");
    // One long text, often.
    let text = format!("a: &a {}\nb: [{}]\n", "x".repeat(10_000), vec!["*a"; 90].join(","));
    assert!(yaml(text.as_bytes(), None).is_err());
    // By merging, and below anchors that hold each other.
    let merged = format!("a: &a {{{}}}\nb: [{}]\n", "k: v, l: w", vec!["{<<: *a}"; 300].join(","));
    assert!(yaml(merged.as_bytes(), None).is_err());
    let nested = (0..60).fold("x".to_owned(), |inner, n| format!("&a{n} [{inner}, {inner_text}]", inner_text = "y"));
    let _ = yaml(format!("a: {nested}").as_bytes(), None);
    // What people write.
    let used =
        "base: &base {image: web, replicas: 3}\none: {<<: *base, name: a}\ntwo: {<<: *base, name: b}\nlist: [*base]\n";
    let read = yaml(used.as_bytes(), None).unwrap().value;
    assert_eq!((&read["two"]["image"], &read["list"][0]["replicas"]), (&json!("web"), &json!(3)));
}

#[test]
fn a_built_in_kind_adds_a_bounded_number_of_values() {
    let pod = facts().kind("", "v1", "Pod").unwrap();
    let pods = |containers: usize| json!({"spec": {"containers": vec![json!({}); containers]}});
    assert!(fit(&facts().catalogue, pod, pods(10_000)).is_ok());
    assert!(matches!(fit(&facts().catalogue, pod, pods(190_000)), Err(DecodeError::TooLarge(_))));
    assert!(matches!(
        fit(&facts().catalogue, pod, json!({"spec": {"containers": vec![Value::Null; 190_000]}})),
        Err(DecodeError::TooLarge(_))
    ));
}

fn wrap(tag: u8, content: &[u8]) -> Vec<u8> {
    [&[tag][..], &length(content), content].concat()
}

fn length(content: &[u8]) -> Vec<u8> {
    let mut rest = content.len();
    let mut out = Vec::new();
    while rest >= 0x80 {
        out.push(u8::try_from(rest & 0x7f).expect("seven bits") | 0x80);
        rest >>= 7;
    }
    out.push(u8::try_from(rest).expect("seven bits"));
    out
}
