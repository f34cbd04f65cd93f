//! AdmissionReviews (admission.k8s.io/v1): read, turned into what the core is asked, and answered.

use engine::{Draft, ObjectKey};
use families::{Identity, Origin};
use kinds::bounds::{DEPTH_MAX, VALUES_MAX, is_text_deeper};
use rules::GroupResource;
use rules::cel::Foresight;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::core::{Review, Wanted};
use crate::sent::{self, Named};
use crate::sight::version_of;
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
    /// What was asked for, where it was converted into what is counted.
    #[serde(default)]
    request_resource: Option<Resource>,
    #[serde(default)]
    object: Option<Box<RawValue>>,
    #[serde(default)]
    old_object: Option<Box<RawValue>>,
    #[serde(default)]
    dry_run: Option<bool>,
    #[serde(default)]
    user_info: UserInfo,
}

#[derive(Debug, Deserialize)]
struct Resource {
    group: String,
    #[serde(default)]
    version: String,
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
        match self.operation.as_str() {
            "CREATE" | "UPDATE" => {}
            "DELETE" if self.sub_resource.is_empty() => return self.into_end(now_ms),
            _ => return Ok(None),
        }
        let object = read(self.object.take().as_deref())?;
        let metadata = |field: &str| object["metadata"][field].as_str().filter(|text| !text.is_empty());
        let name = metadata("name").unwrap_or(&self.name);
        if name.is_empty() {
            return Err(No::bad_request("the object has no name, so that it could not be found again"));
        }
        let base = match self.operation.as_str() {
            "CREATE" => 0,
            _ => version_of_text(self.old_object.as_deref())?,
        };
        let resource = GroupResource::new(&self.resource.group, &self.resource.resource);
        // Of a namespace it is said that it is in itself.
        let namespace = if resource.is("", "namespaces") { "" } else { &*self.namespace };
        let key = ObjectKey::new(resource, namespace, name);
        let wanted = match self.sub_resource.as_str() {
            "scale" => {
                let uid = metadata("uid").and_then(engine::parse_uid);
                let replicas = object["spec"]["replicas"].clone();
                let version = self.request_resource.as_ref().unwrap_or(&self.resource).version.clone();
                Wanted::Replicas {
                    version,
                    uid: uid.ok_or_else(|| No::bad_request("the scale has no metadata.uid"))?,
                    replicas: if replicas.is_null() { json!(0) } else { replicas },
                }
            }
            _ => {
                let draft = Draft::new(object);
                Wanted::Object(draft.map_err(|error| No::bad_request(format!("this cannot be counted: {error}")))?)
            }
        };
        let origin = self.origin();
        let dry_run = self.dry_run.unwrap_or(false);
        Ok(Some(Review { key, wanted, base, dry_run, now_ms, foresight: Foresight::Asked, origin }))
    }

    /// Whether an object may go: in the version in which it is there.
    fn into_end(mut self, now_ms: i64) -> Result<Option<Review>, No> {
        let base = version_of_text(self.old_object.as_deref())?;
        let old = self.old_object.take().and_then(|text| serde_json::from_str::<Named>(text.get()).ok());
        let names = old.map(|old| old.metadata).unwrap_or_default();
        let uid = names.uid.as_deref().and_then(engine::parse_uid);
        let uid = uid.ok_or_else(|| No::bad_request("the object that is to go has no metadata.uid"))?;
        // Where a whole collection goes, the call names none of it.
        let name = names.name.as_ref().unwrap_or(&self.name);
        let resource = GroupResource::new(&self.resource.group, &self.resource.resource);
        let key = ObjectKey::new(resource, &self.namespace, name);
        let (wanted, origin, dry_run) = (Wanted::Gone { uid }, self.origin(), self.dry_run.unwrap_or(false));
        Ok(Some(Review { key, wanted, base, dry_run, now_ms, foresight: Foresight::None, origin }))
    }

    fn origin(&mut self) -> Origin {
        let UserInfo { username, groups } = std::mem::take(&mut self.user_info);
        let identity = Identity { user: username, groups, ..Identity::default() };
        // Nobody from outside is a part of this program, whatever he is called.
        let identity = if identity.is_internal() { Identity::anonymous() } else { identity };
        Origin { identity: identity.into(), ..Origin::default() }
    }
}

/// What nests deeper, or has more parts, than anything that is counted here is refused where it is counted.
fn read(object: Option<&RawValue>) -> Result<Value, No> {
    let text = object.map_or("null", RawValue::get);
    let parts = text.bytes().filter(|byte| matches!(byte, b',' | b'{' | b'[')).count();
    if parts > VALUES_MAX && has_more_values(text, VALUES_MAX) {
        return Err(No::bad_request(format!("the object has more than {VALUES_MAX} values, and is not counted")));
    }
    if is_text_deeper(text.as_bytes(), DEPTH_MAX) {
        return Err(No::bad_request(format!("the object nests deeper than {DEPTH_MAX} levels, and is not counted")));
    }
    sent::read(text).map_err(|error| No::bad_request(format!("the object cannot be read: {error}")))
}

/// Whether a text that is JSON has more values than this, told by what stands between and around them.
fn has_more_values(text: &str, most: usize) -> bool {
    let (mut values, mut in_string) = (0_usize, false);
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' if in_string => {
                bytes.next();
            }
            b'"' => in_string = !in_string,
            b',' | b'{' | b'[' if !in_string => values += 1,
            _ => {}
        }
    }
    values > most
}

/// Of the old object nothing else is looked at.
fn version_of_text(object: Option<&RawValue>) -> Result<u64, No> {
    let named = object.and_then(|text| serde_json::from_str::<Named>(text.get()).ok());
    let version = named.and_then(|named| named.metadata.resource_version).unwrap_or_default();
    let object = json!({"metadata": {"resourceVersion": version}});
    version_of(&object).map_err(|error| No::bad_request(format!("the old object {error}")))
}

/// The answer to a call.
pub fn answer(call: &str, said: Result<(), No>) -> Value {
    let response = match said {
        Ok(()) => json!({"uid": call, "allowed": true}),
        Err(no) => json!({"uid": call, "allowed": false, "status": no.to_status()}),
    };
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
}
