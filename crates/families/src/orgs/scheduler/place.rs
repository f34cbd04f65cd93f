//! Where an instance goes. Memory is a hard bound, vCPUs are overcommitted and only weigh, volumes are where they are, and replicas
//! of a group spread. The same state always gives the same node.

use std::collections::BTreeMap;

use quantity::Amount;

/// vCPUs that are given away for each core.
pub const CPU_OVERCOMMIT: i64 = 4;
/// Boot failures in a short time after which a node is avoided.
pub const FAILURES_MANY: usize = 3;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    pub name: String,
    /// In service, and heard of lately.
    pub is_eligible: bool,
    pub memory_bytes: i64,
    pub cores: i64,
    pub addresses_max: usize,
    pub memory_taken: i64,
    pub cpu_taken: Amount,
    pub addresses_taken: usize,
    pub failures: usize,
    /// Instances by group.
    pub groups: BTreeMap<String, usize>,
}

/// What is to be placed.
#[derive(Clone, Debug)]
pub struct Need<'a> {
    pub group: &'a str,
    pub memory_bytes: i64,
    pub cpu: Amount,
    /// The node that its volumes are on.
    pub home: Option<&'a str>,
}

/// Why it has no place. Never for want of quota: that is asked before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoPlace {
    NoNodes,
    VolumeLocality,
    Memory,
    Addresses,
}

impl NoPlace {
    pub fn reason(self) -> &'static str {
        match self {
            NoPlace::NoNodes => "no_nodes_active",
            NoPlace::VolumeLocality => "volume_locality_no_node",
            NoPlace::Memory => "no_capacity_memory",
            NoPlace::Addresses => "ipam_exhausted",
        }
    }
}

/// The place of the node that an instance goes to, among these.
pub fn choose(nodes: &[Node], need: &Need<'_>) -> Result<usize, NoPlace> {
    let eligible: Vec<usize> = (0..nodes.len()).filter(|at| nodes[*at].is_eligible).collect();
    if eligible.is_empty() {
        return Err(NoPlace::NoNodes);
    }
    let at_home: Vec<usize> = match need.home {
        None => eligible,
        Some(home) => eligible.into_iter().filter(|at| nodes[*at].name == home).collect(),
    };
    if at_home.is_empty() {
        return Err(NoPlace::VolumeLocality);
    }
    let fits = |at: &usize| {
        let node = &nodes[*at];
        node.memory_taken.checked_add(need.memory_bytes).is_some_and(|sum| sum <= node.memory_bytes)
    };
    let fitting: Vec<usize> = at_home.into_iter().filter(fits).collect();
    let best = fitting.into_iter().min_by(|one, other| compare(&nodes[*one], &nodes[*other], need.group));
    let best = best.ok_or(NoPlace::Memory)?;
    // Only once a node is chosen: addresses are not what places are chosen by.
    if nodes[best].addresses_taken >= nodes[best].addresses_max { Err(NoPlace::Addresses) } else { Ok(best) }
}

/// Fewer failures, fewer of the same group, less pressure on its cores, the smaller name.
fn compare(one: &Node, other: &Node, group: &str) -> std::cmp::Ordering {
    let failing = |node: &Node| node.failures >= FAILURES_MANY;
    let same = |node: &Node| node.groups.get(group).copied().unwrap_or(0);
    let order = failing(one).cmp(&failing(other)).then_with(|| same(one).cmp(&same(other)));
    order.then_with(|| pressure(one, other)).then_with(|| one.name.cmp(&other.name))
}

/// Shares of what may be given away, compared without dividing. Beyond all of it is all of it.
fn pressure(one: &Node, other: &Node) -> std::cmp::Ordering {
    let most = |node: &Node| i128::from(node.cores.max(1)) * i128::from(CPU_OVERCOMMIT) * 1_000_000_000;
    let taken = |node: &Node| node.cpu_taken.nanos().clamp(0, most(node));
    let product = |a: i128, b: i128| a.checked_mul(b).unwrap_or(i128::MAX);
    product(taken(one), most(other)).cmp(&product(taken(other), most(one)))
}

impl Node {
    /// Takes what is placed there.
    pub fn take(&mut self, need: &Need<'_>) {
        self.memory_taken = self.memory_taken.saturating_add(need.memory_bytes);
        self.cpu_taken = self.cpu_taken.checked_add(need.cpu).unwrap_or(self.cpu_taken);
        self.addresses_taken = self.addresses_taken.saturating_add(1);
        *self.groups.entry(need.group.to_owned()).or_default() += 1;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn node(name: &str, memory: i64, cores: i64) -> Node {
        let (name, is_eligible) = (name.to_owned(), true);
        Node { name, is_eligible, memory_bytes: memory, cores, addresses_max: 100, ..Node::default() }
    }

    fn need(memory: i64) -> Need<'static> {
        Need { group: "g", memory_bytes: memory, cpu: Amount::from_units(1), home: None }
    }

    #[test]
    fn reasons_are_never_confused() {
        let mut off = node("a", 100, 1);
        off.is_eligible = false;
        assert_eq!(choose(&[], &need(1)), Err(NoPlace::NoNodes));
        assert_eq!(choose(&[off.clone()], &need(1)), Err(NoPlace::NoNodes));
        let at = |home| Need { home: Some(home), ..need(1) };
        assert_eq!(choose(&[off, node("b", 100, 1)], &at("a")), Err(NoPlace::VolumeLocality));
        assert_eq!(choose(&[node("b", 100, 1)], &at("b")), Ok(0));
        assert_eq!(choose(&[node("b", 100, 1)], &need(101)), Err(NoPlace::Memory));
        assert_eq!(choose(&[node("b", 100, 1)], &need(100)), Ok(0));
        let full = Node { addresses_taken: 100, ..node("b", 100, 1) };
        assert_eq!(choose(&[full], &need(1)), Err(NoPlace::Addresses));
    }

    #[test]
    fn replicas_spread_and_ties_go_to_the_smaller_name() {
        let mut nodes = vec![node("c", 1000, 8), node("a", 1000, 8), node("b", 1000, 8)];
        let mut order = Vec::new();
        for _ in 0..6 {
            let at = choose(&nodes, &need(10)).unwrap();
            nodes[at].take(&need(10));
            order.push(nodes[at].name.clone());
        }
        assert_eq!(order, ["a", "b", "c", "a", "b", "c"]);
        nodes[1].failures = 3;
        assert_eq!(nodes[choose(&nodes, &need(10)).unwrap()].name, "b");
    }

    proptest! {
        /// However many are placed, no node gives more memory than it has, and the same state gives the same node.
        #[test]
        fn memory_is_never_given_twice(
            sizes in prop::collection::vec((0i64..200, 1i64..16), 1..8),
            needs in prop::collection::vec(1i64..60, 0..60),
        ) {
            let mut nodes: Vec<Node> =
                sizes.iter().enumerate().map(|(n, (memory, cores))| node(&format!("n{n}"), *memory, *cores)).collect();
            for memory in needs {
                let chosen = choose(&nodes, &need(memory));
                prop_assert_eq!(chosen, choose(&nodes.clone(), &need(memory)));
                match chosen {
                    Ok(at) => nodes[at].take(&need(memory)),
                    Err(why) => {
                        prop_assert_eq!(why, NoPlace::Memory);
                        prop_assert!(nodes.iter().all(|node| node.memory_taken + memory > node.memory_bytes));
                    }
                }
                prop_assert!(nodes.iter().all(|node| node.memory_taken <= node.memory_bytes));
            }
        }
    }
}
