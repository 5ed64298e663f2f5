//! Where contenders' declarations, what is built of them and the helpers lie.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use super::Contender;
use super::declaration::{self, DeclarationError};

/// The helper for programs in C.
const C_HELPER: (&str, &str) =
    ("crossway_contender.h", include_str!("../../../../contenders/helpers/crossway_contender.h"));
/// The helper for programs in Python.
const PYTHON_HELPER: (&str, &str) =
    ("crossway_contender.py", include_str!("../../../../contenders/helpers/crossway_contender.py"));
/// The helper for programs in Go.
const GO_HELPER: (&str, &str) =
    ("crossway_contender.go", include_str!("../../../../contenders/helpers/crossway_contender.go"));
/// The helper for programs in Rust.
const RUST_HELPER: (&str, &str) =
    ("crossway_contender.rs", include_str!("../../../../contenders/helpers/crossway_contender.rs"));

/// There is no place to build in.
#[derive(Debug, thiserror::Error)]
#[error("contenders are built below {dir}, which cannot be made: {cause}; set XDG_CACHE_HOME")]
pub struct NoFolder {
    /// The directory.
    pub dir: PathBuf,
    /// Why it cannot be made.
    pub cause: std::io::Error,
}

/// Where declarations are looked for and where things are built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folders {
    /// Directories whose `*.toml` are declarations: those that come with Crossway, then the user's own.
    pub declarations: Vec<PathBuf>,
    /// Below it things are built.
    pub cache: PathBuf,
}

impl Folders {
    /// Those of this user and of the program at `exe`: what came with it (`../share/crossway/contenders`, or the tree that it was
    /// built in) and `$XDG_CONFIG_HOME/crossway/contenders`. Never the current directory, because declarations
    /// are commands.
    pub fn of_user(exe: &Path) -> Folders {
        let home = || std::env::var_os("HOME").filter(|home| !home.is_empty()).map(PathBuf::from);
        let absolute = |name: &str| {
            let path = std::env::var_os(name).map(PathBuf::from);
            path.filter(|path| path.is_absolute())
        };
        let bin = exe.parent().unwrap_or(Path::new("/"));
        let mut declarations = vec![bin.join("../share/crossway/contenders")];
        let target = bin.parent().filter(|dir| dir.file_name() == Some("target".as_ref()));
        if let Some(tree) = target.and_then(Path::parent) {
            declarations.push(tree.join("contenders"));
        }
        let config = absolute("XDG_CONFIG_HOME").or_else(|| home().map(|h| h.join(".config")));
        declarations.extend(config.map(|dir| dir.join("crossway/contenders")));
        let cache = absolute("XDG_CACHE_HOME")
            .or_else(|| home().map(|home| home.join(".cache")))
            .unwrap_or_else(std::env::temp_dir);
        Folders { declarations, cache: cache.join("crossway") }
    }

    /// The contenders of all directories, in the order of their files' names, and of `files`.
    ///
    /// # Errors
    /// A file cannot be read or is no declaration, or there is nowhere to put the helpers.
    pub fn load(&self, files: &[PathBuf]) -> Result<Vec<Contender>, DeclarationError> {
        let mut found: Vec<PathBuf> = Vec::new();
        for dir in &self.declarations {
            let entries = fs::read_dir(dir).into_iter().flatten().filter_map(Result::ok);
            let mut of_dir: Vec<_> = entries
                .map(|entry| entry.path())
                .filter(|path| path.extension().is_some_and(|e| e == "toml"))
                .collect();
            of_dir.sort();
            found.extend(of_dir);
        }
        found.extend(files.iter().cloned());
        let mut seen = Vec::new();
        let mut contenders = Vec::new();
        for file in found {
            let whole = fs::canonicalize(&file).unwrap_or_else(|_| file.clone());
            if seen.contains(&whole) {
                continue;
            }
            contenders.extend(declaration::read(&file, &self.cache)?);
            seen.push(whole);
        }
        if !contenders.is_empty() {
            self.write_helpers()?;
        }
        Ok(contenders)
    }

    /// Puts the helpers where builds and programs find them.
    pub(super) fn write_helpers(&self) -> Result<(), NoFolder> {
        let dir = helpers(&self.cache);
        make(&dir)?;
        for (name, text) in [C_HELPER, PYTHON_HELPER, GO_HELPER, RUST_HELPER] {
            let path = dir.join(name);
            if fs::read(&path).is_ok_and(|now| now == text.as_bytes()) {
                continue;
            }
            // Another process may be reading it: the new text appears whole.
            let fresh = dir.join(format!("{name}.{}", std::process::id()));
            fs::write(&fresh, text)
                .and_then(|()| fs::rename(&fresh, &path))
                .map_err(|cause| NoFolder { dir: dir.clone(), cause })?;
        }
        Ok(())
    }
}

/// Where the helpers of this version are.
pub(super) fn helpers(cache: &Path) -> PathBuf {
    cache.join("helpers")
}

/// Where what the file declares is built.
pub(super) fn out(cache: &Path, file: &Path) -> PathBuf {
    let mut name = file.file_stem().map(OsString::from).unwrap_or_default();
    name.push(format!("-{:08x}", crc32fast::hash(file.as_os_str().as_encoded_bytes())));
    cache.join("contenders").join(name)
}

/// Makes a directory that is the user's alone.
pub(super) fn make(dir: &Path) -> Result<(), NoFolder> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(|cause| NoFolder { dir: dir.to_owned(), cause })
}
