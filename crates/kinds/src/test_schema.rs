//! A handful of built-in kinds, cut down to the fields whose merging is interesting, for the tests of patches and apply.
//! Written as OpenAPI in YAML, because that is how a reader knows these facts.

use serde_json::Value;

use crate::schema::{Catalogue, Field, List, ListType, Object, Patch, Shape, Type, TypeId, Width};

pub fn yaml(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap_or_else(|why| panic!("{why}\n{text}"))
}

/// The catalogue of [`KINDS`] and the type of one kind.
pub fn kind(name: &str) -> (Catalogue, TypeId) {
    let mut catalogue = Catalogue::new();
    let kinds = yaml(KINDS);
    let id = build(&mut catalogue, &kinds, &kinds[name]);
    (catalogue, id)
}

fn build(catalogue: &mut Catalogue, kinds: &Value, schema: &Value) -> TypeId {
    if let Some(name) = schema["use"].as_str() {
        return build(catalogue, kinds, &kinds[name]);
    }
    let atomic = schema["x-kubernetes-map-type"] == "atomic";
    let shape = if let Some(properties) = schema["properties"].as_object() {
        let fields = properties.iter().map(|(name, property)| {
            let mut field = Field::new(name.as_str(), build(catalogue, kinds, property));
            let strategies = property["x-kubernetes-patch-strategy"].as_str().unwrap_or("");
            let has = |word: &str| strategies.split(',').any(|strategy| strategy == word);
            field.patch = Patch {
                merge: has("merge"),
                replace: has("replace"),
                retain_keys: has("retainKeys"),
                merge_key: property["x-kubernetes-patch-merge-key"].as_str().map(Into::into),
            };
            field
        });
        let mut object = Object::new(fields.collect());
        object.atomic = atomic;
        Shape::Object(object)
    } else if schema.get("additionalProperties").is_some() {
        Shape::Map { value: build(catalogue, kinds, &schema["additionalProperties"]), atomic }
    } else if schema.get("items").is_some() {
        let keys = || schema["x-kubernetes-list-map-keys"].as_array().into_iter().flatten();
        let list_type = match schema["x-kubernetes-list-type"].as_str() {
            Some("set") => ListType::Set,
            Some("map") => ListType::Map { keys: keys().filter_map(Value::as_str).map(Into::into).collect() },
            _ => ListType::Atomic,
        };
        Shape::List(List { item: build(catalogue, kinds, &schema["items"]), list_type })
    } else {
        match schema["type"].as_str() {
            Some("string") => Shape::String,
            Some("integer") => Shape::Integer(Width::I64),
            Some("boolean") => Shape::Boolean,
            Some("quantity") => Shape::Quantity,
            Some("intOrString") => Shape::IntOrString,
            _ => Shape::Any,
        }
    };
    let mut ty = Type::new(shape);
    ty.default = schema.get("default").cloned();
    catalogue.add(ty)
}

const KINDS: &str = r#"
Meta:
  properties:
    name: {type: string}
    namespace: {type: string}
    uid: {type: string}
    resourceVersion: {type: string}
    generation: {type: integer}
    creationTimestamp: {type: string}
    labels: {additionalProperties: {type: string}}
    annotations: {additionalProperties: {type: string}}
    managedFields: {items: {}}
    finalizers:
      items: {type: string}
      x-kubernetes-list-type: set
      x-kubernetes-patch-strategy: merge
    ownerReferences:
      items:
        x-kubernetes-map-type: atomic
        properties: {uid: {type: string}, name: {type: string}, kind: {type: string}, controller: {type: boolean}}
      x-kubernetes-list-type: map
      x-kubernetes-list-map-keys: [uid]
      x-kubernetes-patch-strategy: merge
      x-kubernetes-patch-merge-key: uid
