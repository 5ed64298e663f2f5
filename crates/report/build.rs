//! Compresses the chart library, which is most of a page.

use std::io::Write;
use std::path::Path;

use lzma_rust2::{LzmaOptions, LzmaWriter};

const LIBRARY: &str = "vendor/plotly-cartesian.min.js";

fn main() {
    println!("cargo::rerun-if-changed={LIBRARY}");
    let text = std::fs::read(LIBRARY).expect(LIBRARY);
    let folder = std::env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    let packed = packed(&text).expect("memory");
    std::fs::write(Path::new(&folder).join("plotly.js.lzma"), packed).expect("OUT_DIR is writable");
}

fn packed(content: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut options = LzmaOptions::with_preset(9);
    // More would be allocated in vain when this is unpacked.
    options.dict_size = content.len() as u32;
    let mut packed = LzmaWriter::new_use_header(Vec::new(), &options, Some(content.len() as u64))?;
    packed.write_all(content)?;
    packed.finish()
}
