//! Whether a file or folder can be trusted: whether nobody but this user can replace it or write to it.
//!
//! This is the only place that decides it. Everything that Crossway executes, believes or writes by a path that the
//! user did not name goes through here: builds and helpers of contenders, their declarations, leases, the sockets of
//! channels and nodes.
//!
//! A path is walked from the root, and symbolic links are followed step by step. Everything on the way must belong to a
//! trusted owner, and nobody else may write to it. The exception is a folder with the sticky bit, such as `/tmp`: others
//! may write to it, but cannot replace what is in it. So what is in it must belong to this user, or be a folder
//! of a trusted owner. (Another user may make a hard link to a file of root, but not to a folder.)
//!
//! Since nobody else can change a path that has passed, a check stays true until the path is used.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fmt;
use std::fs::{self, Metadata};
use std::io::{Error as IoError, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::path::{Component, Path, PathBuf};
use std::sync::OnceLock;

use crate::OsError;

/// Maximum number of symbolic links in a path, as in the kernel.
const LINKS: usize = 40;
/// Permission bits for others than the owner.
const GROUP_WRITES: u32 = 0o020;
const ALL_WRITE: u32 = 0o002;
const OTHERS_ENTER: u32 = 0o011;
const STICKY: u32 = 0o1000;

/// The reason why a path must not be used. The text names the part of the path that is at fault, and the remedy.
#[derive(Debug)]
pub struct Untrusted {
    /// The path to be used.
    pub path: PathBuf,
    /// The part of it that cannot be trusted, with symbolic links resolved.
    pub part: PathBuf,
    fault: Fault,
}

#[derive(Debug)]
enum Fault {
    Owner(u32),
    Writable(u32),
    Shared,
    Missing,
    Io(IoError),
}

impl Untrusted {
    /// Whether there is no such file or folder; then nothing else was found wrong.
    pub fn is_missing(&self) -> bool {
        matches!(self.fault, Fault::Missing)
    }
}

impl std::error::Error for Untrusted {}

impl fmt::Display for Untrusted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (path, part) = (self.path.display(), self.part.display());
        match &self.fault {
            Fault::Owner(uid) => {
                write!(f, "{part} belongs to another user (uid {uid}); remove it, or make it yours")
            }
            Fault::Writable(mode) => write!(
                f,
                "other users may write to {part} (mode {mode:o}); remove it, or make sure of its content and then \
                 chmod go-w it"
            ),
            Fault::Shared => {
                write!(f, "everybody may write to {part}; use a folder of your own")
            }
            Fault::Missing => write!(f, "{path} does not exist"),
            Fault::Io(error) => write!(f, "{part} cannot be examined: {error}"),
        }
    }
}

/// Checks that nobody but this user, root, and those who control this process anyway can write to what is at `path` or
/// replace it. Trusted are this process's user and root; if root was reached by `sudo`, the user who called it; and
/// the owner of the program's file.
///
/// # Errors
/// The path leads through something that others own or may write to, or does not exist.
pub fn check(path: &Path) -> Result<(), Untrusted> {
    match walk(path)? {
        Found::Whole(_) => Ok(()),
        Found::Part => Err(fault(path, path, Fault::Missing)),
    }
}

/// Checks a folder and everything in it as [`check`] does. Symbolic links in it are followed.
///
/// # Errors
/// As for [`check`], of the folder or anything in it.
pub fn check_tree(dir: &Path) -> Result<(), Untrusted> {
    check(dir)?;
    let unread = |error| fault(dir, dir, Fault::Io(error));
    for entry in fs::read_dir(dir).map_err(unread)? {
        let entry = entry.map_err(unread)?;
        if entry.file_type().map_err(unread)?.is_dir() {
            check_tree(&entry.path())?;
        } else if let Err(error) = check(&entry.path()) {
            // A link that leads nowhere can do no harm.
            if !error.is_missing() {
                return Err(error);
            }
        }
    }
    Ok(())
}

