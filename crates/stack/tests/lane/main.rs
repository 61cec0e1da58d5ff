//! Lanes joined in memory, on a virtual clock: hosts that talk, and hosts that are talked to badly.

mod echo;
mod fragments;
mod hostile;
mod net;
mod resolution;
