//! What clients asked and heard, with the moments in between.

use crate::engine::Answer;
use crate::naive::ops::Op;

/// One call of one client. Moments are ticks of the world: they order events, they do not measure time.
#[derive(Clone, Debug)]
pub struct Call {
    pub client: u32,
    pub number: u64,
    pub op: Op,
    pub called: u64,
    /// `None` when the client never heard: it may have happened once, or not at all.
    pub returned: Option<Returned>,
}

#[derive(Clone, Debug)]
pub struct Returned {
    pub at: u64,
    pub answer: Answer,
}
