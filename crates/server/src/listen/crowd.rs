//! All open connections, bounded in number. When there are too many, the one that has been idle longest goes, and of those
//! the ones that never asked for anything first; when nobody is idle, the newcomer is told to come back.

use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use super::pulse::Pulse;

/// How long a newcomer waits for the one that makes room. Who never asked is gone at once, others say goodbye first.
const ROOM_TIME_MAX: Duration = Duration::from_secs(5);

pub(super) struct Crowd {
    places: Arc<Semaphore>,
    /// Newcomers beyond the places: waiting for room, or being told that there is none.
    porch: Arc<Semaphore>,
    members: Mutex<Members>,
}

#[derive(Default)]
struct Members {
    next_id: u64,
    all: HashMap<u64, (Arc<Pulse>, CancellationToken)>,
}

/// A connection that was accepted and has no place yet.
pub(super) struct Arrival {
    crowd: Arc<Crowd>,
    permit: Permit,
}

enum Permit {
    Place(OwnedSemaphorePermit),
    Porch(OwnedSemaphorePermit),
}

/// A connection's place; dropping it frees the place.
pub(super) struct Member {
    crowd: Arc<Crowd>,
    id: u64,
    pub pulse: Arc<Pulse>,
    /// Cancelled when it is to make room.
    pub leave: CancellationToken,
    /// There is no room: whatever it asks, it is told to come back later.
    pub refused: bool,
    _permit: OwnedSemaphorePermit,
}

impl Crowd {
    pub fn new(places: usize) -> Arc<Crowd> {
        let porch = (places / 8).clamp(4, 256);
        Arc::new(Crowd {
            places: Arc::new(Semaphore::new(places)),
            porch: Arc::new(Semaphore::new(porch)),
            members: Mutex::default(),
        })
    }

    /// None when even the porch is full.
    pub fn arrive(self: &Arc<Crowd>) -> Option<Arrival> {
        let place = Arc::clone(&self.places).try_acquire_owned().map(Permit::Place);
        let permit = place.or_else(|_| Arc::clone(&self.porch).try_acquire_owned().map(Permit::Porch)).ok()?;
        Some(Arrival { crowd: Arc::clone(self), permit })
    }

    /// Asks the connection that is missed least to go.
    fn make_room(&self) -> bool {
        let mut members = self.members.lock();
        let idlest = members.all.iter().filter_map(|(id, (pulse, _))| Some((pulse.idle()?, *id))).min();
        // Taken out at once, so that two newcomers do not count on the same place.
        let leaves = idlest.and_then(|(_, id)| members.all.remove(&id));
        leaves.inspect(|(_, leave)| leave.cancel()).is_some()
    }

    fn join(self: Arc<Crowd>, permit: OwnedSemaphorePermit, refused: bool) -> Member {
        let (pulse, leave) = (Pulse::new(), CancellationToken::new());
        let mut members = self.members.lock();
        let id = members.next_id;
        members.next_id += 1;
        if !refused {
            members.all.insert(id, (Arc::clone(&pulse), leave.clone()));
        }
        drop(members);
        Member { crowd: self, id, pulse, leave, refused, _permit: permit }
    }
}

impl Arrival {
    pub async fn placed(self) -> Member {
        let Arrival { crowd, permit } = self;
        let porch = match permit {
            Permit::Place(place) => return crowd.join(place, false),
            Permit::Porch(porch) => porch,
        };
        if crowd.make_room() {
            let place = Arc::clone(&crowd.places).acquire_owned();
            if let Ok(Ok(place)) = tokio::time::timeout(ROOM_TIME_MAX, place).await {
                return crowd.join(place, false);
            }
        }
        crowd.join(porch, true)
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.crowd.members.lock().all.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_silent_go_first_then_the_idle_and_nobody_at_work() {
        let crowd = Crowd::new(3);
        let mut members = Vec::new();
        for _ in 0..3 {
            members.push(crowd.arrive().expect("a place").placed().await);
        }
        let [at_work, idle, silent] = members.try_into().ok().expect("three");
        let request = at_work.pulse.begin();
        drop(idle.pulse.begin());
        // Each leaves when it is asked to, as connections do.
        let went = |member: Member| async move {
            member.leave.cancelled().await;
            drop(member);
        };
        let (newcomer, ()) = tokio::join!(crowd.arrive().expect("room").placed(), went(silent));
        assert!(!newcomer.refused && !idle.leave.is_cancelled() && !at_work.leave.is_cancelled());
        let asked = newcomer.pulse.begin();
        let (second, ()) = tokio::join!(crowd.arrive().expect("room").placed(), went(idle));
        assert!(!second.refused && !at_work.leave.is_cancelled());
        let busy = second.pulse.begin();
        // All at work: four are told so, the fifth not even that.
        let mut refused = Vec::new();
        for _ in 0..4 {
            refused.push(crowd.arrive().expect("the porch").placed().await);
        }
        assert!(refused.iter().all(|member| member.refused));
        assert!(crowd.arrive().is_none());
        drop((request, asked, busy));
    }
}
