//! Sets the soname of the shared object; `include/crossway_tipc.h` explains when its number changes.

/// ABI version number.
const ABI: u32 = 0;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libcrossway_tipc.so.{ABI}");
}
