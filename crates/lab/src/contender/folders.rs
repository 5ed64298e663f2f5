//! Folders of contenders' declarations, builds and helpers.

use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crossway_sys::trust::{self, Untrusted};
use crossway_sys::{OsError, proc, whole_file};

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

/// What helps if the folder for builds cannot be used.
pub(super) const REMEDY: &str = "set XDG_CACHE_HOME to a folder of your own";

/// The folder for builds and helpers cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("cannot use {dir}, which contenders need: {cause}; {REMEDY}")]
pub struct NoFolder {
    /// The directory.
    pub dir: PathBuf,
    /// The reason.
    pub cause: String,
}

/// The contenders of a machine.
#[derive(Debug, Default)]
pub struct Declared {
    /// The contenders.
    pub contenders: Vec<Contender>,
    /// Why files in the folders of declarations were left out: others may write to them.
    pub left_out: Vec<String>,
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
            .map(|cache| cache.join("crossway"));
        // Without a home, a folder for each user, who could not use that of another.
        let of_user = || format!("crossway-cache-{}", proc::effective_user());
        let cache = cache.unwrap_or_else(|| std::env::temp_dir().join(of_user()));
        Folders { declarations, cache }
    }

    /// Reads the contenders from the declarations in one directory after another, sorted by file name in each, and then
    /// from `files`. A file that is found several times is read once. Nothing is written.
    ///
    /// # Errors
    /// A file cannot be read or is not a declaration, or others may write to one of `files`.
    pub fn load(&self, files: &[PathBuf]) -> Result<Declared, DeclarationError> {
        let mut found: Vec<PathBuf> = Vec::new();
        let mut declared = Declared::default();
        for dir in &self.declarations {
            let entries = fs::read_dir(dir).into_iter().flatten().filter_map(Result::ok);
            let mut of_dir: Vec<_> = entries
                .map(|entry| entry.path())
                .filter(|path| path.extension().is_some_and(|e| e == "toml"))
                .collect();
            of_dir.sort_unstable();
            for file in of_dir {
                match trust::check(&file) {
                    Ok(()) => found.push(file),
                    Err(error) => {
                        let why = format!("contenders in {} are left out: {error}", dir.display());
                        if !declared.left_out.contains(&why) {
                            declared.left_out.push(why);
                        }
                    }
                }
            }
        }
        for file in files {
            match trust::check(file) {
                Err(why) if !why.is_missing() => {
                    return Err(DeclarationError::Untrusted { file: file.clone(), why });
                }
                _ => found.push(file.clone()),
            }
        }
        let mut seen = Vec::new();
        for file in found {
            let whole = fs::canonicalize(&file).unwrap_or_else(|_| file.clone());
            if seen.contains(&whole) {
                continue;
            }
            declared.contenders.extend(declaration::read(&file, &self.cache)?);
            seen.push(whole);
        }
        Ok(declared)
    }
}

/// Makes what a contender needs before anything of it is run: its helpers. Checks that nobody else can write to them,
/// to what was built, and to what its commands name in the folder of its declaration.
pub(super) fn prepare(contender: &Contender) -> Result<(), NoFolder> {
    let no_folder = |dir: &Path, why: &dyn std::fmt::Display| NoFolder {
        dir: dir.to_owned(),
        cause: why.to_string(),
    };
    write_helpers(&contender.helpers).map_err(|e| no_folder(&contender.helpers, &e.source))?;
    let unless_missing = |found: Result<(), Untrusted>| match found {
        Err(error) if !error.is_missing() => Err(error),
        _ => Ok(()),
    };
    for dir in [&contender.helpers, &contender.out] {
        unless_missing(trust::check_tree(dir)).map_err(|e| no_folder(dir, &e))?;
    }
    for file in contender.own_files().chain([contender.file.clone()]) {
        unless_missing(trust::check(&file)).map_err(|e| no_folder(&file, &e))?;
    }
    Ok(())
}

/// Writes the helpers to the folder where builds and programs find them.
fn write_helpers(dir: &Path) -> Result<(), OsError> {
    // Contenders are probed by several threads.
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    trust::private_dir(dir)?;
    for (name, text) in HELPERS {
        let path = dir.join(name);
        if fs::read(&path).is_ok_and(|now| now == text.as_bytes()) {
            continue;
        }
        // Another process may be reading it, so the new text replaces it atomically.
        whole_file::write(&path, |file| file.write_all(text.as_bytes()))
            .map_err(|cause| OsError::new("write", path.display(), cause))?;
    }
    Ok(())
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

/// Creates a directory that only the user can write to.
pub(super) fn make(dir: &Path) -> Result<(), NoFolder> {
    let failed = |error: OsError| NoFolder { dir: dir.to_owned(), cause: error.source.to_string() };
    trust::private_dir(dir).map_err(failed)
}
