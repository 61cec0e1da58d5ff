//! Links on cards that are not veth: virtio, vmxnet3 and e1000e in a guest with an older kernel; igb and virtio in zero copy, too, in a
//! guest with a newer one.
//!
//! These tests are the peer. `crates/testnet/guest/run` boots the guest and runs them in the network namespace that holds the
//! other ends of its cards; anywhere else they say that they are skipped. The guest does what [`guest::Guest::run`] tells it
//! over a serial port, so that nothing but the tests' own packets is on the cards.
//!
//! Every case of [`cases`] runs for each card and each link: `virtio::af_xdp::udp` is one of them.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod alignment;
mod card;
mod cases;
mod check;
mod guest;
mod metal;
mod older;
mod peer;