Quantities: {additionalProperties: {type: quantity}}
Container:
  properties:
    name: {type: string}
    image: {type: string}
    args: {items: {type: string}, x-kubernetes-list-type: atomic}
    env:
      items:
        properties: {name: {type: string}, value: {type: string}}
      x-kubernetes-list-type: map
      x-kubernetes-list-map-keys: [name]
      x-kubernetes-patch-strategy: merge
      x-kubernetes-patch-merge-key: name
    ports:
      items:
        properties:
          containerPort: {type: integer}
          hostPort: {type: integer}
          name: {type: string}
          protocol: {type: string, default: TCP}
      x-kubernetes-list-type: map
      x-kubernetes-list-map-keys: [containerPort, protocol]
      x-kubernetes-patch-strategy: merge
      x-kubernetes-patch-merge-key: containerPort
    resources: {properties: {requests: {use: Quantities}, limits: {use: Quantities}}}
PodSpec:
  properties:
    nodeName: {type: string}
    restartPolicy: {type: string}
    activeDeadlineSeconds: {type: integer}
    nodeSelector: {additionalProperties: {type: string}, x-kubernetes-map-type: atomic}
    containers:
      items: {use: Container}
      x-kubernetes-list-type: map
      x-kubernetes-list-map-keys: [name]
      x-kubernetes-patch-strategy: merge
      x-kubernetes-patch-merge-key: name
    tolerations:
      items: {properties: {key: {type: string}, effect: {type: string}}}
      x-kubernetes-list-type: atomic
    volumes:
      items:
        properties:
          name: {type: string}
          emptyDir: {properties: {medium: {type: string}}}
          hostPath: {properties: {path: {type: string}}}
      x-kubernetes-list-type: map
      x-kubernetes-list-map-keys: [name]
      x-kubernetes-patch-strategy: merge,retainKeys
      x-kubernetes-patch-merge-key: name
Pod:
  properties:
    apiVersion: {type: string}
    kind: {type: string}
    metadata: {use: Meta}
    spec: {use: PodSpec}
    status:
      properties:
        phase: {type: string}
        conditions:
          items: {properties: {type: {type: string}, status: {type: string}}}
          x-kubernetes-list-type: map
          x-kubernetes-list-map-keys: [type]
          x-kubernetes-patch-strategy: merge
          x-kubernetes-patch-merge-key: type
Deployment:
  properties:
    apiVersion: {type: string}
    kind: {type: string}
    metadata: {use: Meta}
    spec:
      properties:
        replicas: {type: integer}
        paused: {type: boolean}
        strategy:
          x-kubernetes-patch-strategy: retainKeys
          properties:
            type: {type: string}
            rollingUpdate: {properties: {maxSurge: {type: intOrString}, maxUnavailable: {type: intOrString}}}
        selector:
          x-kubernetes-map-type: atomic
          properties: {matchLabels: {additionalProperties: {type: string}}}
        template: {properties: {metadata: {use: Meta}, spec: {use: PodSpec}}}
    status: {properties: {replicas: {type: integer}}}
Service:
  properties:
    apiVersion: {type: string}
    kind: {type: string}
    metadata: {use: Meta}
    spec:
      properties:
        type: {type: string}
        selector: {additionalProperties: {type: string}, x-kubernetes-map-type: atomic}
        ports:
          items:
            properties:
              name: {type: string}
              port: {type: integer}
              protocol: {type: string, default: TCP}
              targetPort: {type: intOrString}
              nodePort: {type: integer}
          x-kubernetes-list-type: map
          x-kubernetes-list-map-keys: [port, protocol]
          x-kubernetes-patch-strategy: merge
          x-kubernetes-patch-merge-key: port
ResourceQuota:
  properties:
    apiVersion: {type: string}
    kind: {type: string}
    metadata: {use: Meta}
    spec:
      properties:
        hard: {use: Quantities}
        scopes: {items: {type: string}, x-kubernetes-list-type: atomic}
    status: {properties: {hard: {use: Quantities}, used: {use: Quantities}}}
"#;
