//! The HTTP generator against servers made by hand, in one process over the pair link: good ones and bad ones.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod counts;
mod faults;
mod figures;
mod h2;
mod kit;
mod options;
mod parts;
mod scale;
mod stall;
