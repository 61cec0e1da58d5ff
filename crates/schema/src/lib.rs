//! Tests only: the schemas in `docs/schema`, made from the structs that documents are written from ([`Made`]), and documents against these
//! schemas ([`faults`], [`check`]).
//!
//! A schema says what the struct says: names, types, which members may be missing, and the doc comments as descriptions. Each has a test
//! in the command, `schema_of_NAME`: in `crates/cli/src/schemas.rs` for structs of libraries, beside the struct for those of a command. A file
//! that differs from its struct fails the test, and `FLOWLANE_SCHEMA=write .ci/run schema` writes it anew. `docs/schema/README.md` lists
//! them, and those that are written by hand.
//!
//! Nothing of this is in a program that is released: structs have `schemars::JsonSchema` in tests and with the feature `schema` only.
#![forbid(unsafe_code)]

mod check;
mod made;
mod tidied;

use std::path::PathBuf;

pub use check::{check, check_part, faults, faults_of_part};
pub use made::Made;

/// The file of a schema: `docs/schema/NAME.json`.
fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/schema").join(format!("{name}.json"))
}
