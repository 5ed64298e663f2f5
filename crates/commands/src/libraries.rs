//! The libraries that are loaded into unmodified programs (LD_PRELOAD): those of an installation, or else those that the
//! published program contains.
//!
//! The dynamic loader needs a file, now and whenever one of the programs starts another one. So what the program contains is
//! written to a folder that lasts and to which nobody else may write, and stays there.

use std::io::Read;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use crossway_lab::contender::Folders;
use crossway_sys::{kept, lease, proc};
use crossway_tipc_client::unmodified::{self, CannotRun};
use lzma_rust2::LzmaReader;

use crate::own;

/// The libraries in this program: their file names, where each is in the content, and the content, as LZMA. None unless it was
/// built by `make dist`.
const CONTAINED: (&[(&str, Range<usize>)], &[u8]) =
    include!(concat!(env!("OUT_DIR"), "/libraries.rs"));

/// Where root keeps them: programs that have changed their user can read them there.
const OF_SYSTEM: &str = "/var/cache/crossway";

/// The path of a library: `given`, if the user has given one; else in the program's directory or in `../lib`; else a copy
/// of the one that the program contains.
///
/// # Errors
/// There is none, or no folder for a copy.
pub(crate) fn find(name: &str, given: Option<&Path>) -> anyhow::Result<PathBuf> {
    if let Some(path) = given {
        return Ok(unmodified::loadable(path)?);
    }
    let own = own::program()?;
    match unmodified::library_named(name, &own) {
        Err(missing @ CannotRun::NoLibrary { .. }) => {
            let (names, packed) = CONTAINED;
            let contained = names.iter().find(|(known, _)| *known == name);
            let (_, place) = contained.ok_or(missing)?;
            let content = unpacked(packed, place.end)
                .with_context(|| format!("this program's copy of {name} is damaged"))?;
            keep(name, &content[place.clone()], &folders(&own))
        }
        found => Ok(found?),
    }
}

/// The first `len` bytes of what is packed.
fn unpacked(packed: &[u8], len: usize) -> std::io::Result<Vec<u8>> {
    let mut content = vec![0; len];
    LzmaReader::new_mem_limit(packed, u32::MAX, None)?.read_exact(&mut content)?;
    Ok(content)
}

/// The folders for copies, the best first.
fn folders(own: &Path) -> Vec<PathBuf> {
    let of_system = proc::is_root().then(|| PathBuf::from(OF_SYSTEM));
    let of_user = Folders::of_user(own).cache;
    [of_system, Some(of_user), lease::private_folder().ok()].into_iter().flatten().collect()
}

/// Writes a library to the first folder that can be used.
fn keep(name: &str, content: &[u8], folders: &[PathBuf]) -> anyhow::Result<PathBuf> {
    let mut refused = Vec::new();
    for folder in folders {
        // The loader takes these for the end of a path.
        if folder.as_os_str().as_bytes().iter().any(|byte| matches!(byte, b' ' | b':')) {
            refused.push(format!("{} contains a space or a colon", folder.display()));
            continue;
        }
        match kept::keep_code(folder, name, content) {
            Ok(path) => {
                if folder == Path::new(OF_SYSTEM) {
                    let all_may_enter = std::fs::Permissions::from_mode(0o755);
                    std::fs::set_permissions(folder, all_may_enter)
                        .with_context(|| format!("cannot chmod {}", folder.display()))?;
                }
                return Ok(path);
            }
            Err(error) => refused.push(error.to_string()),
        }
    }
    bail!(
        "no folder for {name}: {}; set XDG_CACHE_HOME to a folder of your own, or pass the library's path (--library)",
        refused.join("; ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_is_kept_in_the_first_folder_that_can_be_used() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        let folders = [dir.path().join("a b"), file.join("below"), dir.path().join("good")];
        let kept = keep("lib.so", b"content", &folders).unwrap();
        assert_eq!(kept, dir.path().join("good/lib.so"));
        assert_eq!(std::fs::read(&kept).unwrap(), b"content");
        let error = keep("lib.so", b"content", &folders[..2]).unwrap_err().to_string();
        assert!(error.contains("a space or a colon") && error.contains("below"), "{error}");
    }
}
