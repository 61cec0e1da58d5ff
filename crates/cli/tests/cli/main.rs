//! The command as people run it. One program for all of it: linking is most of what a test program costs to build.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod addresses;
#[cfg(feature = "agents")]
mod agents;
mod autobahn;
mod bench;
mod capabilities;
mod check;
mod compare;
mod congestion;
#[cfg(feature = "agents")]
mod containers;
mod counted;
mod demo;
mod doctor;
mod ends;
mod epair;
#[path = "../../../load/tests/load/report/fixture.rs"]
mod fixture;
mod h2spec;
mod handed;
mod lab;
mod learn;
mod link_faults;
mod load;
mod load_abort;
mod load_bursts;
mod load_find;
mod load_http;
mod load_http_aws;
mod load_http_data;
mod load_http_grpc;
mod load_http_h3;
mod load_http_links;
mod load_http_options;
mod load_http_replay;
mod load_http_via;
mod load_memcached;
mod load_push;
mod load_serve;
mod load_set;
mod load_target;
mod load_tcp;
mod load_ws;
#[path = "../../../load/tests/load/report/markup.rs"]
mod markup;
mod metrics;
mod outputs;
mod peers;
mod queues;
mod relay;
mod rss;
mod serve;
mod serve_http;
mod serve_http_h3;
mod serve_memcached;
mod service_file;
mod sharing;
mod stat;
mod suspend;
mod switch;
mod top;
mod trace;
mod tune;
mod tutorials;
mod views;
mod watching;
mod web;
mod width;
mod wire;
mod zones;
