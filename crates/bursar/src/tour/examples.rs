//! The examples, carried along in the binary.

/// One family's example: a script and the manifests it uses.
pub struct Example {
    pub name: &'static str,
    pub script: &'static str,
    files: &'static [(&'static str, &'static str)],
}

impl Example {
    /// A manifest by its file name.
    pub fn file(&self, name: &str) -> Option<&'static str> {
        self.files.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
    }
}

macro_rules! example {
    ($name:literal, $($file:literal),* $(,)?) => {
        Example {
            name: $name,
            script: include_str!(concat!("../../../../examples/", $name, "/tour/steps.yaml")),
            files: &[$(($file, include_str!(concat!("../../../../examples/", $name, "/", $file)))),*],
        }
    };
}

/// Every example, in the order a newcomer should see them.
pub static ALL: &[Example] = &[
    example!(
        "kubernetes",
        "01-namespace.yaml",
        "02-quota.yaml",
        "03-deployment.yaml",
        "04-limit-range.yaml",
        "05-pod.yaml",
    ),
    example!(
        "capsule",
        "01-namespaces.yaml",
        "02-quotas.yaml",
        "03-claim.yaml",
        "04-claim-too-large.yaml",
        "05-hostile.yaml",
        "06-pool.yaml",
        "07-pool-claims.yaml",
        "08-pod.yaml",
    ),
    example!(
        "karmada",
        "kinds.yaml",
        "01-failover.yaml",
        "02-quota.yaml",
        "03-policies.yaml",
        "04-jobs.yaml",
        "05-one-more.yaml",
        "06-cannot-be-enforced.yaml",
    ),
    example!(
        "datum",
        "01-definitions.yaml",
        "02-project.yaml",
        "03-grant.yaml",
        "04-claim.yaml",
        "05-claim-too-large.yaml",
        "06-instances.yaml",
        "instances/01-instance.yaml",
        "instances/02-instance-too-large.yaml",
        "07-plans.yaml",
    ),
    example!("orgs",),
];

pub fn find(name: &str) -> Option<&'static Example> {
    ALL.iter().find(|example| example.name == name)
}

pub fn names() -> Vec<&'static str> {
    ALL.iter().map(|example| example.name).collect()
}
