//! ServiceQuotaDefinition: what can be limited, in which unit, by which dimensions; and all of them together, the catalog.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kinds::field_error::{FieldError, Path, Reason};
use kinds::fields::{given, items, text};
use quantity::Amount;
use serde_json::Value;

use super::claim::NAME_BYTES_MAX;
use super::claim_status::granted_otherwise;
use super::metered::{Source, SourceKind};
use super::selector::check_key;
use super::units::Unit;
use super::{DEFINITIONS, ORGANIZATION_KEY, PROJECT_KEY};
use crate::{Change, Parsed, Refusal, Sources, View, World};

/// Dimensions of one definition.
const DIMENSIONS_MAX: usize = 32;
const DESCRIPTION_BYTES_MAX: usize = 500;

/// A definition, read.
#[derive(Clone, Debug)]
pub struct Definition {
    /// The object's own name.
    pub object: String,
    pub resource_name: String,
    pub unit_name: String,
    pub unit: Unit,
    pub default_limit: Option<Amount>,
    pub dimensions: BTreeSet<String>,
    pub source: Option<Source>,
    pub sink: Option<Sink>,
}

/// Who is told of usage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sink {
    pub to: Source,
    /// As it is written, to be handed on.
    pub written: Value,
}

impl Sink {
    /// Reads `spec.usageSink`; none where nobody is told.
    pub fn read(sink: Option<&Value>, path: &Path<'_>, errors: &mut Vec<FieldError>) -> Option<Sink> {
        let to = Source::read(sink, path, errors)?;
        if to.kind == SourceKind::Prometheus {
            errors.push(FieldError::not_supported(path.child("type"), "Prometheus", &["Amberflo", "OpenMeter"]));
        }
        Some(Sink { to, written: sink.cloned().unwrap_or_default() })
    }
}

impl Definition {
    pub fn read(object: &Value) -> Result<Definition, Vec<FieldError>> {
        let mut errors = Vec::new();
        let spec = Path::new("spec");
        let service = spec.child("serviceRef");
        if text(object, &["spec", "serviceRef", "name"]).is_empty() {
            errors.push(FieldError::required(service.child("name"), "the service that owns the definition"));
        }
        let resource_name = text(object, &["spec", "resourceName"]);
        check_resource_name(resource_name, &spec.child("resourceName"), &mut errors);
        if text(object, &["spec", "description"]).len() > DESCRIPTION_BYTES_MAX {
            errors.push(FieldError::too_long(spec.child("description"), DESCRIPTION_BYTES_MAX));
        }
        let unit_name = text(object, &["spec", "unit"]);
        if unit_name.is_empty() {
            errors.push(FieldError::required(spec.child("unit"), "what a number without a suffix counts"));
        }
        let unit = Unit::named(unit_name);
        let default = spec.child("defaultLimit");
        let default_text = given(object, &["spec", "defaultLimit", "value"]).map(as_text).unwrap_or_default();
        let mut default_limit = None;
        if given(object, &["spec", "defaultLimit"]).is_some() {
            match unit.read(&default_text) {
                Ok(amount) => default_limit = Some(amount),
                Err(why) => errors.push(FieldError::invalid(default.child("value"), default_text.as_str(), why)),
            }
        }
        let allowed = spec.child("allowedDimensions");
        let listed = items(object, &["spec", "allowedDimensions"]);
        if listed.len() > DIMENSIONS_MAX {
            errors.push(FieldError::too_many(allowed, listed.len(), DIMENSIONS_MAX));
        }
        let mut dimensions = BTreeSet::new();
        for (index, key) in listed.iter().take(DIMENSIONS_MAX).enumerate() {
            let key = key.as_str().unwrap_or_default();
            check_key(key, &allowed.index(index), &mut errors);
            if !dimensions.insert(key.to_owned()) {
                errors.push(FieldError::duplicate(allowed.index(index), key));
            }
        }
        let source = Source::read(given(object, &["spec", "usageSource"]), &spec.child("usageSource"), &mut errors);
        let sink = Sink::read(given(object, &["spec", "usageSink"]), &spec.child("usageSink"), &mut errors);
        if !errors.is_empty() {
            return Err(errors);
        }
        Ok(Definition {
            object: text(object, &["metadata", "name"]).into(),
            resource_name: resource_name.into(),
            unit_name: unit_name.into(),
            unit,
            default_limit,
            dimensions,
            source,
            sink,
        })
    }

    /// Whether requests and buckets may speak of a dimension. Those of scope are everybody's.
    pub fn allows(&self, key: &str) -> bool {
        is_scope(key) || self.dimensions.contains(key)
    }
}

