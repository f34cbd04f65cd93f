//! Whether this etcd was put back to an older state.
//!
//! `etcdutl snapshot restore` brings the keys back as they were, their revision included, and begins a new raft log. Every
//! write of etcd takes one entry of that log and counts the revision up by one at most, so the revision minus the log's
//! index never grows in the life of a cluster, and jumps when it is restored. We keep that number beside the rows.

use std::time::Duration;

use tokio::time::{sleep, timeout};
use tonic::Status;

use super::client::{is_passing, timed_out};
use super::commit::Writer;
use super::failed;
use super::messages::{RangeRequest, ResponseHeader};
use crate::StoreError;

/// How long members are asked that do not answer, as any call is tried, and what is waited in between.
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(200);

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
    let lead = ask(writer).await?;
    let kept =
        writer.get(&writer.keys.lead).await?.and_then(|kept| Some(i64::from_be_bytes(kept.value.try_into().ok()?)));
    Ok(judge(lead, kept))
}

/// Asks one member after the other, again and again: right after a restore many calls fail, and who took that for an answer
/// would not see it. `None`: we may not ask.
async fn ask(writer: &Writer) -> Result<Option<Lead>, StoreError> {
    let asking = async {
        loop {
            for member in 0..writer.client.members() {
                match ask_one(writer, member).await {
                    Ok(lead) => return Some(lead),
                    Err(status) if is_passing(&status) => {}
                    Err(_) => return None,
                }
            }
            sleep(PAUSE).await;
        }
    };
    let late = |_| failed("asking etcd whether it was restored", &timed_out(PATIENCE));
    timeout(PATIENCE, asking).await.map_err(late)
}

async fn ask_one(writer: &Writer, member: usize) -> Result<Lead, Status> {
    let key = &writer.keys.leader;
    // The revision in it is older than the index, and the one asked for afterwards is younger.
    let status = writer.client.standing(member, key).await?;
    let after = writer.client.range(RangeRequest { key: key.clone(), ..RangeRequest::default() }).await?;
    let revision = |header: Option<ResponseHeader>| header.map_or(0, |header| header.revision);
    let index = i64::try_from(status.raft_index).unwrap_or(i64::MAX);
    let least = revision(status.header).saturating_sub(index);
    Ok(Lead { least, most: revision(after.header).saturating_sub(index) })
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
