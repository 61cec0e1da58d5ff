//! The flowlane command.
fn main() {}
