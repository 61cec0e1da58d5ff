//! Tells the crate whether the compiler has the vector intrinsics of `toeplitz` (stable since Rust 1.89), and whether the library for
//! `io_uring` knows the processor.
//!
//! The crate must also build with Rust 1.85, where the portable forms do the work; `cfg(version)` is not stable.

use std::process::Command;

/// As in `Cargo.toml`, where the library is a dependency on these.
const URING: [&str; 5] = ["x86_64", "aarch64", "riscv64", "loongarch64", "powerpc64"];

fn main() {
    println!("cargo::rustc-check-cfg=cfg(flowlane_uring)");
    println!("cargo::rustc-check-cfg=cfg(flowlane_vector)");
    if std::env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|arch| URING.contains(&arch.as_str())) {
        println!("cargo::rustc-cfg=flowlane_uring");
    }
    println!("cargo::rerun-if-changed=build.rs");
    if minor_version().is_some_and(|minor| minor >= 89) {
        println!("cargo::rustc-cfg=flowlane_vector");
    }
}

/// The `N` of the compiler's version `1.N`, or nothing if it does not say.
fn minor_version() -> Option<u32> {
    let output = Command::new(std::env::var_os("RUSTC")?).arg("--version").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    text.split_whitespace().nth(1)?.strip_prefix("1.")?.split('.').next()?.parse().ok()
}
