//! The fuzzer's way into [`flowlane_fuzz::http3`].
#![no_main]

libfuzzer_sys::fuzz_target!(init: flowlane_fuzz::seeds::write("http3"), |data: &[u8]| flowlane_fuzz::http3::run(data));
