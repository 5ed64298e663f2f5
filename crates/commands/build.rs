//! Makes the libraries for unmodified programs part of the program, if CROSSWAY_LIBRARIES names a folder with them
//! (scripts/dist.sh), compressed to less than half. Other builds find them beside the program.

use std::io::Write;
use std::path::PathBuf;

use flate2::Compression;
use flate2::write::GzEncoder;

const LIBRARIES: [&str; 2] = ["libcrossway_preload.so", "libcrossway_tipc_preload.so"];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=CROSSWAY_LIBRARIES");
    let folder = std::env::var_os("CROSSWAY_LIBRARIES").map(PathBuf::from);
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it"));
    let mut entries = String::new();
    for (folder, name) in folder.iter().flat_map(|folder| LIBRARIES.map(|name| (folder, name))) {
        let path = folder.join(name);
        println!("cargo::rerun-if-changed={}", path.display());
        let content = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let mut packed = GzEncoder::new(Vec::new(), Compression::best());
        let packed = packed.write_all(&content).and_then(|()| packed.finish()).expect("memory");
        let file = out.join(format!("{name}.gz"));
        std::fs::write(&file, packed).expect("the output folder is writable");
        entries += &format!("({name:?}, include_bytes!({file:?})),");
    }
    let code = format!("&[{entries}]");
    std::fs::write(out.join("libraries.rs"), code).expect("the output folder is writable");
}
