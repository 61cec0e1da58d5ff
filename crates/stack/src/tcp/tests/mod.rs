//! Dialogues with one engine, and two engines over a bad network.
//!
//! In a dialogue `send!` is the peer speaking and `recv!` is what it hears, each at a time in milliseconds. Segments are
//! written as packet captures show them, numbers relative to each side's initial sequence number:
//!
//! ```text
//!   flags  first:last(length)  ack n  win n  <options>
//!   S. 0:0(0) ack 1 win 65535 <mss 1460,nop,wscale 7>
//! ```
//!
//! What `recv!` leaves out (window, options) is not compared. Payload is always compared: byte n of a stream is a function
//! of n.

mod accurate;
mod answers;
mod attacks;
mod bbr;
mod close;
mod coalesce;
mod cookies;
mod data;
mod dual_queue;
mod dualpi2;
mod ecn;
mod fast_open;
mod fast_open_active;
mod floods;
mod flow_records;
mod guards;
mod handshake;
mod harness;
mod icmp;
mod keepalive;
mod listen;
mod loss;
mod lossy;
mod marked;
mod memory;
mod merging;
mod nagle;
mod options;
mod owned;
mod paced;
mod prague;
mod scarcity;
mod shortage;
mod time_wait;
mod undo;
mod window;

use harness::*;
