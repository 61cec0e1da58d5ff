//! The fuzzer's way into [`flowlane_fuzz::wire`].
#![no_main]

libfuzzer_sys::fuzz_target!(init: flowlane_fuzz::seeds::write("wire"), |data: &[u8]| flowlane_fuzz::wire::run(data));
