//! The greedy waiters of one account: in the order of service, and found by what they need.
//!
//! A search tree by place that is a heap by weights drawn from the subjects' ids, so that it is balanced whatever comes
//! and goes and the same for the same waiters. Every node knows the least need below it: whoever fits into some room is
//! found without a look at those who do not.

use quantity::Amount;

use crate::queue::Waiter;
use crate::terms::Place;

const NONE: u32 = u32::MAX;

#[derive(Clone, Debug)]
struct Node {
    place: Place,
    waiter: Waiter,
    weight: u64,
    left: u32,
    right: u32,
    /// The least need of this node and all below it.
    least: Amount,
}

#[derive(Clone, Debug)]
pub(crate) struct Greedy {
    nodes: Vec<Node>,
    vacant: Vec<u32>,
    root: u32,
}

impl Default for Greedy {
    fn default() -> Greedy {
        Greedy { nodes: Vec::new(), vacant: Vec::new(), root: NONE }
    }
}

impl Greedy {
    pub fn len(&self) -> usize {
        self.nodes.len() - self.vacant.len()
    }

    /// The first waiter behind a place, or of all, whose need is within the room. `looked_at` counts the nodes on the way.
    pub fn first_within(
        &self,
        behind: Option<&Place>,
        room: Amount,
        looked_at: &mut usize,
    ) -> Option<(&Place, &Waiter)> {
        self.first_below(self.root, behind, room, looked_at)
    }

    fn first_below(
        &self,
        tree: u32,
        behind: Option<&Place>,
        room: Amount,
        looked_at: &mut usize,
    ) -> Option<(&Place, &Waiter)> {
        let node = self.node(tree).filter(|node| node.least <= room)?;
        *looked_at += 1;
        if behind.is_some_and(|behind| node.place <= *behind) {
            return self.first_below(node.right, behind, room, looked_at);
        }
        if let Some(found) = self.first_below(node.left, behind, room, looked_at) {
            return Some(found);
        }
        if node.waiter.need <= room {
            return Some((&node.place, &node.waiter));
        }
        self.first_below(node.right, None, room, looked_at)
    }

    pub fn get(&self, place: &Place) -> Option<&Waiter> {
        let mut tree = self.root;
        while let Some(node) = self.node(tree) {
            match place.cmp(&node.place) {
                std::cmp::Ordering::Less => tree = node.left,
                std::cmp::Ordering::Greater => tree = node.right,
                std::cmp::Ordering::Equal => return Some(&node.waiter),
            }
        }
        None
    }

    /// All of them, in the order of service.
    pub fn iter(&self) -> Iter<'_> {
        let mut iter = Iter { greedy: self, path: Vec::new() };
        iter.descend(self.root);
        iter
    }

    /// The caller knows that nobody stands at this place.
    pub fn insert(&mut self, place: Place, waiter: Waiter) {
        let weight = weight(&place);
        let node = Node { place, waiter, weight, left: NONE, right: NONE, least: waiter.need };
        let index = match self.vacant.pop() {
            Some(index) => {
                self.nodes[index as usize] = node;
                index
            }
            None => {
                self.nodes.push(node);
                u32::try_from(self.nodes.len() - 1).expect("waiters are bounded far below")
            }
        };
        self.root = self.insert_below(self.root, index);
    }

    /// Whether somebody stood there.
    pub fn remove(&mut self, place: &Place) -> bool {
        let before = self.vacant.len();
        self.root = self.remove_below(self.root, place);
        self.vacant.len() > before
    }

    fn insert_below(&mut self, tree: u32, new: u32) -> u32 {
        let Some(node) = self.node(tree) else { return new };
        let added = &self.nodes[new as usize];
        if added.weight > node.weight {
            let (left, right) = self.split(tree, new);
            let added = &mut self.nodes[new as usize];
            (added.left, added.right) = (left, right);
            self.sum_up(new);
            return new;
        }
        if added.place < node.place {
            let left = self.insert_below(node.left, new);
            self.nodes[tree as usize].left = left;
        } else {
            let right = self.insert_below(node.right, new);
            self.nodes[tree as usize].right = right;
        }
        self.sum_up(tree);
        tree
    }

    /// All ahead of a node's place, and all behind it.
    fn split(&mut self, tree: u32, at: u32) -> (u32, u32) {
        let Some(node) = self.node(tree) else { return (NONE, NONE) };
        if node.place < self.nodes[at as usize].place {
            let (ahead, behind) = self.split(node.right, at);
            self.nodes[tree as usize].right = ahead;
            self.sum_up(tree);
            (tree, behind)
        } else {
            let (ahead, behind) = self.split(node.left, at);
            self.nodes[tree as usize].left = behind;
            self.sum_up(tree);
            (ahead, tree)
        }
    }

    fn remove_below(&mut self, tree: u32, place: &Place) -> u32 {
        let Some(node) = self.node(tree) else { return NONE };
        let (left, right) = (node.left, node.right);
        match place.cmp(&node.place) {
            std::cmp::Ordering::Equal => {
                self.vacant.push(tree);
                return self.join(left, right);
            }
            std::cmp::Ordering::Less => self.nodes[tree as usize].left = self.remove_below(left, place),
            std::cmp::Ordering::Greater => self.nodes[tree as usize].right = self.remove_below(right, place),
        }
        self.sum_up(tree);
        tree
    }

    /// One tree of two, of which the first is all ahead of the second.
    fn join(&mut self, ahead: u32, behind: u32) -> u32 {
        let (Some(first), Some(second)) = (self.node(ahead), self.node(behind)) else {
            return if ahead == NONE { behind } else { ahead };
        };
        if first.weight > second.weight {
            let right = self.join(first.right, behind);
            self.nodes[ahead as usize].right = right;
            self.sum_up(ahead);
            ahead
        } else {
            let left = self.join(ahead, second.left);
            self.nodes[behind as usize].left = left;
            self.sum_up(behind);
            behind
        }
    }

    fn sum_up(&mut self, tree: u32) {
        let node = &self.nodes[tree as usize];
        let below = [node.left, node.right].into_iter().filter_map(|child| self.node(child)).map(|child| child.least);
        let least = below.fold(node.waiter.need, Amount::min);
        self.nodes[tree as usize].least = least;
    }

    fn node(&self, tree: u32) -> Option<&Node> {
        if tree == NONE { None } else { self.nodes.get(tree as usize) }
    }
}

