//! A status reports what happened and is never refused. Labels and annotations that come along with it are somebody's wish.

use super::*;

const CAPSULE: &str = "capsule.clastix.io";

#[test]
fn labels_and_annotations_written_with_a_status_are_charged_as_any_others() {
    let mut bench = Bench::with(families::all(&families::Settings::default()));
    let counted = |path: &str, selector: Value| {
        json!({"spec": {"limit": "1", "sources": [
            {"kind": "Pod", "apiVersion": "v1", "path": path, "selectors": [selector]},
        ]}})
    };
    let labelled = counted(".spec.size", json!({"matchLabels": {"counted": "yes"}}));
    bench.create(CAPSULE, "customquotas", "a", "labelled", labelled).unwrap();
    let annotated = counted(".metadata.annotations.size", json!({"matchLabels": {"kind": "annotated"}}));
    bench.create(CAPSULE, "customquotas", "a", "annotated", annotated).unwrap();
    let reported = counted(".status.size", json!({"matchLabels": {"kind": "reported"}}));
    bench.create(CAPSULE, "customquotas", "a", "reported", reported).unwrap();
    for (name, labels) in
        [("l", json!({"x": "y"})), ("n", json!({"kind": "annotated"})), ("r", json!({"kind": "reported"}))]
    {
        let pod = json!({"labels": labels, "spec": {"size": "5"}, "status": {"size": "0"}});
        let mut draft = bench.draft("a", name, pod).value;
        draft["metadata"]["annotations"] = json!({"size": "0"});
        let key = ObjectKey::new(GroupResource::core("pods"), "a", name);
        bench.write(key, WriteKind::Create(Draft::new(draft).unwrap()), false).unwrap();
    }
    let mut report = |name: &str, change: &dyn Fn(&mut Value)| {
        let key = ObjectKey::new(GroupResource::core("pods"), "a", name);
        let mut value = bench.desk.get(&key).unwrap().value();
        change(&mut value);
        let draft = Draft::new(value).unwrap();
        bench.write(key, WriteKind::Update { draft, expect: Expect::default(), status: true }, false).is_ok()
    };
    // A wish beyond the limit is refused, whichever way it comes in.
    assert!(!report("l", &|pod| pod["metadata"]["labels"]["counted"] = "yes".into()));
    assert!(!report("n", &|pod| pod["metadata"]["annotations"]["size"] = "5".into()));
    // What happened has happened, and within the limit anything goes.
    assert!(report("r", &|pod| pod["status"]["size"] = "5".into()));
    assert!(report("n", &|pod| pod["metadata"]["annotations"]["size"] = "1".into()));
    assert!(report("l", &|pod| pod["metadata"]["labels"]["other"] = "label".into()));
    bench.audit();
}
