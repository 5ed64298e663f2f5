//! Sets the soname of the shared library. The comment at the start of `include/crossway_tipc.h` says when its number
//! changes.

/// ABI version number.
const ABI: u32 = 0;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libcrossway_tipc.so.{ABI}");
}
