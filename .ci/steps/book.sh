#!/bin/bash
# The documentation as a book (contrib/book/build): no page is missing, no link leads nowhere.
#
# mdbook is built below the target directory, which takes some minutes, so this runs only by name. That links lead somewhere in the
# repository is a test of flowlane-tidy.
version=0.5.4
tools=$CI_TARGET/tools
export PATH=$tools/bin:$PATH
if ! mdbook --version 2>/dev/null | grep -qF "$version"; then
    retry cargo install mdbook --quiet --locked --no-default-features --features search --version "$version" --root "$tools" --target-dir "$tools/build" ||
        skip "mdbook is not to be had"
    rm -rf "$tools/build"
fi
contrib/book/build
