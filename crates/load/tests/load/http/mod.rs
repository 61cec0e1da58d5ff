//! The HTTP generator against servers made by hand, in one process over the pair link: good ones and bad ones.

mod counts;
mod early;
mod ends;
mod faults;
mod figures;
mod h2;
mod kit;
mod options;
mod parts;
mod redirects;
mod scale;
mod stall;
