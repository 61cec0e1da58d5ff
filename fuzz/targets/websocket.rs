//! The fuzzer's way into [`flowlane_fuzz::websocket`].
#![no_main]

libfuzzer_sys::fuzz_target!(init: flowlane_fuzz::seeds::write("websocket"), |data: &[u8]| flowlane_fuzz::websocket::run(data));
