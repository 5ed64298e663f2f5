//! Sets the soname of the shared library; `include/linx.h` says when its number changes.

/// The ABI version, part of the soname.
const ABI: u32 = 0;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libcrossway_linx.so.{ABI}");
}
