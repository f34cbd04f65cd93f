//! What is known about kinds of objects, and what can be done with an object by knowing its kind: decoding, field
//! validation, patches, server-side apply, structural schemas, OpenAPI, what a built-in kind does beyond its schema. Pure
//! functions on `serde_json::Value`.
//!
//! Start reading at [`schema::Catalogue`]: built-in kinds and custom resources both become one.

pub mod apply;
pub mod bounds;
pub mod builtin;
pub mod conditions;
pub mod decode;
pub mod events;
pub mod facts;
pub mod field_error;
pub mod fields;
pub mod names;
pub mod openapi;
pub mod patch;
pub mod resources;
pub mod schema;
pub mod strategies;
pub mod structural;
pub mod time;
pub mod uid;

pub use builtin::builtin;
pub use facts::facts;

#[cfg(test)]
mod test_schema;
