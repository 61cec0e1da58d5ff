//! Runtimes in one process, joined by pairs in memory: order, completeness, quirks, lanes that move.

mod basics;
mod http;
mod moving;
mod quirks;
mod tcp;
mod traffic;
