//! The first file system of a guest under QEMU: this program with the libraries that it uses, and the modules with which
//! the guest's kernel reaches this machine's files.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crossway_sys::program;
use object::Endianness;
use object::elf::{FileHeader64, PT_LOAD};
use object::read::elf::{FileHeader, ProgramHeader};

use super::GuestKernel;
use super::modules::Modules;
use super::record::GuestFiles;

/// Modules without which a guest cannot reach this machine: PCI devices, the line to the keeper, and the file system.
const NEEDED: [&str; 4] = ["virtio_pci", "virtio_console", "9pnet_virtio", "9p"];
/// The folder of these modules in the guest.
pub(super) const MODULES: &str = "/modules";
/// The setup file in the guest.
pub(super) const SETUP: &str = "/setup.json";

/// Makes the first file system of a guest of `kernel`, with the guest's setup file.
///
/// # Errors
/// As for [`write`], or the kernel's list of modules cannot be read.
pub(super) fn make(kernel: &GuestKernel, files: &GuestFiles) -> Result<(), String> {
    let setup = files.setup();
    let setup = fs::read_to_string(&setup).map_err(|e| format!("{}: {e}", setup.display()))?;
    let modules = kernel.modules.as_deref().map(Modules::read).transpose();
    let modules = modules.map_err(|e| format!("the modules of {}: {e}", kernel.release))?;
    write(&files.initrd(), &setup, modules.as_ref())
}

/// Writes the file system: the running program as `/init`, `setup` as [`SETUP`], and the modules, whose names begin with
/// their place in the order in which they have to be loaded.
///
/// # Errors
/// A file cannot be read, a module cannot be unpacked, or the output cannot be written. The text names the file.
fn write(to: &Path, setup: &str, modules: Option<&Modules>) -> Result<(), String> {
    let file = fs::File::create(to).map_err(|e| format!("{}: {e}", to.display()))?;
    let mut archive = Archive { out: io::BufWriter::new(file), made: BTreeSet::new(), number: 0 };
    let failed = |e: io::Error| format!("{}: {e}", to.display());
    for folder in ["/proc", "/sys", "/dev", "/host", MODULES] {
        archive.folder(Path::new(folder)).map_err(failed)?;
    }
    let own = Path::new("/proc/self/exe");
    let image = fs::read(own).map_err(|e| format!("{}: {e}", own.display()))?;
    archive.file(Path::new("/init"), loaded_part(&image), 0o755).map_err(failed)?;
    for (path, library) in libraries(&image)? {
        archive.file(&path, loaded_part(&library), 0o755).map_err(failed)?;
    }
    archive.file(Path::new(SETUP), setup.as_bytes(), 0o644).map_err(failed)?;
    let mut order: Vec<PathBuf> = Vec::new();
    for file in NEEDED.iter().flat_map(|name| modules.map(|m| m.in_order(name)).unwrap_or_default())
    {
        if !order.contains(&file) {
            order.push(file);
        }
    }
    for (number, file) in order.iter().enumerate() {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let name = name.split('.').next().unwrap_or_default();
        let bytes = unpacked(file).map_err(|e| format!("{}: {e}", file.display()))?;
        let path = format!("{MODULES}/{number:02}-{name}.ko");
        archive.file(Path::new(&path), &bytes, 0o644).map_err(failed)?;
    }
    archive.end().map_err(failed)
}

/// Reads a module, which may be compressed; the first kernels that unpack modules themselves are newer than those that
/// guests run.
///
/// # Errors
/// The file cannot be read, or the tool that unpacks it is missing or fails.
pub(super) fn unpacked(file: &Path) -> io::Result<Vec<u8>> {
    let tool = match file.extension().and_then(|e| e.to_str()) {
        Some("xz") => "xz",
        Some("zst") => "zstd",
        Some("gz") => "gzip",
        _ => return fs::read(file),
    };
    let output = Command::new(tool)
        .arg("-dc")
        .arg(file)
        .env("PATH", program::search_path())
        .stdin(Stdio::null())
        .output()
        .map_err(|e| io::Error::new(e.kind(), format!("cannot be unpacked with {tool}: {e}")))?;
    match output.status.success() {
        true => Ok(output.stdout),
        false => Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned())),
    }
}

/// The beginning of an ELF file up to the last byte that is loaded to run it. What follows, such as the text for debuggers,
/// can be ten times as large.
fn loaded_part(image: &[u8]) -> &[u8] {
    let end = || {
        let header = FileHeader64::<Endianness>::parse(image).ok()?;
        let endian = header.endian().ok()?;
        let parts = header.program_headers(endian, image).ok()?;
        let loaded = parts.iter().filter(|part| part.p_type(endian) == PT_LOAD);
        loaded.map(|part| part.p_offset(endian) + part.p_filesz(endian)).max()
    };
    end().and_then(|end| image.get(..end as usize)).unwrap_or(image)
}

