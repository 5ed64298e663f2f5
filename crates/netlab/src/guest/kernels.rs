//! Kernels that guests can boot under QEMU: those installed on this machine, those unpacked from Debian's packages, and
//! files that the user names.

use std::cmp::Ordering;
use std::fs;
use std::path::{Path, PathBuf};

use crossway_sys::{program, trust};
use serde::{Deserialize, Serialize};

use crate::NetError;
use crate::registry::Process;
use crate::tool;

/// The folder with a subfolder for each kernel that was unpacked from a package.
const STORE: &str = "/var/cache/crossway/kernels";
/// What an unfinished subfolder's name begins with; the process that makes it follows.
const DRAFT: &str = ".draft-";
/// The architecture in the names of Debian's packages.
const DEBIAN_ARCH: &str = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
/// Flavours that have to be asked for by name: `6.12` alone means Debian's standard kernel.
const FLAVOURS: [&str; 2] = ["rt", "cloud"];
/// Folders of a file system in which a kernel's modules are, below the folder of its release.
const MODULE_FOLDERS: [&str; 2] = ["lib/modules", "usr/lib/modules"];

/// A kernel that a guest can boot under QEMU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestKernel {
    /// Release, such as `6.12.117+deb12-rt-amd64`.
    pub release: String,
    /// The bootable file.
    pub image: PathBuf,
    /// The folder with `modules.dep`; `None` if the kernel has no modules here.
    pub modules: Option<PathBuf>,
}

impl GuestKernel {
    /// Returns the kernels of this machine that a guest can boot: those in `/boot`, and those that [`fetch_kernel`]
    /// unpacked. The oldest comes first.
    pub fn all() -> Vec<GuestKernel> {
        let mut found = Self::in_root(Path::new("/"));
        for folder in folders(Path::new(STORE)) {
            // Whoever can write there could run code in guests with this user's files.
            if !is_draft(&folder) && trust::check(&folder).is_ok() {
                found.extend(Self::in_root(&folder));
            }
        }
        found.sort_by(|a, b| compare_releases(&a.release, &b.release));
        found.dedup_by(|a, b| a.release == b.release);
        found
    }

    /// Finds the kernel that the user means: the path of a file, a release, or a version with a flavour, of which the
    /// newest release is taken: `6.12`, `6.12-rt`, `6.1-cloud`.
    ///
    /// # Errors
    /// There is no such kernel; the error lists those that there are.
    pub fn find(word: &str) -> Result<GuestKernel, NetError> {
        if word.contains('/') {
            return Self::of_file(Path::new(word));
        }
        let all = Self::all();
        let found = all.iter().rfind(|kernel| is_meant(&kernel.release, word));
        found.cloned().ok_or_else(|| {
            let names: Vec<&str> = all.iter().map(|kernel| kernel.release.as_str()).collect();
            let there = match names.is_empty() {
                true => "no kernel is here yet".to_owned(),
                false => format!("here are: {}", names.join(", ")),
            };
            NetError::Unknown {
                kind: "kernel",
                name: word.to_owned(),
                known: format!(
                    "{there}; get it from Debian: crossway guest fetch {word}; or name a file: --kernel ./bzImage"
                ),
            }
        })
    }

    fn in_root(root: &Path) -> Vec<GuestKernel> {
        let boot = root.join("boot");
        let entries = fs::read_dir(&boot).into_iter().flatten().flatten();
        entries
            .filter_map(|entry| {
                let name = entry.file_name().into_string().ok()?;
                let release = name.strip_prefix("vmlinuz-")?.to_owned();
                let modules = modules_below(root, &release)?;
                Some(GuestKernel { release, image: entry.path(), modules: Some(modules) })
            })
            .collect()
    }

    fn of_file(file: &Path) -> Result<GuestKernel, NetError> {
        let bad = |why: String| NetError::Impossible {
            what: "kernel",
            given: file.display().to_string(),
            why,
        };
        let image = file.canonicalize().map_err(|e| bad(e.to_string()))?;
        let bytes = read_start(&image).map_err(|e| bad(e.to_string()))?;
        let release = release_of(&bytes).ok_or_else(|| {
            bad("this is not a bootable kernel; name a bzImage or vmlinuz, not vmlinux".to_owned())
        })?;
        // Beside a kernel in boot/ there are its modules in lib/modules/; a kernel of one's own may have them here.
        let above = image.parent().and_then(Path::parent);
        let modules = above
            .into_iter()
            .chain([Path::new("/")])
            .find_map(|root| modules_below(root, &release));
        Ok(GuestKernel { release, image, modules })
    }
}

/// How much of a kernel's file is read to find its release.
const HEAD_BYTES: u64 = 64 << 10;

