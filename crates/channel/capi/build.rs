//! Gives the shared object the name that programs bind to; `include/crossway_channel.h` says when its number rises.

/// The number of the ABI.
const ABI: u32 = 0;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libcrossway_channel.so.{ABI}");
}
