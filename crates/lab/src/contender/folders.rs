//! Folders of contenders' declarations, builds and helpers.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use super::Contender;
use super::declaration::{self, DeclarationError};

/// The helper for C programs.
const C_HELPER: (&str, &str) =
    ("crossway_contender.h", include_str!("../../../../contenders/helpers/crossway_contender.h"));
/// The helper for Python programs.
const PYTHON_HELPER: (&str, &str) =
    ("crossway_contender.py", include_str!("../../../../contenders/helpers/crossway_contender.py"));
/// The helper for Go programs.
const GO_HELPER: (&str, &str) =
    ("crossway_contender.go", include_str!("../../../../contenders/helpers/crossway_contender.go"));
/// The helper for Rust programs.
const RUST_HELPER: (&str, &str) =
    ("crossway_contender.rs", include_str!("../../../../contenders/helpers/crossway_contender.rs"));

const HELPERS: [(&str, &str); 4] = [C_HELPER, PYTHON_HELPER, GO_HELPER, RUST_HELPER];

/// No folder for builds can be created.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot create or write to {dir}, which contenders need: {cause}; set XDG_CACHE_HOME to another folder"
)]
pub struct NoFolder {
    /// The directory.
    pub dir: PathBuf,
    /// The reason.
    pub cause: std::io::Error,
}

/// The folders with declarations, and the folder for builds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folders {
    /// Directories whose `*.toml` files are declarations: those that come with Crossway, then the user's.
    pub declarations: Vec<PathBuf>,
    /// The folder below which contenders are built.
    pub cache: PathBuf,
}

impl Folders {
    /// The folders of this user and of the program at `exe`. Declarations are those installed with the program
    /// (`../share/crossway/contenders`, or the source tree in which it was built) and those in
    /// `$XDG_CONFIG_HOME/crossway/contenders`. The current directory is never searched, because declarations contain
    /// commands.
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

    /// Reads the contenders from the declarations in one directory after another, sorted by file name in each, and then
    /// from `files`. A file that is found several times is read once.
    ///
    /// # Errors
    /// A file cannot be read or is not a declaration, or the folder for the helpers cannot be created.
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

    /// Writes the helpers to the folder where builds and programs find them.
    pub(super) fn write_helpers(&self) -> Result<(), NoFolder> {
        let dir = helpers(&self.cache);
        make(&dir)?;
        for (name, text) in HELPERS {
            let path = dir.join(name);
            if fs::read(&path).is_ok_and(|now| now == text.as_bytes()) {
                continue;
            }
            // Another process may be reading it, so the new text replaces it atomically.
            let fresh = dir.join(format!("{name}.{}", std::process::id()));
            fs::write(&fresh, text)
                .and_then(|()| fs::rename(&fresh, &path))
                .map_err(|cause| NoFolder { dir: dir.clone(), cause })?;
        }
        Ok(())
    }
}

/// The folder of this version's helpers, named by a hash of their content. Other versions of Crossway share the cache,
/// and their helpers must not replace those with which a contender was built.
pub(super) fn helpers(cache: &Path) -> PathBuf {
    let mut hasher = crc32fast::Hasher::new();
    for (name, text) in HELPERS {
        hasher.update(name.as_bytes());
        hasher.update(text.as_bytes());
    }
    cache.join(format!("helpers-{:08x}", hasher.finalize()))
}

/// The folder in which the contenders of a declaration file are built.
pub(super) fn out(cache: &Path, file: &Path) -> PathBuf {
    let mut name = file.file_stem().map(OsString::from).unwrap_or_default();
    name.push(format!("-{:08x}", crc32fast::hash(file.as_os_str().as_encoded_bytes())));
    cache.join("contenders").join(name)
}

/// Creates a directory that only the user can access.
pub(super) fn make(dir: &Path) -> Result<(), NoFolder> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(|cause| NoFolder { dir: dir.to_owned(), cause })
}