/// Dimensions whose value is the entity's, and nobody's to give.
pub fn is_scope(key: &str) -> bool {
    key == PROJECT_KEY || key == ORGANIZATION_KEY
}

/// A field that may be written as text or as a number.
pub fn as_text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// `<dns group>/<path>`, as `compute.datumapis.com/instances/cpu`.
pub fn check_resource_name(name: &str, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    if name.is_empty() {
        errors.push(FieldError::required(path, "such as compute.datumapis.com/instances/cpu"));
        return;
    }
    if name.len() > NAME_BYTES_MAX {
        errors.push(FieldError::too_long(path, NAME_BYTES_MAX));
        return;
    }
    let part = |part: &str| {
        let is_good = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        !part.is_empty() && part.bytes().all(is_good)
    };
    let good = name.split_once('/').is_some_and(|(group, rest)| {
        rules::selector::dns_subdomain_problems(group).is_empty() && rest.split('/').all(part)
    });
    if !good {
        let why = "must be a group, a slash and a path, such as compute.datumapis.com/instances/cpu";
        errors.push(FieldError::invalid(path, name, why));
    }
}

/// What a stored definition may not become.
pub fn validate(object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Definition::read(object).err().unwrap_or_default();
    let spec = Path::new("spec");
    for field in ["resourceName", "unit"] {
        let said = |object| text(object, &["spec", field]).to_owned();
        if let Some(old) = old.filter(|old| said(old) != said(object)) {
            let why = format!("is {:?} and cannot be changed: amounts that are granted would mean others", said(old));
            errors.push(FieldError::invalid(spec.child(field), said(object), why));
        }
    }
    errors
}

/// A resource name has one definition, and one meaning for as long as anything of it is granted, also where it is defined again.
pub fn check(change: &Change<'_>, view: &dyn View) -> Result<(), Refusal> {
    let Some(new) = change.new else { return Ok(()) };
    let name = text(new, &["spec", "resourceName"]);
    if let Some(known) = Catalog::of(view).get(name).filter(|known| known.object != change.name) {
        let why = format!("resource name {name:?} is defined by ServiceQuotaDefinition {:?} already", known.object);
        return Err(Refusal::conflict(why));
    }
    let unit = text(new, &["spec", "unit"]);
    let is_new = change.old.is_null();
    match is_new.then(|| granted_otherwise(name, Unit::named(unit), view)).flatten() {
        Some((was, claim)) => Err(Refusal::conflict(format!(
            "claims such as {}/{} were granted {name:?} in {was:?}, and in {unit:?} they would have another amount: \
             define it in {was:?}, or release them first",
            claim.namespace, claim.name
        ))),
        None => Ok(()),
    }
}

/// Reason and message of `DefinitionValid` where it is false.
pub fn invalid_reason(errors: &[FieldError]) -> &'static str {
    let is_missing = |error: &FieldError| error.reason == Reason::Required;
    if errors.iter().any(is_missing) { "MissingRequiredField" } else { "InvalidFormat" }
}

/// All definitions that are ready, by resource name.
#[derive(Debug, Default)]
pub struct Catalog {
    by_name: BTreeMap<String, Arc<Definition>>,
}

impl Catalog {
    pub fn of(world: &dyn World) -> Arc<Catalog> {
        let resource = DEFINITIONS.resource();
        let resources = [resource.clone()];
        let sources = Sources { resources: &resources, ledger: false };
        let made = world.derived("datum catalog", sources, &|| {
            let read = |object: &Value| -> Parsed { Arc::new(Definition::read(object).ok().map(Arc::new)) };
            let parsed = world.parsed_everywhere(&resource, &read);
            let ready = parsed.iter().filter_map(|one| one.downcast_ref::<Option<Arc<Definition>>>()?.clone());
            Arc::new(Catalog::new(ready)) as Parsed
        });
        made.downcast().unwrap_or_default()
    }

    /// The definitions among these objects.
    pub fn read(objects: &[Value]) -> Catalog {
        Catalog::new(objects.iter().filter_map(|object| Definition::read(object).ok().map(Arc::new)))
    }

    fn new(definitions: impl Iterator<Item = Arc<Definition>>) -> Catalog {
        let mut by_name: BTreeMap<String, Arc<Definition>> = BTreeMap::new();
        for one in definitions {
            // Of two that say the same name, which no check lets in, the first by its own name is meant.
            by_name.entry(one.resource_name.clone()).or_insert(one);
        }
        Catalog { by_name }
    }

    pub fn get(&self, resource_name: &str) -> Option<&Arc<Definition>> {
        self.by_name.get(resource_name)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Arc<Definition>> {
        self.by_name.values()
    }

    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }
}
