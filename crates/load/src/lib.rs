//! See the workspace README.
#![forbid(unsafe_code)]

pub mod units;