/// Makes a folder that belongs to this user and that nobody else may write to, with the folders above it that are
/// missing. A folder that exists is checked.
///
/// # Errors
/// The path leads through something that others own or may write to, or the folder cannot be created.
pub fn private_dir(path: &Path) -> Result<(), OsError> {
    let refused = |error: Untrusted| OsError::new("use", path.display(), IoError::other(error));
    // Before anything is created: nothing is written through a folder of somebody else.
    if let Found::Part = walk(path).map_err(refused)? {
        match fs::DirBuilder::new().recursive(true).mode(0o700).create(path) {
            Err(e) if e.kind() != ErrorKind::AlreadyExists => {
                return Err(OsError::new("mkdir", path.display(), e));
            }
            _ => {}
        }
    }
    match walk(path).map_err(refused)? {
        Found::Whole(meta) if meta.uid() != own() => {
            Err(refused(fault(path, path, Fault::Owner(meta.uid()))))
        }
        Found::Whole(meta) if !meta.is_dir() => {
            Err(OsError::new("use", path.display(), IoError::from(ErrorKind::NotADirectory)))
        }
        Found::Whole(_) => Ok(()),
        Found::Part => Err(OsError::new("mkdir", path.display(), ErrorKind::NotFound)),
    }
}

/// Returns `$XDG_RUNTIME_DIR` if it is this user's own, as its specification demands: not that of the user who became
/// root and kept the environment.
pub fn runtime_dir() -> Option<PathBuf> {
    let dir = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from)?;
    let own = |found: &Found| matches!(found, Found::Whole(m) if m.is_dir() && m.uid() == own());
    (dir.is_absolute() && walk(&dir).is_ok_and(|found| own(&found))).then_some(dir)
}

/// What a walk has found.
enum Found {
    Whole(Metadata),
    /// Only the first part of the path exists.
    Part,
}

fn fault(path: &Path, part: &Path, fault: Fault) -> Untrusted {
    Untrusted { path: path.to_owned(), part: part.to_owned(), fault }
}

fn walk(path: &Path) -> Result<Found, Untrusted> {
    let wrong = |part: &Path, why| fault(path, part, why);
    let whole = std::path::absolute(path).map_err(|e| wrong(path, Fault::Io(e)))?;
    let mut rest: VecDeque<OsString> = names(&whole).collect();
    let mut real = PathBuf::from("/");
    let mut links = 0;
    // A folder that others cannot enter: it does not matter to whom the permissions below would allow what.
    let mut closed: Option<PathBuf> = None;
    let mut meta = examine(&real).map_err(|e| wrong(&real, e))?;
    loop {
        let is_closed = closed.as_ref().is_some_and(|folder| real.starts_with(folder));
        let shared = guard(&real, &meta, is_closed).map_err(|e| wrong(&real, e))?;
        if !is_closed {
            closed = (meta.is_dir() && meta.mode() & OTHERS_ENTER == 0).then(|| real.clone());
        }
        let Some(name) = rest.pop_front() else {
            return if shared { Err(wrong(&real, Fault::Shared)) } else { Ok(Found::Whole(meta)) };
        };
        if name == ".." {
            real.pop();
            meta = examine(&real).map_err(|e| wrong(&real, e))?;
            continue;
        }
        real.push(&name);
        let next = match examine(&real) {
            Err(Fault::Missing) => return Ok(Found::Part),
            found => found.map_err(|e| wrong(&real, e))?,
        };
        if shared && next.uid() != own() && !(next.is_dir() && is_trusted(next.uid(), &real)) {
            return Err(wrong(&real, Fault::Owner(next.uid())));
        }
        if !next.is_symlink() {
            meta = next;
            continue;
        }
        links += 1;
        if links > LINKS {
            return Err(wrong(&real, Fault::Io(rustix::io::Errno::LOOP.into())));
        }
        // The target of a link cannot change, and who may replace the link was checked with its folder.
        let target = fs::read_link(&real).map_err(|e| wrong(&real, Fault::Io(e)))?;
        if !is_trusted(next.uid(), &real) {
            return Err(wrong(&real, Fault::Owner(next.uid())));
        }
        real.pop();
        if target.is_absolute() {
            real = PathBuf::from("/");
        }
        for name in names(&target).collect::<Vec<_>>().into_iter().rev() {
            rest.push_front(name);
        }
        meta = examine(&real).map_err(|e| wrong(&real, e))?;
    }
}

fn names(path: &Path) -> impl Iterator<Item = OsString> + '_ {
    path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    })
}

fn examine(path: &Path) -> Result<Metadata, Fault> {
    fs::symlink_metadata(path).map_err(|error| match error.kind() {
        ErrorKind::NotFound => Fault::Missing,
        _ => Fault::Io(error),
    })
}

