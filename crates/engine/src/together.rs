//! Several writes at once, and the expressions that are asked about their objects: nobody waits for those of any of them.

use std::collections::HashMap;

use ledger::SubjectId;
use rules::cel::{Foresight, Known};

use crate::command::{Foreseen, PostponedAll, Refused};
use crate::slices::Found;

/// Why several writes did not happen: the first that was refused, or all of them are to be sent again.
pub(crate) enum Unwritten {
    Refused(usize, Refused),
    PutOff(Box<PostponedAll>),
}

impl From<(usize, Refused)> for Unwritten {
    fn from((place, refused): (usize, Refused)) -> Unwritten {
        Unwritten::Refused(place, refused)
    }
}

/// What is known of each of several objects.
pub(crate) struct Foresights {
    known: HashMap<SubjectId, Box<Known>>,
    /// None where nobody asks: all is evaluated on the spot.
    is_last: Option<bool>,
}

impl Foresights {
    pub fn of(foreseen: Option<Foreseen>) -> Foresights {
        let is_last = foreseen.as_ref().map(|foreseen| foreseen.is_last);
        let mut known: HashMap<SubjectId, Box<Known>> = HashMap::new();
        for Found { subject, known: found } in foreseen.into_iter().flat_map(|foreseen| foreseen.found) {
            match known.get_mut(&subject) {
                Some(before) => before.join(*found),
                None => drop(known.insert(subject, found)),
            }
        }
        Foresights { known, is_last }
    }

    pub fn take(&mut self, subject: SubjectId) -> Foresight {
        match (self.is_last, self.known.remove(&subject)) {
            (None, _) => Foresight::None,
            (Some(true), known) => Foresight::Last(known.unwrap_or_default()),
            (Some(false), Some(known)) => Foresight::Known(known),
            (Some(false), None) => Foresight::Asked,
        }
    }
}
