//! HorizontalPodAutoscalers: stored and shown; nothing here scales.

use serde_json::{Value, json};

use super::Strategy;
use super::fill::{absent, given, within};

pub struct Autoscalers;

/// How fast replicas may be added when nobody says.
fn scale_up() -> Value {
    json!({
        "stabilizationWindowSeconds": 0,
        "selectPolicy": "Max",
        "policies": [
            {"type": "Pods", "value": 4, "periodSeconds": 15},
            {"type": "Percent", "value": 100, "periodSeconds": 15},
        ],
    })
}

/// How fast they may be taken away. The window is left to whoever scales.
fn scale_down() -> Value {
    json!({"selectPolicy": "Max", "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}]})
}

impl Strategy for Autoscalers {
    fn default(&self, object: &mut Value) {
        let Some(spec) = within(object, "spec") else { return };
        absent(spec, "minReplicas", 1);
        if spec.get("metrics").and_then(Value::as_array).is_none_or(Vec::is_empty) {
            let target = json!({"type": "Utilization", "averageUtilization": 80});
            spec["metrics"] = json!([{"type": "Resource", "resource": {"name": "cpu", "target": target}}]);
        }
        let Some(behavior) = given(spec, "behavior") else { return };
        for (direction, defaults) in [("scaleUp", scale_up()), ("scaleDown", scale_down())] {
            let (Some(rules), Value::Object(defaults)) = (within(behavior, direction), defaults) else { continue };
            for (field, value) in defaults {
                absent(rules, &field, value);
            }
        }
    }

    fn prepare_create(&self, object: &mut Value) {
        object["status"] = json!({"desiredReplicas": 0, "currentMetrics": null});
    }
}
