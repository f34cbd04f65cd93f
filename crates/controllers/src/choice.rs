//! Which controllers run, said as kube-controller-manager's `--controllers` says it: `*` is all of them, `name` switches one on
//! and `-name` one off. Where another program does a job already, this server's own loop is one too many.

/// Every controller of this crate by its name, in the order in which they start. Kubernetes' longer names, ending in `-controller`, are
/// understood too.
pub const NAMES: [&str; 10] = [
    "namespace",
    "event-expiry",
    "serviceaccount",
    "garbagecollector",
    "persistentvolumeclaim",
    "persistentvolume",
    "replicaset",
    "replicationcontroller",
    "deployment",
    "customresourcedefinition",
];

/// A name that no controller has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no controller {given:?}: use \"*\", or NAME or -NAME with one of {list}", list = known.join(", "))]
pub struct UnknownController {
    given: String,
    known: Vec<&'static str>,
}

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
    /// Reads a list such as `["*", "-deployment"]`. What is said of a name counts, wherever `*` stands. `others` are the names
    /// of controllers that are started elsewhere.
    pub fn read<S: AsRef<str>>(list: &[S], others: &[&'static str]) -> Result<Choice, UnknownController> {
        let names: Vec<&'static str> = NAMES.iter().chain(others).copied().collect();
        let (mut all, mut on, mut off) = (false, Vec::new(), Vec::new());
        for given in
            list.iter().flat_map(|given| given.as_ref().split(',')).map(str::trim).filter(|one| !one.is_empty())
        {
            match given.strip_prefix('-') {
                None if given == "*" => all = true,
                None => on.push(known(given, &names)?),
                Some(name) => off.push(known(name, &names)?),
            }
        }
        let runs = |name: &&&str| on.contains(*name) || (all && !off.contains(*name));
        Ok(Choice { running: names.iter().filter(runs).copied().collect() })
    }

    pub fn runs(&self, name: &str) -> bool {
        self.running.contains(&name)
    }
}

fn known(given: &str, names: &[&'static str]) -> Result<&'static str, UnknownController> {
    let short = |name: &&&str| given == **name || given.strip_suffix("-controller") == Some(**name);
    let unknown = || UnknownController { given: given.to_owned(), known: names.to_vec() };
    names.iter().find(short).copied().ok_or_else(unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controllers_are_chosen_as_kube_controller_manager_chooses_them() {
        let names = |list: &[&str]| Choice::read(list, &[]).map(|choice| choice.running);
        assert_eq!(names(&["*"]).unwrap(), NAMES);
        assert_eq!(names(&["*,-deployment", "-replicaset-controller"]).unwrap().len(), NAMES.len() - 2);
        assert_eq!(names(&["deployment", "replicaset"]).unwrap(), ["replicaset", "deployment"]);
        assert!(names(&["-deployment"]).unwrap().is_empty());
        assert!(Choice::default().runs("deployment"));
        let both = Choice::read(&["*", "-deployment"], &["elsewhere"]).unwrap();
        assert!(both.runs("elsewhere") && !both.runs("deployment"));
        assert!(!Choice::read(&["*", "-elsewhere"], &["elsewhere"]).unwrap().runs("elsewhere"));
        let error = names(&["*", "-deploy"]).unwrap_err();
        assert!(error.to_string().starts_with("there is no controller \"deploy\": use "), "{error}");
    }
}
