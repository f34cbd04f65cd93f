//! Who has quota: projects and organizations, which namespaces are a project's, and which projects an organization's.
//!
//! A namespace belongs to the project that its label `resources.datumapis.com/project` names, and without the label to the
//! project of its own name. A project belongs to the organization that its Project object names.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use kinds::fields::text;
use rules::GroupResource;
use serde_json::Value;

use super::{PROJECT_KEY, PROJECTS};
use crate::{Parsed, Sources, World};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    Organization,
    Project,
}

/// Names are compared, groups are not: the same project is written under several.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Entity {
    pub level: Level,
    pub name: String,
}

impl Entity {
    pub fn project(name: &str) -> Entity {
        Entity { level: Level::Project, name: name.into() }
    }

    pub fn organization(name: &str) -> Entity {
        Entity { level: Level::Organization, name: name.into() }
    }

    /// What a `resourceRef` names.
    pub fn referred(reference: &Value) -> Option<Entity> {
        let name = text(reference, &["name"]);
        match text(reference, &["kind"]) {
            _ if name.is_empty() => None,
            "Project" => Some(Entity::project(name)),
            "Organization" => Some(Entity::organization(name)),
            _ => None,
        }
    }

    pub fn kind(&self) -> &'static str {
        match self.level {
            Level::Organization => "Organization",
            Level::Project => "Project",
        }
    }

    /// The name of the object that says what all its grants come to.
    pub fn object_name(&self) -> String {
        match self.level {
            Level::Organization => format!("organization-{}", self.name),
            Level::Project => format!("project-{}", self.name),
        }
    }

    pub fn of_object_name(name: &str) -> Option<Entity> {
        let project = name.strip_prefix("project-").map(Entity::project);
        project.or_else(|| name.strip_prefix("organization-").map(Entity::organization))
    }
}

impl fmt::Display for Entity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} \"{}\"", self.kind().to_lowercase(), self.name)
    }
}

/// The project of a namespace.
pub fn project_of(namespace: &Value) -> &str {
    let labelled = text(namespace, &["metadata", "labels", PROJECT_KEY]);
    if labelled.is_empty() { text(namespace, &["metadata", "name"]) } else { labelled }
}

/// The organization of a project, as its object says.
pub fn organization_of(project: &Value) -> &str {
    text(project, &["spec", "organizationRef", "name"])
}

/// The plan that a project or an organization has.
pub fn plan_of(entity: &Value) -> &str {
    text(entity, &["spec", "plan"])
}

/// Who belongs to whom.
#[derive(Debug, Default)]
pub struct Entities {
    /// Namespaces of a project, sorted.
    namespaces: BTreeMap<String, Vec<Arc<str>>>,
    projects: BTreeMap<Arc<str>, String>,
    organizations: BTreeMap<String, String>,
    members: BTreeMap<String, Vec<String>>,
}

impl Entities {
    pub fn of(world: &dyn World) -> Arc<Entities> {
        let (namespaces, projects) = (GroupResource::core("namespaces"), PROJECTS.resource());
        let resources = [namespaces.clone(), projects.clone()];
        let sources = Sources { resources: &resources, ledger: false };
        let made = world.derived("datum entities", sources, &|| {
            let mut all = Entities::default();
            // Other families have made their own of these.
            for namespace in world.list(&namespaces, "") {
                let (name, project) = (text(&namespace, &["metadata", "name"]), project_of(&namespace));
                all.namespaces.entry(project.into()).or_default().push(name.into());
                all.projects.insert(name.into(), project.into());
            }
            let member = |project: &Value| -> Parsed {
                Arc::new((text(project, &["metadata", "name"]).to_owned(), organization_of(project).to_owned()))
            };
            for one in world.parsed_everywhere(&projects, &member) {
                if let Some((project, organization)) = one.downcast_ref::<(String, String)>()
                    && !organization.is_empty()
                {
                    all.organizations.insert(project.clone(), organization.clone());
                    all.members.entry(organization.clone()).or_default().push(project.clone());
                }
            }
            all.namespaces.values_mut().for_each(|namespaces| namespaces.sort());
            all.members.values_mut().for_each(|members| members.sort());
            Arc::new(all) as Parsed
        });
        made.downcast().unwrap_or_default()
    }

    pub fn namespaces(&self, project: &str) -> &[Arc<str>] {
        self.namespaces.get(project).map_or(&[], Vec::as_slice)
    }

    pub fn project(&self, namespace: &str) -> Option<&str> {
        self.projects.get(namespace).map(String::as_str)
    }

    pub fn organization(&self, project: &str) -> Option<&str> {
        self.organizations.get(project).map(String::as_str)
    }

    /// Projects of an organization that have a namespace.
    pub fn members(&self, organization: &str) -> impl Iterator<Item = &String> {
        let members = self.members.get(organization).into_iter().flatten();
        members.filter(|member| self.namespaces.contains_key(*member))
    }

    /// Every project with a namespace.
    pub fn projects(&self) -> impl Iterator<Item = &String> {
        self.namespaces.keys()
    }

    pub fn organizations(&self) -> impl Iterator<Item = &String> {
        self.members.keys()
    }

    /// Whether anything of the entity is there.
    pub fn knows(&self, entity: &Entity) -> bool {
        match entity.level {
            Level::Project => {
                self.namespaces.contains_key(&entity.name) || self.organizations.contains_key(&entity.name)
            }
            Level::Organization => self.members.contains_key(&entity.name),
        }
    }
}
