//! The generator against servers that know what they did, and its reports.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod faults;
mod http;
mod knock;
mod memcached;
mod report;
mod staying;
mod tcp;
mod ws;
