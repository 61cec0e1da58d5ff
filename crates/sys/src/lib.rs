//! See the workspace README.

pub mod toeplitz;
