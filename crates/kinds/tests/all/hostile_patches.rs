//! Patches, configurations, field sets and schemas that were good once, damaged. The fuzz target runs the same harness
//! without end.

use crate::hostile::Random;
use crate::patch_harness::{KINDS, check_bytes};

/// What clients send, one JSON text each; pairs of them meet in every order.
const TEXTS: &[&str] = &[
    r#"{"metadata":{"name":"x","labels":{"a":"b"},"finalizers":["f/a"]},"spec":{"containers":[{"name":"c","image":"i","ports":[{"containerPort":80}],"env":[{"name":"E","value":"1"}]}]}}"#,
    r#"{"metadata":{"name":"x","labels":null},"spec":{"$setElementOrder/containers":[{"name":"d"},{"name":"c"}],"containers":[{"name":"d","image":"j"},{"$patch":"delete","name":"c"}]}}"#,
    r#"{"metadata":{"name":"x","$deleteFromPrimitiveList/finalizers":["f/a"]},"spec":{"strategy":{"$retainKeys":["type"],"type":"Recreate"},"template":{"spec":{"containers":[{"name":"c"}]}}}}"#,
    r#"{"metadata":{"name":"x"},"spec":{"hard":{"pods":"5","cpu":"1"},"ports":[{"port":80},{"port":80,"protocol":"UDP"}],"selector":{"a":"b"}}}"#,
    r#"[{"op":"add","path":"/spec/x","value":[1]},{"op":"copy","from":"/spec","path":"/spec/y"},{"op":"test","path":"/metadata/name","value":"x"},{"op":"move","from":"/spec","path":"/spec/z"}]"#,
    r#"{"f:metadata":{"f:labels":{".":{},"f:a":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"c\"}":{".":{},"f:image":{}}},"v:\"a\"":{},"i:0":{}}}"#,
    r#"{"type":"object","properties":{"spec":{"type":"object","required":["a"],"x-kubernetes-validations":[{"rule":"self.a < 3"}],"properties":{"a":{"type":"integer","default":1,"maximum":9},"l":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["n"],"items":{"type":"object","required":["n"],"properties":{"n":{"type":"string","pattern":"^[a-z]+$"}}}}}}}}"#,
    r#"{"metadata":{"name":"x"},"rules":[{"apiGroups":[""],"verbs":["get"]}],"spec":{"a":7,"l":[{"n":"q"},{"n":"q"}]}}"#,
    "{}",
];

/// Rounds over all pairs of texts: some forty thousand runs of the harness, a second.
const ROUNDS: usize = 100;

#[test]
fn damaged_patches_and_schemas_are_refused_or_applied_but_never_worse() {
    let mut random = Random(0x5bd1_e995_9d1c_8f3b);
    for round in 0..ROUNDS {
        for (i, original) in TEXTS.iter().enumerate() {
            for change in TEXTS {
                for kind in 0..KINDS.len() {
                    let mut bytes = vec![u8::try_from(kind).expect("few kinds")];
                    for text in [*original, *change, TEXTS[(i + round) % TEXTS.len()]] {
                        // The first round is undamaged.
                        let text = if round == 0 { text.into() } else { random.damaged(text.as_bytes()) };
                        bytes.extend(text);
                        bytes.push(b'\n');
                    }
                    check_bytes(&bytes);
                }
            }
        }
    }
}
