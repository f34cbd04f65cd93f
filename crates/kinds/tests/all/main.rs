//! Tests of the borders of this crate against Kubernetes' own Go code. One binary, because linking is slow.

mod facts;
mod parts;
mod roundtrip;
