//! The words of a refusal, letter for letter Kubernetes': people and tools search for them.

use quantity::{Format, Quantity};

use crate::{Denial, DenialLine};

/// Why a quota said no, without the wrapper that names the refused object.
pub fn words(denial: &Denial) -> String {
    if let Some(message) = &denial.message {
        return message.clone();
    }
    let opening = if denial.resource.is("hnc.x-k8s.io", "hierarchicalresourcequotas") {
        format!("exceeded hierarchical quota in namespace \"{}\": \"{}\"", denial.namespace, denial.name)
    } else {
        format!("exceeded quota: {}", denial.name)
    };
    let mut lines: Vec<&DenialLine> = denial.lines.iter().collect();
    lines.sort_by(|a, b| a.account.cmp(&b.account));
    let list = |value: &dyn Fn(&DenialLine) -> String| {
        lines.iter().map(|line| format!("{}={}", line.account, value(line))).collect::<Vec<_>>().join(",")
    };
    let requested = list(&|line| shown(line.requested, line.requested_format));
    // What is held is as good as used to whoever asks for more.
    let used = list(&|line| shown(line.used.checked_add(line.held).unwrap_or(line.used), line.used_format));
    let limited = list(&|line| line.limit_text.to_string());
    format!("{opening}, requested: {requested}, used: {used}, limited: {limited}")
}

fn shown(amount: quantity::Amount, format: Format) -> String {
    Quantity::new(amount, format).to_string()
}

#[cfg(test)]
mod tests {
    use quantity::Amount;
    use rules::GroupResource;

    use super::*;

    fn line(account: &str, requested: &str, used: &str, limit: &str) -> DenialLine {
        let read = |text: &str| Quantity::parse(text).unwrap();
        DenialLine {
            account: account.into(),
            requested: read(requested).amount(),
            requested_format: read(requested).format(),
            used: read(used).amount(),
            held: Amount::ZERO,
            used_format: read(used).format(),
            limit: read(limit).amount(),
            limit_text: limit.into(),
            reason: crate::DenialReason::Full,
        }
    }

    fn denial(resource: GroupResource) -> Denial {
        Denial {
            policy: "p".into(),
            resource,
            namespace: "team-a".into(),
            name: "compute".into(),
            operation: crate::Operation::Create,
            lines: vec![line("requests.memory", "1Gi", "1536Mi", "2Gi"), line("pods", "1", "3", "3")],
            message: None,
            reason: crate::DenialReason::Full,
        }
    }

    #[test]
    fn a_quota_names_every_exceeded_resource_in_order() {
        assert_eq!(
            words(&denial(GroupResource::core("resourcequotas"))),
            "exceeded quota: compute, requested: pods=1,requests.memory=1Gi, used: pods=3,requests.memory=1536Mi, \
             limited: pods=3,requests.memory=2Gi"
        );
    }

    #[test]
    fn a_hierarchical_quota_says_where_it_stands() {
        assert_eq!(
            words(&denial(GroupResource::new("hnc.x-k8s.io", "hierarchicalresourcequotas"))),
            "exceeded hierarchical quota in namespace \"team-a\": \"compute\", requested: pods=1,requests.memory=1Gi, \
             used: pods=3,requests.memory=1536Mi, limited: pods=3,requests.memory=2Gi"
        );
    }

    #[test]
    fn a_rule_that_refused_by_itself_has_the_word() {
        let mut refused = denial(GroupResource::core("resourcequotas"));
        refused.message = Some("failed quota: compute: must specify cpu for: c".into());
        assert_eq!(words(&refused), "failed quota: compute: must specify cpu for: c");
    }
}