fn read_start(file: &Path) -> std::io::Result<Vec<u8>> {
    use std::io::Read;
    let mut bytes = Vec::new();
    fs::File::open(file)?.take(HEAD_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The release in the setup header of an x86 kernel (Documentation/arch/x86/boot.rst: `HdrS` at 0x202, the offset of
/// the version's text, less 0x200, at 0x20e), or `unknown` for an arm64 kernel, whose header (`ARM\x64` at 0x38) does
/// not contain it.
fn release_of(bytes: &[u8]) -> Option<String> {
    if bytes.get(0x38..0x3c) == Some(b"ARM\x64") {
        return Some("unknown".to_owned());
    }
    if bytes.get(0x202..0x206) != Some(b"HdrS") {
        return None;
    }
    let at = bytes.get(0x20e..0x210).map(|b| usize::from(u16::from_le_bytes([b[0], b[1]])))?;
    let text = bytes.get(at + 0x200..)?;
    let end = text.iter().position(|b| matches!(b, b' ' | 0))?;
    String::from_utf8(text[..end].to_vec()).ok()
}

fn modules_below(root: &Path, release: &str) -> Option<PathBuf> {
    let folders = MODULE_FOLDERS.map(|folder| root.join(folder).join(release));
    folders.into_iter().find(|folder| folder.join("modules.dep").exists())
}

/// Unpacks the kernel that `word` means from Debian's package, without installing it, and returns it. A kernel that is
/// here already is not fetched again.
///
/// # Errors
/// apt knows no such kernel, a tool is missing or fails, or the disk is full. Nothing remains after an error.
pub fn fetch_kernel(word: &str) -> Result<GuestKernel, NetError> {
    if word.contains('/') {
        return Err(NetError::Impossible {
            what: "kernel to fetch",
            given: word.to_owned(),
            why: "name a version and a flavour, as in 6.12 or 6.12-rt".to_owned(),
        });
    }
    for (tool, package) in
        [("apt-get", "apt"), ("dpkg-deb", "dpkg"), ("depmod", "kmod"), ("xz", "xz-utils")]
    {
        if program::find(tool).is_none() {
            return Err(NetError::MissingTool { tool, package });
        }
    }
    let doing = format!("looking for kernel {word} in Debian's packages");
    let names = tool::run(&doing, &["apt-cache", "pkgnames", "linux-image-"], "")?;
    let mut releases: Vec<&str> = names
        .lines()
        .filter_map(|name| name.strip_prefix("linux-image-"))
        .filter(|release| release.ends_with(&format!("-{DEBIAN_ARCH}")))
        // Packages without a full version contain no kernel but depend on the newest one.
        .filter(|release| release.starts_with(|c: char| c.is_ascii_digit()))
        .filter(|release| {
            release.split(['-', '+']).next().is_some_and(|v| v.matches('.').count() == 2)
        })
        .filter(|release| is_meant(release, word))
        .collect();
    releases.sort_by(|a, b| compare_releases(a, b));
    let Some(release) = releases.last() else {
        return Err(NetError::Refused {
            doing,
            said: "apt knows none; run: sudo apt-get update".to_owned(),
        });
    };
    let there = Path::new(STORE).join(release);
    if GuestKernel::in_root(&there).is_empty() {
        unpack(release, &there)?;
    }
    GuestKernel::find(release)
}

fn unpack(release: &str, to: &Path) -> Result<(), NetError> {
    trust::private_dir(Path::new(STORE)).map_err(|e| NetError::Refused {
        doing: format!("making room for kernel {release}"),
        said: format!("{e}; run it with sudo"),
    })?;
    for folder in folders(Path::new(STORE)).into_iter().filter(|folder| is_draft(folder)) {
        if !draft_is_held(&folder) {
            let _ = fs::remove_dir_all(folder);
        }
    }
    let draft = Path::new(STORE).join(format!("{DRAFT}{}", std::process::id()));
    let made = unpack_in(release, &draft).and_then(|()| {
        // Another process may have been quicker, and guests may already run from what it unpacked.
        if !GuestKernel::in_root(to).is_empty() {
            return Ok(());
        }
        let _ = fs::remove_dir_all(to);
        fs::rename(draft.join("files"), to)
            .map_err(|e| NetError::State { path: to.to_owned(), why: e.to_string() })
    });
    let _ = fs::remove_dir_all(&draft);
    made
}

fn unpack_in(release: &str, draft: &Path) -> Result<(), NetError> {
    let files = draft.join("files");
    let text = |path: &Path| path.display().to_string();
    fs::create_dir_all(&files)
        .map_err(|e| NetError::State { path: files.clone(), why: e.to_string() })?;
    let doing = format!("fetching kernel {release}");
    // apt-get download writes to the working directory; it checks the package against Debian's signature.
    let script =
        "cd \"$1\" && exec apt-get -qq -oAPT::Sandbox::User=root download \"linux-image-$2\"";
    tool::run(&doing, &["sh", "-c", script, "sh", &text(draft), release], "")?;
    let package = fs::read_dir(draft).into_iter().flatten().flatten();
    let package = package.map(|entry| entry.path()).find(|p| p.extension() == Some("deb".as_ref()));
    let package = package.ok_or_else(|| NetError::Refused {
        doing: doing.clone(),
        said: "apt-get left no package".to_owned(),
    })?;
    let doing = format!("unpacking kernel {release}");
    tool::run(&doing, &["dpkg-deb", "-x", &text(&package), &text(&files)], "")?;
    // Later packages keep everything in /usr.
    if !files.join("lib").exists() {
        let _ = std::os::unix::fs::symlink("usr/lib", files.join("lib"));
    }
    tool::run(&doing, &["depmod", "-b", &text(&files), release], "").map(drop)
}

fn folders(of: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(of).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
}

fn is_draft(folder: &Path) -> bool {
    maker(folder).is_some()
}

fn maker(folder: &Path) -> Option<&str> {
    folder.file_name()?.to_str()?.strip_prefix(DRAFT)
}

fn draft_is_held(folder: &Path) -> bool {
    let pid = maker(folder).and_then(|pid| pid.parse().ok());
    pid.and_then(Process::of).is_some()
}

/// Whether a release is meant by a version and flavour: `6.12-rt` means `6.12.117+deb12-rt-amd64`, not
/// `6.12.117+deb12-amd64` and not `6.1.0-57-rt-amd64`.
fn is_meant(release: &str, word: &str) -> bool {
    if release == word {
        return true;
    }
    let flavour_of = |text: &str| {
        FLAVOURS.into_iter().find(|flavour| text.split('-').any(|part| part == *flavour))
    };
    let version = match word.rsplit_once('-') {
        Some((version, flavour)) if FLAVOURS.contains(&flavour) => version,
        _ => word,
    };
    let follows = release.strip_prefix(version);
    flavour_of(release) == flavour_of(word)
        && follows.is_some_and(|rest| rest.starts_with(['.', '-', '+']))
}

/// Orders releases by the numbers in them: 6.1.0-9 before 6.1.0-57 before 6.12.1.
fn compare_releases(a: &str, b: &str) -> Ordering {
    let numbers = |text: &str| -> Vec<u64> {
        text.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse().ok()).collect()
    };
    numbers(a).cmp(&numbers(b)).then_with(|| a.cmp(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_means_its_newest_release_of_that_flavour() {
        let mut there = [
            "6.12.117+deb12-rt-amd64",
            "6.12.117+deb12-amd64",
            "6.12.117+deb12-cloud-amd64",
            "6.12.99+deb12-amd64",
            "6.1.0-9-amd64",
            "6.1.0-57-amd64",
            "6.1.0-57-rt-amd64",
        ];
        there.sort_by(|a, b| compare_releases(a, b));
        let meant = |word: &str| there.iter().rfind(|release| is_meant(release, word)).copied();
        assert_eq!(meant("6.12"), Some("6.12.117+deb12-amd64"));
        assert_eq!(meant("6.12.99"), Some("6.12.99+deb12-amd64"));
        assert_eq!(meant("6.12-rt"), Some("6.12.117+deb12-rt-amd64"));
        assert_eq!(meant("6.12-cloud"), Some("6.12.117+deb12-cloud-amd64"));
        assert_eq!(meant("6.1"), Some("6.1.0-57-amd64"));
        assert_eq!(meant("6.1-rt"), Some("6.1.0-57-rt-amd64"));
        assert_eq!(meant("6.1.0-9-amd64"), Some("6.1.0-9-amd64"));
        assert_eq!(meant("6"), Some("6.12.117+deb12-amd64"));
        for none in ["6.1.0-5", "6.", "5.10", "rt", ""] {
            assert_eq!(meant(none), None, "{none}");
        }
    }

    #[test]
    fn a_kernel_s_file_says_its_release() {
        let mut image = vec![0; 0x4000];
        image[0x202..0x206].copy_from_slice(b"HdrS");
        image[0x20e..0x210].copy_from_slice(&0x3000_u16.to_le_bytes());
        let text = b"6.12.1-own (me@here) #1 SMP\0";
        image[0x3200..0x3200 + text.len()].copy_from_slice(text);
        assert_eq!(release_of(&image).as_deref(), Some("6.12.1-own"));
        // Cut, or with an offset beyond its end.
        assert_eq!(release_of(&image[..0x3000]), None);
        assert_eq!(release_of(b"\x7fELF"), None);
        assert_eq!(release_of(&[]), None);
    }

    #[test]
    fn a_file_that_is_no_kernel_is_named() {
        let error = GuestKernel::find("/proc/self/exe").unwrap_err().to_string();
        assert!(error.contains("kernel '/proc/self/exe'") && error.contains("bzImage"), "{error}");
        let error = GuestKernel::find("./nowhere").unwrap_err().to_string();
        assert!(error.contains("kernel './nowhere'") && error.contains("No such file"), "{error}");
        let error = GuestKernel::find("5.4-rt").unwrap_err().to_string();
        assert!(error.contains("crossway guest fetch 5.4-rt"), "{error}");
    }
}
