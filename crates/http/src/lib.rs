//! HTTP on Flowlane: messages, TLS, and a server that is an ordinary user of the crate `flowlane`.
#![forbid(unsafe_code)]
