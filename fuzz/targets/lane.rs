//! The fuzzer's way into [`flowlane_fuzz::lane`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| flowlane_fuzz::lane::run(data));
