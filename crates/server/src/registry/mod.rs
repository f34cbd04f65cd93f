//! Which resources are served: the built-in table and whatever CustomResourceDefinitions add.
//!
//! Readers take a [`Snapshot`] without a lock; a changed definition makes a new one. Start reading at [`Served`].

mod custom;
mod discovery;
mod follow;
mod names;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use families::VirtualResource;
use kinds::schema::{Catalogue, TypeId};
use kinds::strategies::{self, Strategy};
use kinds::structural::Structural;
use rules::GroupResource;

pub use custom::{CustomKind, PrinterColumn, ScalePaths, define};
pub use discovery::{Discovery, Document};
pub use follow::follow;
pub use names::{Taken, is_established};

/// One resource at one version, with all that serving it takes.
pub struct Served {
    /// Under which name objects are stored; the same for every version.
    pub resource: GroupResource,
    pub version: Arc<str>,
    pub kind: Arc<str>,
    pub list_kind: Arc<str>,
    pub singular: Arc<str>,
    pub short_names: Vec<Arc<str>>,
    pub categories: Vec<Arc<str>>,
    pub namespaced: bool,
    pub verbs: Vec<&'static str>,
    pub subresources: Vec<ServedSubresource>,
    pub schema: Schema,
    pub strategy: &'static dyn Strategy,
    /// Set for custom resources.
    pub custom: Option<Arc<CustomKind>>,
    /// How a resource is printed that is neither built in nor defined.
    pub printed: Vec<PrinterColumn>,
    /// Set when the objects are those of another resource under other names.
    pub alias: Option<Alias>,
}

/// One kind of object with two addresses.
#[derive(Clone)]
pub struct Alias {
    /// Where the objects are stored.
    pub resource: GroupResource,
    pub to_stored: fn(&mut serde_json::Value),
    pub from_stored: fn(&mut serde_json::Value),
}

/// Something below an object that is read or written by itself.
pub struct ServedSubresource {
    pub name: Arc<str>,
    pub group: Arc<str>,
    pub version: Arc<str>,
    pub kind: Arc<str>,
    pub verbs: Vec<&'static str>,
    pub schema: Schema,
}

/// A type and the catalogue it lies in.
#[derive(Clone)]
pub struct Schema {
    pub catalogue: Shelved,
    pub ty: TypeId,
}

/// A catalogue that is either part of the program or belongs to a custom resource.
#[derive(Clone)]
pub enum Shelved {
    Builtin(&'static Catalogue),
    Custom(Arc<Structural>),
}

impl std::ops::Deref for Shelved {
    type Target = Catalogue;

    fn deref(&self) -> &Catalogue {
        match self {
            Shelved::Builtin(catalogue) => catalogue,
            Shelved::Custom(structural) => structural.catalogue(),
        }
    }
}

impl Served {
    /// `v1`, or `apps/v1`.
    pub fn api_version(&self) -> String {
        api_version(&self.resource.group, &self.version)
    }

    /// The resource under which objects are stored.
    pub fn storage(&self) -> &GroupResource {
        self.alias.as_ref().map_or(&self.resource, |alias| &alias.resource)
    }

    pub fn subresource(&self, name: &str) -> Option<&ServedSubresource> {
        self.subresources.iter().find(|one| *one.name == *name)
    }

    pub fn has_status(&self) -> bool {
        self.subresource("status").is_some()
    }

