//! Lanes joined in memory, on a virtual clock: hosts that talk, and hosts that are talked to badly.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod addresses;
mod echo;
mod elsewhere;
mod fragments;
mod groups;
mod hostile;
mod links;
mod net;
mod path_mtu;
mod resolution;
mod routers;
mod strangers;
mod tcp;
mod tunnels;
