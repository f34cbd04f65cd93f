//! Which controllers run, said as kube-controller-manager's `--controllers` says it: `*` is all of them, `name` switches one on
//! and `-name` one off. Where another program does a job already, this server's own loop is one too many.

/// Every controller by its name, in the order in which they start. Kubernetes' longer names, ending in `-controller`, are
/// understood too.
pub const NAMES: [&str; 12] = [
    "namespace",
    "event-expiry",
    "serviceaccount",
    "garbagecollector",
    "persistentvolumeclaim",
    "persistentvolume",
    "replicaset",
    "replicationcontroller",
    "deployment",
    "resourcepool",
    "resourcepoolclaim",
    "customresourcedefinition",
];

/// A name that no controller has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no controller {0:?}: use \"*\", or NAME or -NAME with one of {list}", list = NAMES.join(", "))]
pub struct UnknownController(String);

/// The controllers that run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    running: Vec<&'static str>,
}

impl Default for Choice {
    fn default() -> Self {
        Choice { running: NAMES.to_vec() }
    }
}

impl Choice {
    /// Reads a list such as `["*", "-deployment"]`. What is said of a name counts, wherever `*` stands.
    pub fn read<S: AsRef<str>>(list: &[S]) -> Result<Choice, UnknownController> {
        let (mut all, mut on, mut off) = (false, Vec::new(), Vec::new());
        for given in
            list.iter().flat_map(|given| given.as_ref().split(',')).map(str::trim).filter(|one| !one.is_empty())
        {
            match given.strip_prefix('-') {
                None if given == "*" => all = true,
                None => on.push(known(given)?),
                Some(name) => off.push(known(name)?),
            }
        }
        let runs = |name: &&&str| on.contains(*name) || (all && !off.contains(*name));
        Ok(Choice { running: NAMES.iter().filter(runs).copied().collect() })
    }

    pub fn runs(&self, name: &str) -> bool {
        self.running.contains(&name)
    }
}

fn known(given: &str) -> Result<&'static str, UnknownController> {
    let short = |name: &&&str| given == **name || given.strip_suffix("-controller") == Some(**name);
    NAMES.iter().find(short).copied().ok_or_else(|| UnknownController(given.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controllers_are_chosen_as_kube_controller_manager_chooses_them() {
        let names = |list: &[&str]| Choice::read(list).map(|choice| choice.running);
        assert_eq!(names(&["*"]).unwrap(), NAMES);
        assert_eq!(names(&["*,-deployment", "-replicaset-controller"]).unwrap().len(), NAMES.len() - 2);
        assert_eq!(names(&["deployment", "replicaset"]).unwrap(), ["replicaset", "deployment"]);
        assert!(names(&["-deployment"]).unwrap().is_empty());
        assert!(Choice::default().runs("deployment"));
        let error = names(&["*", "-deploy"]).unwrap_err();
        assert!(error.to_string().starts_with("there is no controller \"deploy\": use "), "{error}");
    }
}
