//! Field sets: which fields of an object somebody owns.
//!
//! The set is kept in the very form it is stored in, `FieldsV1`: a tree of JSON objects whose keys are path elements
//! (`f:name` a field, `k:{"name":"a"}` an item of a keyed list, `v:"a"` an item of a set, `i:0` an index). A node that is
//! empty or holds the key `.` is a member itself; a node with other keys only is merely on the way to members. So reading
//! and writing cost nothing, and the algebra below works on the tree directly.
//!
//! Invariant: every node is a member or leads to one, and a node with `.` has other keys as well.

use serde_json::{Map, Value};

use super::element;

pub(super) type Node = Map<String, Value>;

/// Marks a node as a member although it has children.
pub(super) const SELF: &str = ".";

#[derive(Debug, Clone, Default, PartialEq)]
pub struct FieldSet {
    root: Node,
}

impl FieldSet {
    /// Reads `fieldsV1`. Elements are brought into one spelling, so that equal elements are equal text afterwards;
    /// elements of a kind we do not know are skipped, as their readers in Kubernetes do.
    pub fn read(fields: &Value) -> Result<Self, String> {
        match fields {
            Value::Null => Ok(Self::default()),
            Value::Object(fields) => Ok(Self { root: read_children(fields)? }),
            _ => Err("fieldsV1 must be an object".into()),
        }
    }

    pub fn into_value(self) -> Value {
        Value::Object(self.root)
    }

    pub(super) fn from_root(root: Option<Node>) -> Self {
        let mut root = root.unwrap_or_default();
        root.remove(SELF);
        Self { root }
    }

    pub(super) fn root(&self) -> &Node {
        &self.root
    }

    pub fn is_empty(&self) -> bool {
        self.root.is_empty()
    }

    pub fn union(mut self, other: &FieldSet) -> Self {
        unite(&mut self.root, &other.root);
        self
    }

    /// The members of `self` that are not members of `other`. Only exact members go: taking away a parent leaves its
    /// children.
    pub fn difference(self, other: &FieldSet) -> Self {
        if other.is_empty() {
            return self;
        }
        Self { root: subtract_children(self.root, &other.root) }
    }

    pub fn intersection(&self, other: &FieldSet) -> Self {
        Self { root: intersect_children(&self.root, &other.root) }
    }

    /// Takes away a field and all below it; `path` is a chain of field names.
    pub fn remove_below(&mut self, path: &[&str]) {
        cut(&mut self.root, path);
    }

    /// Takes away one member, not what is below it.
    pub fn remove_member(&mut self, path: &[&str]) {
        uncheck(&mut self.root, path);
    }

    /// Every member as Kubernetes prints paths: `.spec.containers[name="a"].image`. Parents come before deeper levels.
    pub fn paths(&self) -> Vec<String> {
        let mut paths = Vec::new();
        list_paths(&self.root, &mut String::new(), &mut paths);
        paths
    }
}

/// A node while its children are being collected.
#[derive(Debug, Default)]
pub(super) struct Growing {
    pub member: bool,
    pub children: Node,
}

impl Growing {
    pub fn member() -> Self {
        Self { member: true, children: Node::new() }
    }

    /// The finished node, or none when it turned out to hold nothing.
    pub fn finish(mut self) -> Option<Node> {
        if self.children.is_empty() {
            return self.member.then(Node::new);
        }
        if self.member {
            self.children.insert(SELF.into(), Value::Object(Node::new()));
        }
        Some(self.children)
    }

    pub fn insert(&mut self, element: String, child: Growing) {
        if let Some(node) = child.finish() {
            self.children.insert(element, Value::Object(node));
        }
    }
}

pub(super) fn is_member(node: &Node) -> bool {
    node.is_empty() || node.contains_key(SELF)
}

pub(super) fn has_children(node: &Node) -> bool {
    node.len() > usize::from(node.contains_key(SELF))
}

