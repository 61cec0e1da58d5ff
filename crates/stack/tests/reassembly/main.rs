//! Reassembly by itself: every order, every overlap, every bound.

mod bounds;
mod kit;
mod model;
mod operations;
mod orders;