    /// Whether objects are kept, unlike reviews, which are questions.
    pub fn is_stored(&self) -> bool {
        self.verbs.contains(&"list")
    }
}

pub(crate) fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

/// (group, version) → plural → what is served.
type ByGroupVersion = HashMap<(Arc<str>, Arc<str>), BTreeMap<Arc<str>, Arc<Served>>>;

/// Everything served at one moment.
pub struct Snapshot {
    resources: ByGroupVersion,
    discovery: OnceLock<Discovery>,
}

impl Snapshot {
    pub fn resolve(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Served>> {
        self.resources.get(&(group.into(), version.into()))?.get(plural)
    }

    pub fn by_kind(&self, group: &str, version: &str, kind: &str) -> Option<&Arc<Served>> {
        self.resources.get(&(group.into(), version.into()))?.values().find(|served| *served.kind == *kind)
    }

    /// Every resource, by group, version and plural.
    pub fn all(&self) -> Vec<&Arc<Served>> {
        let mut all: Vec<_> = self.resources.values().flat_map(BTreeMap::values).collect();
        all.sort_by(|a, b| {
            (&a.resource.group, &a.version, &a.resource.resource).cmp(&(
                &b.resource.group,
                &b.version,
                &b.resource.resource,
            ))
        });
        all
    }

    /// The served versions of a stored resource, the preferred one first.
    pub fn versions(&self, resource: &GroupResource) -> Vec<&Arc<Served>> {
        let mut versions: Vec<_> = self
            .resources
            .values()
            .filter_map(|all| all.get(&resource.resource))
            .filter(|s| s.resource == *resource)
            .collect();
        versions.sort_by(|a, b| discovery::newer_first(&a.version, &b.version));
        versions
    }

    /// Any served version of a stored resource, the preferred one first.
    pub fn of(&self, resource: &GroupResource) -> Option<&Arc<Served>> {
        self.versions(resource).first().copied()
    }

    pub fn discovery(&self) -> &Discovery {
        self.discovery.get_or_init(|| Discovery::of(self))
    }
}

/// What one definition adds, and the names it holds.
#[derive(Default)]
struct Definition {
    served: Vec<Arc<Served>>,
    group: Arc<str>,
    /// `status.acceptedNames`; null for what is not defined but made.
    names: serde_json::Value,
}

/// The current snapshot, and the definitions behind it.
pub struct Registry {
    current: ArcSwap<Snapshot>,
    definitions: parking_lot::Mutex<BTreeMap<Arc<str>, Definition>>,
}

impl Default for Registry {
    fn default() -> Self {
        Self::new()
    }
}

impl Registry {
    pub fn new() -> Self {
        let definitions = BTreeMap::new();
        let current = ArcSwap::from_pointee(snapshot(&definitions));
        Self { current, definitions: parking_lot::Mutex::new(definitions) }
    }

    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.current.load_full()
    }

    pub fn resolve(&self, group: &str, version: &str, plural: &str) -> Option<Arc<Served>> {
        self.current.load().resolve(group, version, plural).cloned()
    }

    /// Adds a resource whose objects are made when somebody asks for them.
    pub fn add_virtual(&self, resource: &VirtualResource) {
        let Ok(structural) = strategies::definitions::structural(&serde_json::Value::Null, 0) else { return };
        let structural = Arc::new(structural);
        let served = Served {
            resource: GroupResource::new(resource.group, resource.resource),
            version: resource.version.into(),
            kind: resource.kind.into(),
            list_kind: format!("{}List", resource.kind).into(),
            singular: resource.singular.into(),
            short_names: resource.short.iter().map(|&name| name.into()).collect(),
            categories: Vec::new(),
            namespaced: true,
            verbs: resource.verbs.to_vec(),
            subresources: Vec::new(),
            schema: Schema { ty: structural.root(), catalogue: Shelved::Custom(structural) },
            strategy: &strategies::Plain,
            custom: None,
            printed: resource.columns.iter().map(|(name, path)| PrinterColumn::text(name, path)).collect(),
            alias: None,
        };
        // No definition has a slash in its name.
        let name = format!("virtual/{}", served.resource);
        let mut definitions = self.definitions.lock();
        let group = served.resource.group.clone();
        let definition = Definition { served: vec![Arc::new(served)], group, names: serde_json::Value::Null };
        definitions.insert(name.into(), definition);
        self.current.store(Arc::new(snapshot(&definitions)));
    }

    /// Takes note of a CustomResourceDefinition that was stored, or removed when `definition` is `None`.
    pub fn definition_changed(&self, name: &str, definition: Option<&serde_json::Value>) {
        let defined = definition.map(|definition| {
            let group: Arc<str> = definition["spec"]["group"].as_str().unwrap_or_default().into();
            let names = definition.pointer("/status/acceptedNames").cloned().unwrap_or_default();
            let served = self.servable(name, definition);
            Definition { served, group, names }
        });
        let mut definitions = self.definitions.lock();
        match defined {
            Some(defined) => definitions.insert(name.into(), defined),
            None => definitions.remove(name),
        };
        self.current.store(Arc::new(snapshot(&definitions)));
    }

