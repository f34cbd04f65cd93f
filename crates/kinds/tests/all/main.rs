//! Tests of the borders of this crate against Kubernetes' own Go code. One binary, because linking is slow.

mod decode_harness;
mod definitions;
mod facts;
mod hostile;
mod hostile_patches;
mod merge_oracle;
mod parts;
mod patch_harness;
mod roundtrip;
