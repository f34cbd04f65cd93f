//! Writes that move a namespace between quotas need more than the right to make them, or whoever may write on his own
//! namespace could walk out of what limits him, or into somebody else's share.
//!
//! What a family asks for is in [`families::Family::rights`]. For labels and annotations that policies select namespaces by, the
//! verb `relabel` on namespaces is asked for here, cluster-wide: a Role in the namespace itself cannot give it. It makes no
//! difference whether they are changed or come with a new namespace.

use std::sync::Arc;

use families::{Change, Denial, Parsed, Picks, Plural, PolicyObject, Right, World};
use rules::{GroupResource, Namespace};
use serde_json::{Value, json};

use super::prepare::CacheWorld;
use super::{Api, ApiError, ApiResult, Call};
use crate::authz::{Attributes, Decision, forbidden};
use crate::core::{ObjectKey, Refused, string_map};

/// The label that every namespace has from the server.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";

impl Api {
    /// Refuses a write whose author lacks a right it needs besides. `old` is none for a new object, `new` for a deleted one.
    pub(super) fn check_moves(
        &self,
        call: &Call,
        key: &ObjectKey,
        old: Option<&Value>,
        new: Option<&Value>,
    ) -> ApiResult<()> {
        let world = CacheWorld(&self.parts().cache);
        let nothing = Value::Null;
        let (resource, namespace, name) = (&key.resource, &*key.namespace, &*key.name);
        let change = Change { resource, namespace, name, old: old.unwrap_or(&nothing), new, origin: &call.origin };
        for right in self.parts().families.iter().flat_map(|family| family.rights(&change, &world)) {
            self.demand(call, key, &right, "")?;
        }
        let (Some(new), true) = (new, resource.is("", "namespaces")) else { return Ok(()) };
        // A new namespace is compared with one that says nothing about itself: what would take a right to be written on that
        // takes the right as well when it is written at once.
        let bare = json!({"metadata": {"labels": {NAME_LABEL: name}}});
        let (before, after) = (seen(name, old.unwrap_or(&bare)), seen(name, new));
        if before == after {
            return Ok(());
        }
        let right =
            Right { verb: "relabel", resource: resource.clone(), namespace: String::new(), name: name.to_owned() };
        let Err(refusal) = self.demand(call, key, &right, "a quota selects namespaces by what would change") else {
            return Ok(());
        };
        if self.picks_change(&before, &after, &world) { Err(refusal) } else { Ok(()) }
    }

    fn demand(&self, call: &Call, key: &ObjectKey, right: &Right, why: &str) -> ApiResult<()> {
        let Right { verb, resource, namespace, name } = right;
        let asked = Attributes::object(verb, &resource.group, &resource.resource, namespace, name);
        match self.parts().rbac.authorize(&call.identity, &asked) {
            Decision::Allowed(_) => Ok(()),
            Decision::Denied { .. } => {
                let message = forbidden(&call.identity, &asked, why);
                Err(ApiError::forbidden_as_said(&key.resource.group, &key.resource.resource, &key.name, message))
            }
        }
    }

    /// Whether some policy picks the namespace in one state and not in the other.
    fn picks_change(&self, before: &Namespace, after: &Namespace, world: &dyn World) -> bool {
        self.parts().families.iter().any(|family| {
            family.manifest().selecting.iter().map(Plural::resource).any(|resource| {
                let make = |object: &Value| -> Parsed {
                    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
                    let (namespace, name) = (text("namespace"), text("name"));
                    let policy = PolicyObject {
                        resource: &resource,
                        namespace: &namespace,
                        name: &name,
                        object,
                        in_force: None,
                    };
                    Arc::new(families::picks(&**family, &policy))
                };
                let picks = world.parsed_everywhere(&resource, &make);
                let picks = picks.iter().filter_map(|made| made.downcast_ref::<Option<Picks>>()?.as_ref());
                picks.into_iter().any(|picks| picks(before) != picks(after))
            })
        })
    }

    /// A refusal as its reader may see it. The numbers of a quota in another namespace are for those who may read that quota.
    pub(super) fn for_reader(&self, call: &Call, key: &ObjectKey, refused: Refused) -> Refused {
        let Refused::Denied(mut denials) = refused else { return refused };
        for denial in &mut denials {
            let foreign = !denial.namespace.is_empty() && denial.namespace != key.namespace && !denial.lines.is_empty();
            if foreign && !self.may_read(call, denial) {
                let accounts: Vec<&str> = denial.lines.iter().map(|line| &*line.account).collect();
                denial.message = Some(format!("exceeded quota of a namespace above: {}", accounts.join(", ")));
                denial.lines.clear();
            }
        }
        Refused::Denied(denials)
    }

    fn may_read(&self, call: &Call, denial: &Denial) -> bool {
        let GroupResource { group, resource } = &denial.resource;
        let asked = Attributes::object("get", group, resource, &denial.namespace, &denial.name);
        self.parts().rbac.authorize(&call.identity, &asked).is_allowed()
    }
}

/// A namespace as selectors see it.
fn seen(name: &str, namespace: &Value) -> Namespace {
    Namespace {
        name: name.into(),
        labels: string_map(namespace, "labels"),
        annotations: string_map(namespace, "annotations"),
    }
}
