//! Makes the libraries for unmodified programs part of the program, if CROSSWAY_LIBRARIES names a folder with them
//! (scripts/dist.sh). Other builds find them beside the program.

use std::path::PathBuf;

const LIBRARIES: [&str; 2] = ["libcrossway_preload.so", "libcrossway_tipc_preload.so"];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=CROSSWAY_LIBRARIES");
    let folder = std::env::var_os("CROSSWAY_LIBRARIES").map(PathBuf::from);
    let mut entries = String::new();
    for (folder, name) in folder.iter().flat_map(|folder| LIBRARIES.map(|name| (folder, name))) {
        let path = folder.join(name);
        println!("cargo::rerun-if-changed={}", path.display());
        entries += &format!("({name:?}, include_bytes!({path:?})),");
    }
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it"));
    let code = format!("&[{entries}]");
    std::fs::write(out.join("libraries.rs"), code).expect("the output folder is writable");
}