/// Ids are drawn by the platform; those of tests are small numbers, so they are mixed.
fn weight(place: &Place) -> u64 {
    let id = place.subject.0;
    let mut mixed = u64::try_from(id & u128::from(u64::MAX)).unwrap_or_default();
    mixed ^= u64::try_from(id >> 64).unwrap_or_default().rotate_left(32);
    for factor in [0xbf58_476d_1ce4_e5b9, 0x94d0_49bb_1331_11eb] {
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(factor);
    }
    mixed ^ (mixed >> 31)
}

pub(crate) struct Iter<'a> {
    greedy: &'a Greedy,
    /// The next one last, before it those of whom everything ahead was given out.
    path: Vec<u32>,
}

impl Iter<'_> {
    fn descend(&mut self, mut tree: u32) {
        while let Some(node) = self.greedy.node(tree) {
            self.path.push(tree);
            tree = node.left;
        }
    }
}

impl<'a> Iterator for Iter<'a> {
    type Item = (&'a Place, &'a Waiter);

    fn next(&mut self) -> Option<(&'a Place, &'a Waiter)> {
        let node = self.greedy.node(self.path.pop()?)?;
        self.descend(node.right);
        Some((&node.place, &node.waiter))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::{Discipline, Position, SubjectId};

    fn place(arrived: i64, subject: u128) -> Place {
        Place::new(&Position { priority: 0, arrived, tie: "".into() }, SubjectId(subject))
    }

    fn waiter(need: i64) -> Waiter {
        Waiter { slot: 0, need: Amount::from_units(need), discipline: Discipline::Greedy }
    }

    #[test]
    fn it_finds_what_a_walk_finds() {
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        let mut next = |bound: i64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            i64::try_from(state >> 33).unwrap() % bound
        };
        let (mut greedy, mut plain) = (Greedy::default(), BTreeMap::new());
        for _ in 0..4000 {
            let at = place(next(30), u128::try_from(next(40)).unwrap());
            let is_known = plain.contains_key(&at);
            assert_eq!(greedy.get(&at).map(|one| one.need), plain.get(&at).copied());
            if is_known {
                assert!(greedy.remove(&at));
                plain.remove(&at);
            } else {
                assert!(!greedy.remove(&at));
                let one = waiter(1 + next(50));
                plain.insert(at.clone(), one.need);
                greedy.insert(at, one);
            }
            assert_eq!(greedy.len(), plain.len());
            let all: Vec<_> = greedy.iter().map(|(place, one)| (place.clone(), one.need)).collect();
            assert_eq!(all, plain.clone().into_iter().collect::<Vec<_>>());
            let (room, behind) = (Amount::from_units(next(60)), place(next(30), u128::try_from(next(40)).unwrap()));
            for behind in [None, Some(&behind)] {
                let found = greedy.first_within(behind, room, &mut 0).map(|(place, _)| place.clone());
                let mut rest =
                    plain.iter().filter(|(place, need)| **need <= room && behind.is_none_or(|at| *place > at));
                assert_eq!(found, rest.next().map(|(place, _)| place.clone()));
            }
        }
    }

    #[test]
    fn who_does_not_fit_is_not_looked_at() {
        let mut greedy = Greedy::default();
        for one in 0..100_000 {
            let need = if one == 70_000 { 3 } else { 5 };
            greedy.insert(place(one, u128::try_from(one).unwrap()), waiter(need));
        }
        let mut looked_at = 0;
        assert!(greedy.first_within(None, Amount::from_units(2), &mut looked_at).is_none());
        assert_eq!(looked_at, 0);
        let found = greedy.first_within(None, Amount::from_units(4), &mut looked_at);
        assert_eq!(found.map(|(place, _)| place.subject), Some(SubjectId(70_000)));
        assert!(looked_at < 100, "{looked_at}");
        let behind = place(70_000, 70_000);
        looked_at = 0;
        assert!(greedy.first_within(Some(&behind), Amount::from_units(4), &mut looked_at).is_none());
        assert!(looked_at < 100, "{looked_at}");
    }
}
