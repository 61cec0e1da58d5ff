//! The fuzzer's way into [`flowlane_fuzz::proxy`].
#![no_main]

libfuzzer_sys::fuzz_target!(init: flowlane_fuzz::seeds::write("proxy"), |data: &[u8]| flowlane_fuzz::proxy::run(data));
