//! The fuzzer's way into [`flowlane_fuzz::memcached`].
#![no_main]

libfuzzer_sys::fuzz_target!(init: flowlane_fuzz::seeds::write("memcached"), |data: &[u8]| flowlane_fuzz::memcached::run(data));
