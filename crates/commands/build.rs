//! Makes the libraries for unmodified programs part of the program, if CROSSWAY_LIBRARIES names a folder with them
//! (scripts/dist.sh), compressed to less than a third: together, as they have much in common. Other builds find them beside
//! the program.

use std::io::Write;
use std::path::PathBuf;

use lzma_rust2::{LzmaOptions, LzmaWriter};

const LIBRARIES: [&str; 2] = ["libcrossway_preload.so", "libcrossway_tipc_preload.so"];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=CROSSWAY_LIBRARIES");
    let folder = std::env::var_os("CROSSWAY_LIBRARIES").map(PathBuf::from);
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it"));
    let mut content = Vec::new();
    let mut entries = String::new();
    for (folder, name) in folder.iter().flat_map(|folder| LIBRARIES.map(|name| (folder, name))) {
        let path = folder.join(name);
        println!("cargo::rerun-if-changed={}", path.display());
        let library = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        entries += &format!("({name:?}, {}..{}),", content.len(), content.len() + library.len());
        content.extend(library);
    }
    let file = out.join("libraries.lzma");
    std::fs::write(&file, packed(&content).expect("memory"))
        .expect("the output folder is writable");
    let code = format!("(&[{entries}], include_bytes!({file:?}))");
    std::fs::write(out.join("libraries.rs"), code).expect("the output folder is writable");
}

fn packed(content: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut options = LzmaOptions::with_preset(9);
    // More would be allocated in vain when this is unpacked.
    options.dict_size = content.len().max(4096) as u32;
    let mut packed = LzmaWriter::new_use_header(Vec::new(), &options, Some(content.len() as u64))?;
    packed.write_all(content)?;
    packed.finish()
}
