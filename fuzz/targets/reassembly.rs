//! The fuzzer's way into [`flowlane_fuzz::reassembly`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| flowlane_fuzz::reassembly::run(data));
