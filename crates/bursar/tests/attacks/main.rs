//! What tenants, strangers and forgers try, as data: every attempt is refused with the right code, nobody else is harmed,
//! and the server is alive and small afterwards.
//!
//! One file a class: [`rights`] (doing what one may not), [`isolation`] (reaching a neighbour), [`evasion`] (getting more
//! than a quota allows), [`organizations`] (all of that over the API of organizations), [`exhaustion`] (making the server work or swell), [`forging`] (claiming what is not so), [`hoarding`]
//! (taking what all share and not giving it back). The language of the tables is in [`land`].

mod evasion;
mod exhaustion;
mod forging;
mod hoarding;
mod isolation;
mod land;
mod organizations;
#[path = "../serve/process.rs"]
#[allow(dead_code)]
mod process;
mod rights;
