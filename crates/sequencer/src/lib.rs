//! sequencer
