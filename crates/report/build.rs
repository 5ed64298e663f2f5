//! Compresses the chart library, which is most of a page and a tenth of the program.

use std::io::Write;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;

const LIBRARY: &str = "vendor/plotly-cartesian.min.js";

fn main() {
    println!("cargo::rerun-if-changed={LIBRARY}");
    let text = std::fs::read(LIBRARY).expect(LIBRARY);
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    let packed = packed.write_all(&text).and_then(|()| packed.finish()).expect("memory");
    let folder = std::env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    std::fs::write(Path::new(&folder).join("plotly.js.gz"), packed).expect("OUT_DIR is writable");
}
