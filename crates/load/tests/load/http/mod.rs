//! The HTTP generator against servers made by hand, in one process over the pair link: good ones and bad ones.

mod aws;
mod changer;
mod counts;
mod data;
mod early;
mod ends;
mod events;
mod faults;
mod figures;
mod flows;
mod gone;
mod grpc;
mod h2;
mod kept;
mod kit;
mod options;
mod parts;
mod redirects;
mod replay;
mod scale;
mod stall;