/// The loader and the libraries of the running program, each with the path at which it is looked for; none if the program
/// is static.
fn libraries(image: &[u8]) -> Result<Vec<(PathBuf, Vec<u8>)>, String> {
    let Some(loader) = loader_of(image) else { return Ok(Vec::new()) };
    let maps =
        fs::read_to_string("/proc/self/maps").map_err(|e| format!("/proc/self/maps: {e}"))?;
    let files: BTreeSet<&str> = maps
        .lines()
        .filter(|line| line.split_ascii_whitespace().nth(1).is_some_and(|mode| mode.contains('x')))
        .filter_map(|line| line.find('/').map(|at| &line[at..]))
        .collect();
    let own = fs::read_link("/proc/self/exe").unwrap_or_default();
    let mut found = vec![loader.clone()];
    found.extend(
        files.into_iter().map(PathBuf::from).filter(|file| *file != own && *file != loader),
    );
    let read = |path: PathBuf| match fs::read(&path) {
        Ok(bytes) => Ok((path, bytes)),
        Err(e) => Err(format!("{}: {e}", path.display())),
    };
    found.into_iter().map(read).collect()
}

/// The program that loads this one with its libraries; `None` if it is static.
fn loader_of(image: &[u8]) -> Option<PathBuf> {
    let header = FileHeader64::<Endianness>::parse(image).ok()?;
    let endian = header.endian().ok()?;
    let parts = header.program_headers(endian, image).ok()?;
    let path = parts.iter().find_map(|part| part.interpreter(endian, image).ok().flatten())?;
    Some(PathBuf::from(String::from_utf8_lossy(path).into_owned()))
}

/// An archive of files in the format that kernels unpack (Documentation/driver-api/early-userspace/buffer-format.rst,
/// "newc").
struct Archive<W: Write> {
    out: W,
    made: BTreeSet<PathBuf>,
    number: u32,
}

impl<W: Write> Archive<W> {
    fn folder(&mut self, path: &Path) -> io::Result<()> {
        if path.parent().is_none() || !self.made.insert(path.to_owned()) {
            return Ok(());
        }
        if let Some(above) = path.parent() {
            self.folder(above)?;
        }
        self.entry(path, &[], 0o040_755)
    }

    fn file(&mut self, path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
        if let Some(above) = path.parent() {
            self.folder(above)?;
        }
        self.entry(path, bytes, 0o100_000 | mode)
    }

    fn end(mut self) -> io::Result<()> {
        self.entry(Path::new("/TRAILER!!!"), &[], 0)?;
        self.out.flush()
    }

    fn entry(&mut self, path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
        let name = path.to_string_lossy();
        let name = name.trim_start_matches('/');
        let size = u32::try_from(bytes.len())
            .map_err(|_| io::Error::other(format!("{name} is larger than 4 GiB")))?;
        self.number += 1;
        // Inode, mode, user, group, links, time, size, device and its number twice, length of the name, checksum.
        let links = if mode & 0o040_000 == 0 { 1 } else { 2 };
        let length = name.len() as u32 + 1;
        let fields = [self.number, mode, 0, 0, links, 0, size, 0, 0, 0, 0, length, 0];
        let mut header = String::from("070701");
        for field in fields {
            header.push_str(&format!("{field:08x}"));
        }
        self.out.write_all(header.as_bytes())?;
        self.out.write_all(name.as_bytes())?;
        self.out.write_all(&[0])?;
        self.pad(header.len() + name.len() + 1)?;
        self.out.write_all(bytes)?;
        self.pad(bytes.len())
    }

    fn pad(&mut self, written: usize) -> io::Result<()> {
        self.out.write_all(&[0; 3][..written.wrapping_neg() % 4])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loaded_part_of_a_program_runs() {
        let image = fs::read("/proc/self/exe").unwrap();
        let part = loaded_part(&image);
        assert!(part.len() < image.len(), "{} of {} bytes", part.len(), image.len());
        let folder = tempfile::tempdir().unwrap();
        let copy = folder.path().join("copy");
        fs::write(&copy, part).unwrap();
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).unwrap();
        let listed = Command::new(&copy).args(["--list", "initrd"]).output().unwrap();
        assert!(String::from_utf8_lossy(&listed.stdout).contains("the_loaded_part"), "{listed:?}");
        assert_eq!(loaded_part(b"#!/bin/sh\n"), b"#!/bin/sh\n");
    }

    #[test]
    fn an_archive_is_what_cpio_reads() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("initrd");
        write(&file, "{\"a\":1}", None).unwrap();
        let Some(cpio) = program::find("cpio") else {
            eprintln!("SKIP: no cpio; sudo apt-get install cpio");
            return;
        };
        let input = fs::File::open(&file).unwrap();
        let out = Command::new(cpio)
            .args(["-idm", "--quiet"])
            .current_dir(folder.path())
            .stdin(input)
            .output()
            .unwrap();
        assert!(out.status.success() && out.stderr.is_empty(), "{out:?}");
        assert_eq!(fs::read(folder.path().join("setup.json")).unwrap(), b"{\"a\":1}");
        let own = fs::read("/proc/self/exe").unwrap();
        assert_eq!(fs::read(folder.path().join("init")).unwrap(), loaded_part(&own));
        for (path, bytes) in libraries(&own).unwrap() {
            let there = folder.path().join(path.strip_prefix("/").unwrap());
            assert_eq!(fs::read(there).unwrap(), loaded_part(&bytes), "{}", path.display());
        }
    }
}
