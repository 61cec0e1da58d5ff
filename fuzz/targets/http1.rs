//! The fuzzer's way into [`flowlane_fuzz::http1`].
#![no_main]

libfuzzer_sys::fuzz_target!(init: flowlane_fuzz::seeds::write("http1"), |data: &[u8]| flowlane_fuzz::http1::run(data));
