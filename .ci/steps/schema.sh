#!/bin/bash
# The schemas of documents (docs/schema) beside the structs they are made from; the tests look at them, too. Runs only by name.
#
# A change of a document that is meant: FLOWLANE_SCHEMA=write .ci/run schema.
cargo test --workspace --locked --quiet --bin flowlane -- schema_of_
[ "${FLOWLANE_SCHEMA-}" != write ] || git --no-pager diff --stat -- docs/schema
