//! The fuzzer's way into [`flowlane_fuzz::wire`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| flowlane_fuzz::wire::run(data));