/// The node under an element.
pub(super) fn child<'n>(node: &'n Node, element: &str) -> Option<&'n Node> {
    node.get(element).and_then(Value::as_object)
}

pub(super) fn children(node: &Node) -> impl Iterator<Item = (&String, &Node)> {
    node.iter().filter(|(element, _)| *element != SELF).filter_map(|(element, node)| Some((element, node.as_object()?)))
}

fn read_children(fields: &Node) -> Result<Node, String> {
    let mut out = Growing::default();
    for (key, below) in fields {
        let below = match below {
            Value::Object(below) => read_node(below)?,
            Value::Null => Growing::member(),
            _ => return Err(format!("{key}: expected an object")),
        };
        if key == SELF {
            continue;
        }
        if let Some(element) = element::canonical(key)? {
            out.insert(element, below);
        }
    }
    Ok(out.children)
}

fn read_node(fields: &Node) -> Result<Growing, String> {
    let children = read_children(fields)?;
    Ok(Growing { member: children.is_empty() || fields.contains_key(SELF), children })
}

fn unite(into: &mut Node, other: &Node) {
    for (element, theirs) in children(other) {
        match into.get_mut(element).and_then(Value::as_object_mut) {
            None => {
                into.insert(element.clone(), Value::Object(theirs.clone()));
            }
            Some(ours) => {
                let member = is_member(ours) || is_member(theirs);
                unite(ours, theirs);
                if member && !ours.is_empty() {
                    ours.entry(SELF).or_insert_with(|| Value::Object(Node::new()));
                }
            }
        }
    }
}

fn subtract_children(node: Node, other: &Node) -> Node {
    let mut out = Growing::default();
    for (element, ours) in node {
        let Value::Object(ours) = ours else { continue };
        if element == SELF {
            continue;
        }
        match child(other, &element) {
            None => {
                out.children.insert(element, Value::Object(ours));
            }
            Some(theirs) => {
                let member = is_member(&ours) && !is_member(theirs);
                let children = subtract_children(ours, theirs);
                out.insert(element, Growing { member, children });
            }
        }
    }
    out.children
}

fn intersect_children(a: &Node, b: &Node) -> Node {
    let mut out = Growing::default();
    for (element, ours) in children(a) {
        if let Some(theirs) = child(b, element) {
            let member = is_member(ours) && is_member(theirs);
            out.insert(element.clone(), Growing { member, children: intersect_children(ours, theirs) });
        }
    }
    out.children
}

fn cut(node: &mut Node, path: &[&str]) {
    let [first, rest @ ..] = path else { return };
    let element = format!("f:{first}");
    if rest.is_empty() {
        node.remove(&element);
    } else if let Some(Value::Object(below)) = node.get_mut(&element) {
        let member = is_member(below);
        cut(below, rest);
        settle(node, &element, member);
    }
}

fn uncheck(node: &mut Node, path: &[&str]) {
    let [first, rest @ ..] = path else { return };
    let element = format!("f:{first}");
    let Some(Value::Object(below)) = node.get_mut(&element) else { return };
    if rest.is_empty() {
        below.remove(SELF);
        settle(node, &element, false);
    } else {
        let member = is_member(below);
        uncheck(below, rest);
        settle(node, &element, member);
    }
}

/// Restores the invariant at a node that lost something below it.
fn settle(parent: &mut Node, element: &str, member: bool) {
    let Some(Value::Object(node)) = parent.get_mut(element) else { return };
    if has_children(node) {
        return;
    }
    if member {
        node.clear();
    } else {
        parent.remove(element);
    }
}

fn list_paths(node: &Node, prefix: &mut String, out: &mut Vec<String>) {
    let start = prefix.len();
    for (element, below) in children(node) {
        if is_member(below) {
            element::display_into(prefix, element);
            out.push(prefix.clone());
            prefix.truncate(start);
        }
    }
    for (element, below) in children(node) {
        if has_children(below) {
            element::display_into(prefix, element);
            list_paths(below, prefix, out);
            prefix.truncate(start);
        }
    }
}
