//! The fuzzer's way into [`flowlane_fuzz::reassembly`].
#![no_main]

libfuzzer_sys::fuzz_target!(init: flowlane_fuzz::seeds::write("reassembly"), |data: &[u8]| flowlane_fuzz::reassembly::run(data));
