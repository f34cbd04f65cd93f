//! Names of resources, as ResourceLists and quotas use them.

use rules::selector::label_key_problems;

/// Whether the name belongs to Kubernetes itself; names without a prefix do.
pub fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// Whether this is the name of a resource somebody else brings, as containers request it.
pub fn is_extended(name: &str) -> bool {
    !is_native(name) && !name.starts_with("requests.") && label_key_problems(&format!("requests.{name}")).is_empty()
}

pub fn is_huge_pages_quota(name: &str) -> bool {
    name.starts_with("hugepages-") || name.starts_with("requests.hugepages-")
}

/// The names without a prefix that a quota may list.
pub fn is_standard_quota(name: &str) -> bool {
    is_counted(name) || is_amount(name) || is_huge_pages_quota(name)
}

/// `storage` is a resource but nothing a quota can be set on.
pub fn is_standard(name: &str) -> bool {
    name == "storage" || is_standard_quota(name)
}

pub fn is_integer(name: &str) -> bool {
    is_counted(name) || is_extended(name)
}

/// What is counted one by one.
fn is_counted(name: &str) -> bool {
    matches!(
        name,
        "pods"
            | "resourcequotas"
            | "services"
            | "replicationcontrollers"
            | "secrets"
            | "configmaps"
            | "persistentvolumeclaims"
            | "services.nodeports"
            | "services.loadbalancers"
    )
}

/// What is measured.
fn is_amount(name: &str) -> bool {
    matches!(
        name,
        "cpu"
            | "memory"
            | "ephemeral-storage"
            | "requests.cpu"
            | "requests.memory"
            | "requests.ephemeral-storage"
            | "requests.storage"
            | "limits.cpu"
            | "limits.memory"
            | "limits.ephemeral-storage"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nineteen_standard_names_and_huge_pages_need_no_prefix() {
        let nineteen = "cpu memory ephemeral-storage requests.cpu requests.memory requests.storage \
            requests.ephemeral-storage limits.cpu limits.memory limits.ephemeral-storage pods resourcequotas services \
            replicationcontrollers secrets persistentvolumeclaims configmaps services.nodeports services.loadbalancers";
        assert_eq!(nineteen.split_whitespace().count(), 19);
        for name in nineteen.split_whitespace().chain(["hugepages-2Mi", "requests.hugepages-1Gi"]) {
            assert!(is_standard_quota(name), "{name}");
        }
        for name in ["storage", "limits.hugepages-2Mi", "foo", "count"] {
            assert!(!is_standard_quota(name), "{name}");
        }
        assert!(is_standard("storage") && !is_standard("foo"));
    }

    #[test]
    fn whole_numbers_are_asked_of_counts_and_extended_resources() {
        for name in ["pods", "services.nodeports", "count/foo.bar", "example.com/gpu"] {
            assert!(is_integer(name), "{name}");
        }
        for name in ["cpu", "requests.example.com/gpu", "requests.storage", "a.kubernetes.io/b"] {
            assert!(!is_integer(name), "{name}");
        }
    }

    #[test]
    fn qualified_names() {
        for good in ["a", "A.b_c-d", "example.com/x", "a.b/c"] {
            assert!(label_key_problems(good).is_empty(), "{good}");
        }
        let long = "a".repeat(64);
        for (bad, starts) in [
            ("", "name part must be non-empty"),
            ("/a", "prefix part must be non-empty"),
            ("a/", "name part must be non-empty"),
            ("-a", "name part must consist of alphanumeric"),
            ("A_/b", "prefix part a lowercase RFC 1123 subdomain"),
            ("a..b/c", "prefix part a lowercase RFC 1123 subdomain"),
            ("a/b/c", "a valid label key must consist of"),
            (&*long, "name part must be no more than 63 bytes"),
        ] {
            let errors = label_key_problems(bad);
            assert!(errors.first().is_some_and(|error| error.starts_with(starts)), "{bad}: {errors:?}");
        }
    }
}
