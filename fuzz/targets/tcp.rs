//! The fuzzer's way into [`flowlane_fuzz::tcp`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| flowlane_fuzz::tcp::run(data));
