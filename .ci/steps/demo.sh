#!/bin/bash
# The demo, as the README has it: three seconds, nothing lost without a reason, no flow reordered.
cargo run --release --locked -- demo --duration 3s
