//! The fuzzer's way into [`flowlane_fuzz::classify`].
#![no_main]

libfuzzer_sys::fuzz_target!(init: flowlane_fuzz::seeds::write("classify"), |data: &[u8]| flowlane_fuzz::classify::run(data));
