//! Runtimes in one process, joined by pairs in memory: order, completeness, quirks, lanes that move.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on may stop")]

mod basics;
mod capture;
mod capture_bursts;
mod cards;
mod connected;
mod crowd;
mod ending;
mod examples;
mod flows;
mod http;
mod links;
mod mail;
mod metrics;
mod moving;
mod outside;
mod panics;
mod poll_loop;
mod queues;
mod quirks;
mod rebalance;
mod relay;
mod service;
mod steps;
#[path = "../common/streams.rs"]
mod streams;
mod switch_hosts;
mod switched;
mod tcp;
mod tls;
mod traffic;
