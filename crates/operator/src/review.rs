//! AdmissionReviews (admission.k8s.io/v1): read, turned into what the core is asked, and answered.

use engine::{Draft, ObjectKey};
use families::{Identity, Origin};
use rules::GroupResource;
use rules::cel::Foresight;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::core::{Review, Wanted};
use crate::sight::{slim, version_of};
use crate::words::No;

#[derive(Deserialize)]
struct Envelope {
    request: Option<Request>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Request {
    /// Of the call; the object has another.
    pub uid: String,
    resource: Resource,
    #[serde(default)]
    sub_resource: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    namespace: String,
    operation: String,
    #[serde(default)]
    object: Value,
    #[serde(default)]
    old_object: Value,
    #[serde(default)]
    dry_run: Option<bool>,
    #[serde(default)]
    user_info: UserInfo,
}

#[derive(Debug, Deserialize)]
struct Resource {
    group: String,
    resource: String,
}

#[derive(Debug, Default, Deserialize)]
struct UserInfo {
    #[serde(default)]
    username: String,
    #[serde(default)]
    groups: Vec<String>,
}

impl Request {
    pub fn read(body: &[u8]) -> Result<Request, String> {
        let envelope: Envelope =
            serde_json::from_slice(body).map_err(|error| format!("this is no AdmissionReview: {error}"))?;
        envelope.request.ok_or_else(|| "the AdmissionReview has no request".into())
    }

    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// What the core is to decide; none where nothing can be taken that was not there.
    pub fn into_review(mut self, now_ms: i64) -> Result<Option<Review>, No> {
        if self.operation != "CREATE" && self.operation != "UPDATE" {
            return Ok(None);
        }
        let object = self.object.take();
        let metadata = |field: &str| object["metadata"][field].as_str().filter(|text| !text.is_empty());
        let name = metadata("name").unwrap_or(&self.name);
        if name.is_empty() {
            return Err(No::bad_request("the object has no name, so that it could not be found again"));
        }
        let base = match self.operation.as_str() {
            "CREATE" => 0,
            _ => version_of(&self.old_object).map_err(|error| No::bad_request(format!("the old object {error}")))?,
        };
        let resource = GroupResource::new(&self.resource.group, &self.resource.resource);
        // Of a namespace it is said that it is in itself.
        let namespace = if resource.is("", "namespaces") { "" } else { &*self.namespace };
        let key = ObjectKey::new(resource, namespace, name);
        let wanted = match self.sub_resource.as_str() {
            "scale" => {
                let uid = metadata("uid").and_then(engine::parse_uid);
                let replicas = object["spec"]["replicas"].clone();
                Wanted::Replicas {
                    uid: uid.ok_or_else(|| No::bad_request("the scale has no metadata.uid"))?,
                    replicas: if replicas.is_null() { json!(0) } else { replicas },
                }
            }
            _ => {
                let mut object = object;
                slim(&mut object);
                let draft = Draft::new(object);
                Wanted::Object(draft.map_err(|error| No::bad_request(format!("this cannot be counted: {error}")))?)
            }
        };
        let UserInfo { username, groups } = std::mem::take(&mut self.user_info);
        let identity = Identity { user: username, groups, ..Identity::default() };
        // Nobody from outside is a part of this program, whatever he is called.
        let identity = if identity.is_internal() { Identity::anonymous() } else { identity };
        let origin = Origin { identity: identity.into(), ..Origin::default() };
        let dry_run = self.dry_run.unwrap_or(false);
        Ok(Some(Review { key, wanted, base, dry_run, now_ms, foresight: Foresight::Asked, origin }))
    }
}

/// The answer to a call.
pub fn answer(call: &str, said: Result<(), No>) -> Value {
    let response = match said {
        Ok(()) => json!({"uid": call, "allowed": true}),
        Err(no) => json!({"uid": call, "allowed": false, "status": no.to_status()}),
    };
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
}
