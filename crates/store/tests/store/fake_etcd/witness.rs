//! What etcd itself saw that no etcd should see: it knows who sent what, which the store's transactions do not say.

use std::collections::BTreeMap;

use store::etcd::messages::{KeyValue, Request, TxnRequest};

#[derive(Debug, Default)]
pub struct Witness {
    owners: BTreeMap<i64, usize>,
    violations: Vec<String>,
}

impl Witness {
    pub fn granted(&mut self, lease: i64, owner: usize) {
        self.owners.insert(lease, owner);
    }

    pub fn owner(&self, lease: i64) -> Option<usize> {
        self.owners.get(&lease).copied()
    }

    pub fn take(&mut self) -> Vec<String> {
        std::mem::take(&mut self.violations)
    }

    /// A transaction was done, when `leading` led and the last number was `before`.
    pub fn saw(&mut self, from: usize, leading: Option<usize>, request: &TxnRequest, before: Option<&KeyValue>) {
        let mut commit = None;
        let mut writes = false;
        for operation in &request.success {
            match &operation.request {
                Some(Request::Put(put)) if put.key == super::LEADER => {}
                Some(Request::Put(put)) => {
                    writes = true;
                    commit = commit.or(Some(put).filter(|put| put.key == super::COMMIT));
                }
                Some(Request::DeleteRange(_)) => writes = true,
                Some(Request::Range(_)) | None => {}
            }
        }
        if writes && leading != Some(from) {
            self.violations.push(format!("life {from} wrote while {leading:?} led"));
        }
        let Some(commit) = commit else { return };
        let number = |bytes: &[u8]| bytes.try_into().map(u64::from_be_bytes).ok();
        let (before, after) = (before.and_then(|found| number(&found.value)), number(&commit.value));
        let expected = before.map_or(0, |before| before + 1);
        if after != Some(expected) {
            self.violations.push(format!("transaction {after:?} was done after {before:?}"));
        }
    }
}