    /// What a definition adds: nothing while it has not got its names, and never what is built in.
    fn servable(&self, name: &str, definition: &serde_json::Value) -> Vec<Arc<Served>> {
        if names::is_refused(definition) {
            return Vec::new();
        }
        let group = definition["spec"]["group"].as_str().unwrap_or_default();
        if let Some((field, taken)) = self.taken(group, name).builtin_conflict(&definition["spec"]["names"]) {
            tracing::error!(name, field, taken, "a stored CustomResourceDefinition names what is built in");
            return Vec::new();
        }
        define(definition).unwrap_or_else(|errors| {
            tracing::error!(name, ?errors, "a stored CustomResourceDefinition cannot be served");
            Vec::new()
        })
    }

    /// The names of a group that others than this definition have.
    pub fn taken(&self, group: &str, except: &str) -> Taken {
        let mut taken = Taken::default();
        let definitions = self.definitions.lock();
        let made = definitions.values().filter(|one| one.names.is_null()).flat_map(|one| &one.served);
        for served in builtin().iter().chain(made.filter(|served| served.custom.is_none())) {
            if *served.resource.group == *group {
                taken.by_builtin(&[&served.resource.resource, &served.singular], &[&served.kind, &served.list_kind]);
            }
        }
        let others = definitions.iter().filter(|(name, one)| *one.group == *group && &***name != except);
        for (_, other) in others {
            taken.by_definition(&other.names);
        }
        taken
    }
}

fn snapshot(definitions: &BTreeMap<Arc<str>, Definition>) -> Snapshot {
    let mut resources = ByGroupVersion::new();
    for served in builtin().iter().chain(definitions.values().flat_map(|one| &one.served)) {
        let place = (served.resource.group.clone(), served.version.clone());
        resources.entry(place).or_default().entry(served.resource.resource.clone()).or_insert_with(|| served.clone());
    }
    Snapshot { resources, discovery: OnceLock::new() }
}

/// Events are one kind of object with two addresses.
fn alias(group: &str, plural: &str) -> Option<Alias> {
    ((group, plural) == ("events.k8s.io", "events")).then(|| Alias {
        resource: GroupResource::core("events"),
        to_stored: kinds::events::to_core,
        from_stored: kinds::events::from_core,
    })
}

/// The built-in resources, made once.
fn builtin() -> &'static [Arc<Served>] {
    static BUILTIN: OnceLock<Vec<Arc<Served>>> = OnceLock::new();
    BUILTIN.get_or_init(|| kinds::builtin::builtin().iter().map(|resource| Arc::new(serve(resource))).collect())
}

fn serve(resource: &'static kinds::builtin::Resource) -> Served {
    let catalogue = Shelved::Builtin(&kinds::facts::facts().catalogue);
    let schema = |ty| Schema { catalogue: catalogue.clone(), ty };
    let subresources = resource
        .subresources
        .iter()
        .map(|one| ServedSubresource {
            name: one.name.into(),
            group: one.group.into(),
            version: one.version.into(),
            kind: one.kind.into(),
            verbs: one.verbs.to_vec(),
            schema: schema(one.ty),
        })
        .collect();
    Served {
        resource: GroupResource::new(resource.group, resource.plural),
        version: resource.version.into(),
        kind: resource.kind.into(),
        list_kind: resource.list_kind.as_str().into(),
        singular: resource.singular.as_str().into(),
        short_names: resource.short_names.iter().map(|&name| name.into()).collect(),
        categories: resource.categories.iter().map(|&name| name.into()).collect(),
        namespaced: resource.namespaced,
        verbs: resource.verbs.to_vec(),
        subresources,
        schema: schema(resource.ty),
        strategy: strategies::of(resource.group, resource.plural),
        custom: None,
        printed: Vec::new(),
        alias: alias(resource.group, resource.plural),
    }
}
