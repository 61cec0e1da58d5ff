//! One binary, one file per theme.

mod discovery;
mod flow;
mod network;
mod transport;
