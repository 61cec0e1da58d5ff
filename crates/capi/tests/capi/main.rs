//! libflowlane as C programs see it: its header, its shared object, the examples, compiled and run, and the man pages.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends")]

mod header;
mod installed;
mod library;
mod pages;
mod programs;

use std::path::{Path, PathBuf};

/// The crate.
fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_path_buf()
}
