//! The fuzzer's way into [`flowlane_fuzz::switch`].
#![no_main]

libfuzzer_sys::fuzz_target!(init: flowlane_fuzz::seeds::write("switch"), |data: &[u8]| flowlane_fuzz::switch::run(data));
