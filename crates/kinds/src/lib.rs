//! What Bursar knows about kinds: the shape of built-in and custom objects, and the pure functions over that shape.

pub mod field_error;
