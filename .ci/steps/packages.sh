#!/bin/bash
# Installs what the other steps need; shows what they run on.
have_packages cc=gcc g++=g++ ip=iproute2 ethtool=ethtool || note "packages: some are missing; the steps that need them say so"
cargo --version
rustc --version
echo "$(nproc) cores, $(uname -sr), $(is_root && echo root || echo "not root")"