/// Checks the owner and the permissions of something that is not a symbolic link. Returns whether it is a folder
/// to which others may write, but in which they cannot replace what is not theirs. `is_closed`: they cannot get there.
fn guard(path: &Path, meta: &Metadata, is_closed: bool) -> Result<bool, Fault> {
    if !is_trusted(meta.uid(), path) {
        return Err(Fault::Owner(meta.uid()));
    }
    let kind = meta.file_type();
    // Who may connect to a socket, or write to a device, does not decide what is there.
    if is_closed || kind.is_socket() || kind.is_char_device() || !others_write(path, meta) {
        return Ok(false);
    }
    if meta.is_dir() && meta.mode() & STICKY != 0 {
        return Ok(true);
    }
    Err(Fault::Writable(meta.mode() & 0o7777))
}

fn own() -> u32 {
    rustix::process::geteuid().as_raw()
}

fn is_trusted(uid: u32, path: &Path) -> bool {
    static PROGRAM: OnceLock<Option<u32>> = OnceLock::new();
    let program = || fs::metadata("/proc/self/exe").ok().map(|meta| meta.uid());
    uid == own()
        || uid == 0
        || Some(uid) == called_by()
        || Some(uid) == *PROGRAM.get_or_init(program)
        || (is_of_system(path) && is_unmapped(uid))
}

/// The user who became root by `sudo`; nobody but root and this user can have set the variable.
fn called_by() -> Option<u32> {
    let caller = || std::env::var("SUDO_UID").ok()?.parse().ok();
    if own() == 0 { caller() } else { None }
}

/// Whether this is a folder that belongs to the system by the standard of the file hierarchy.
fn is_of_system(path: &Path) -> bool {
    const FOLDERS: [&str; 11] = [
        "/",
        "/dev",
        "/dev/shm",
        "/etc",
        "/home",
        "/opt",
        "/run",
        "/run/user",
        "/tmp",
        "/var",
        "/var/tmp",
    ];
    path.starts_with("/usr") || FOLDERS.iter().any(|folder| path == Path::new(folder))
}

/// Whether this is the id by which a user namespace shows every user that it does not contain, such as the root
/// of the host.
fn is_unmapped(uid: u32) -> bool {
    static UNMAPPED: OnceLock<Option<u32>> = OnceLock::new();
    let unmapped = || {
        let overflow = fs::read_to_string("/proc/sys/kernel/overflowuid").ok()?;
        let overflow: u64 = overflow.trim().parse().ok()?;
        let map = fs::read_to_string("/proc/self/uid_map").ok()?;
        let ranges = map.lines().map(|line| {
            let mut numbers = line.split_whitespace().filter_map(|word| word.parse::<u64>().ok());
            (numbers.next().unwrap_or(0), numbers.nth(1).unwrap_or(0))
        });
        let mut holding =
            ranges.filter(|(first, count)| (*first..first + count).contains(&overflow));
        if holding.next().is_some() { None } else { u32::try_from(overflow).ok() }
    };
    Some(uid) == *UNMAPPED.get_or_init(unmapped)
}

/// Whether others than the owner may write. A group that has no other member does not count: where every user has
/// such a group, files are often writable for it.
fn others_write(path: &Path, meta: &Metadata) -> bool {
    if meta.mode() & ALL_WRITE != 0 {
        return true;
    }
    // With an access control list, the group's bits are the union of all entries.
    meta.mode() & GROUP_WRITES != 0
        && (has_access_list(path) || !is_private_group(meta.gid(), meta.uid()))
}

fn has_access_list(path: &Path) -> bool {
    let mut value = [0u8; 0];
    rustix::fs::getxattr(path, "system.posix_acl_access", &mut value[..]).is_ok_and(|n| n > 0)
}

/// Whether a user is the only member of a group, as far as the files of users and groups say.
fn is_private_group(gid: u32, uid: u32) -> bool {
    let read = |file| fs::read_to_string(file).unwrap_or_default();
    is_only_member(gid, uid, &read("/etc/passwd"), &read("/etc/group"))
}

fn is_only_member(gid: u32, uid: u32, passwd: &str, group: &str) -> bool {
    let number = |field: Option<&str>| field.and_then(|text| text.parse::<u32>().ok());
    let mut owner = None;
    for line in passwd.lines() {
        let mut fields = line.split(':');
        let name = fields.next();
        let (user, primary) = (number(fields.nth(1)), number(fields.next()));
        if user == Some(uid) {
            owner = name;
        } else if primary == Some(gid) {
            return false;
        }
    }
    let Some(owner) = owner else { return false };
    let mut of_group = group.lines().filter(|line| number(line.split(':').nth(2)) == Some(gid));
    of_group.next().is_some_and(|line| {
        let members = line.split(':').nth(3).unwrap_or_default();
        members.split(',').all(|member| member.is_empty() || member == owner)
    })
}

#[cfg(test)]
#[path = "trust_tests.rs"]
mod tests;
