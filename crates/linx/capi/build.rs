//! Sets the soname of the shared object, to which programs bind; `include/linx.h` says when its number
//! changes.

/// The version number of the ABI.
const ABI: u32 = 0;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libcrossway_linx.so.{ABI}");
}
