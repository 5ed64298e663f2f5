//! Replaces the histogram files of a run that is kept by one archive: `pack_histograms RUN`.

use std::path::Path;

fn main() -> std::io::Result<()> {
    let Some(dir) = std::env::args_os().nth(1) else {
        return Err(std::io::Error::other("name the run's folder"));
    };
    let files = crossway_records::histogram::pack(Path::new(&dir))?;
    println!("{files} files are now in {}", crossway_records::histogram::ARCHIVE);
    Ok(())
}
