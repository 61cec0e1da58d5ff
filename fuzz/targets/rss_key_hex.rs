//! The fuzzer's way into [`flowlane_fuzz::rss_key_hex`].
#![no_main]

libfuzzer_sys::fuzz_target!(init: flowlane_fuzz::seeds::write("rss_key_hex"), |data: &[u8]| flowlane_fuzz::rss_key_hex::run(data));
