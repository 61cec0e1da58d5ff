//! Tests only (`tests/tidy`): what holds of every file of the source, of whichever crate.
#![forbid(unsafe_code)]
