//! Organizations: commands carried out on the engine in memory.

mod board;
mod cluster;
mod ended;
mod gates;
mod kept;
mod limits;
mod meeting;
mod platform;
mod replacing;
mod scheduling;
mod stories;
mod storm;
mod turns;
