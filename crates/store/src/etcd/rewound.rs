//! Whether this etcd was put back to an older state.
//!
//! `etcdutl snapshot restore` brings the keys back as they were, their revision included, and begins a new raft log. Every
//! write of etcd takes one entry of that log and counts the revision up by one at most, so the revision minus the log's
//! index never grows in the life of a cluster, and jumps when it is restored. We keep that number beside the rows.

use super::commit::Writer;
use super::messages::RangeRequest;
use crate::StoreError;

/// Between two numbers the true one lies: revision and index are read one after the other while others write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lead {
    least: i64,
    most: i64,
}

/// What a look at the start found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    pub rewound: bool,
    /// What to keep beside the rows from the next commit on.
    pub keep: Option<i64>,
}

/// Compares with what an earlier leader kept. An etcd that does not tell its index is not judged.
pub async fn look(writer: &Writer) -> Result<Found, StoreError> {
    let client = &writer.client;
    let mut lead = None;
    for member in 0..client.members() {
        // The revision in it is older than the index, and the one asked for afterwards is younger.
        let Ok(status) = client.standing(member, &writer.keys.leader).await else { continue };
        let request = RangeRequest { key: writer.keys.leader.clone(), ..RangeRequest::default() };
        let Ok(after) = client.range(request).await else { continue };
        let (Some(before), Some(after)) = (status.header, after.header) else { continue };
        let index = i64::try_from(status.raft_index).unwrap_or(i64::MAX);
        lead = Some(Lead { least: before.revision.saturating_sub(index), most: after.revision.saturating_sub(index) });
        break;
    }
    let kept =
        writer.get(&writer.keys.lead).await?.and_then(|kept| Some(i64::from_be_bytes(kept.value.try_into().ok()?)));
    Ok(judge(lead, kept))
}

fn judge(lead: Option<Lead>, kept: Option<i64>) -> Found {
    match (lead, kept) {
        (None, _) => Found::default(),
        (Some(lead), Some(kept)) => {
            let rewound = lead.least > kept;
            // The lower it is, the smaller a jump is seen.
            Found { rewound, keep: (rewound || lead.most < kept).then_some(lead.most) }
        }
        (Some(lead), None) => Found { rewound: false, keep: Some(lead.most) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jump_is_seen_and_noise_is_not() {
        let lead = |least, most| Some(Lead { least, most });
        let found = |rewound, keep| Found { rewound, keep };
        for (now, kept, expected) in [
            (None, Some(-5), found(false, None)),
            (lead(-9, -7), None, found(false, Some(-7))),
            (lead(-9, -7), Some(-7), found(false, None)),
            (lead(-9, -6), Some(-7), found(false, None)),
            (lead(-90, -88), Some(-7), found(false, Some(-88))),
            // Restored: thousands of revisions, a log of a few entries.
            (lead(5000, 5001), Some(-7), found(true, Some(5001))),
            (lead(4980, 4981), Some(5001), found(false, Some(4981))),
        ] {
            assert_eq!(judge(now, kept), expected, "{now:?} {kept:?}");
        }
    }
}
