#!/bin/bash
# Is everything formatted?
cargo fmt --all --check
