//! Lists being paged through, kept as they were when their first page was read.
//!
//! A kept list costs nothing by itself: it shares its objects with the present state. What it does cost are the objects
//! that were replaced since, and those are counted: when they are too many bytes the list is let go, and its reader is told
//! to go on with the present state. The places are shared between users, so that nobody who starts many lists makes
//! everybody else's expire.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hashbrown::HashMap;
use parking_lot::Mutex;
use rules::GroupResource;

use super::cache::Listing;

/// Lists kept at once; the oldest of the user with the most makes room.
pub const PAGED_LISTS_MAX: usize = 64;
/// Lists of one user kept at once.
pub const PAGED_LISTS_PER_USER_MAX: usize = 16;
/// Bytes of replaced objects one kept list may hold on to, and all of them together.
pub const PAGED_LIST_BYTES_MAX: u64 = 64 * 1024 * 1024;
pub const PAGED_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// After so many replaced bytes the kept lists are looked at.
const LOOK_EVERY_BYTES: u64 = 8 * 1024 * 1024;

#[derive(Default)]
pub struct Paged {
    /// Bytes of objects that were replaced or deleted, ever.
    replaced: AtomicU64,
    /// `replaced` at the last look.
    looked_at: AtomicU64,
    kept: Mutex<Vec<Kept>>,
}

struct Kept {
    user: Arc<str>,
    resource: GroupResource,
    listing: Listing,
    /// How many bytes of its objects are no longer the present ones.
    held: u64,
}

impl Paged {
    pub fn keep(&self, user: &str, resource: &GroupResource, listing: &Listing) {
        let mut kept = self.kept.lock();
        if kept.iter().any(|one| one.is(resource, listing.revision)) {
            return;
        }
        let mut count: HashMap<Arc<str>, usize> = HashMap::new();
        for one in kept.iter() {
            *count.entry(Arc::clone(&one.user)).or_default() += 1;
        }
        let makes_room: Option<Arc<str>> = if count.get(user).is_some_and(|own| *own >= PAGED_LISTS_PER_USER_MAX) {
            Some(user.into())
        } else if kept.len() >= PAGED_LISTS_MAX {
            count.into_iter().max_by_key(|(_, count)| *count).map(|(user, _)| user)
        } else {
            None
        };
        if let Some(at) = makes_room.and_then(|user| kept.iter().position(|one| one.user == user)) {
            kept.remove(at);
        }
        // One of the past holds on to what was replaced before it was asked for.
        let held = listing.held;
        kept.push(Kept { user: user.into(), resource: resource.clone(), listing: listing.clone(), held });
        shorten(&mut kept);
    }

    pub fn get(&self, resource: &GroupResource, revision: u64) -> Option<Listing> {
        self.kept.lock().iter().find(|one| one.is(resource, revision)).map(|one| one.listing.clone())
    }

    /// So many bytes of a resource's objects were replaced.
    pub fn replaced(&self, resource: &GroupResource, bytes: usize) {
        if bytes == 0 {
            return;
        }
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let mut kept = self.kept.lock();
        for one in kept.iter_mut().filter(|one| one.resource == *resource) {
            one.held = one.held.saturating_add(bytes);
        }
        let now = self.replaced.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        if now.saturating_sub(self.looked_at.load(Ordering::Relaxed)) < LOOK_EVERY_BYTES {
            return;
        }
        self.looked_at.store(now, Ordering::Relaxed);
        shorten(&mut kept);
    }
}

/// Lets go of lists that hold too much, one by one and together.
fn shorten(kept: &mut Vec<Kept>) {
    kept.retain(|one| one.held <= PAGED_LIST_BYTES_MAX);
    while kept.iter().map(|one| one.held).sum::<u64>() > PAGED_BYTES_MAX {
        let largest = kept.iter().enumerate().max_by_key(|(_, one)| one.held).map(|(at, _)| at);
        let Some(at) = largest else { break };
        kept.remove(at);
    }
}

impl Kept {
    fn is(&self, resource: &GroupResource, revision: u64) -> bool {
        self.listing.revision == revision && self.resource == *resource
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing(revision: u64) -> Listing {
        Listing { objects: imbl::OrdMap::new(), revision, held: 0 }
    }

    fn kept(paged: &Paged, resource: &GroupResource, revisions: std::ops::Range<u64>) -> usize {
        revisions.filter(|revision| paged.get(resource, *revision).is_some()).count()
    }

    #[test]
    fn one_users_many_lists_expire_its_own_and_nobody_elses() {
        let (paged, pods) = (Paged::default(), GroupResource::core("pods"));
        paged.keep("admin", &pods, &listing(1));
        for revision in 2..200 {
            paged.keep("flood", &pods, &listing(revision));
        }
        assert!(paged.get(&pods, 1).is_some(), "the admin's list is still there");
        assert_eq!(kept(&paged, &pods, 2..200), PAGED_LISTS_PER_USER_MAX);
        assert!(paged.get(&pods, 199).is_some(), "the newest of them is kept");
        for (at, user) in (200..300).zip(0..) {
            paged.keep(&format!("user-{user}"), &pods, &listing(at));
        }
        assert_eq!(kept(&paged, &pods, 0..300), PAGED_LISTS_MAX);
    }

    #[test]
    fn what_kept_lists_hold_on_to_is_bounded() {
        let (paged, pods, maps) = (Paged::default(), GroupResource::core("pods"), GroupResource::core("configmaps"));
        paged.keep("a", &pods, &listing(1));
        paged.keep("a", &maps, &listing(1));
        let megabytes = |count: usize| count * 1024 * 1024;
        paged.replaced(&pods, megabytes(60));
        assert!(paged.get(&pods, 1).is_some());
        paged.replaced(&pods, megabytes(9));
        assert!(paged.get(&pods, 1).is_none(), "too much has changed since");
        assert!(paged.get(&maps, 1).is_some(), "nothing of it has changed");
        // Many lists that hold a little each.
        let count = 16;
        for at in 0..count {
            paged.keep(&at.to_string(), &pods, &listing(100 + at));
        }
        paged.replaced(&pods, megabytes(20));
        assert_eq!(kept(&paged, &pods, 100..100 + count), 12, "256 MiB are 12 lists of 20");
    }

    /// A list of the past is not free because it is new.
    #[test]
    fn lists_of_the_past_come_with_what_they_hold() {
        let (paged, pods) = (Paged::default(), GroupResource::core("pods"));
        let past = |revision| Listing { held: 30 * 1024 * 1024, ..listing(revision) };
        for revision in 1..=16 {
            paged.keep(&revision.to_string(), &pods, &past(revision));
        }
        assert_eq!(kept(&paged, &pods, 1..17), 8, "256 MiB are 8 lists of 30");
        paged.keep("a", &pods, &Listing { held: PAGED_LIST_BYTES_MAX + 1, ..listing(100) });
        assert!(paged.get(&pods, 100).is_none());
    }
}
