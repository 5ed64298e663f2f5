//! Places where objects can be left behind or that can become full: temporary files, `/dev/shm`, message queues, System
//! V tables.
//!
//! These places belong to the whole machine. A worker therefore runs with its own IPC namespace and mounts. Everything
//! that is found there was left by the mechanism, and filling a file system there does no harm.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crossway_sys::{Obstacle, proc};

use super::observation::NoObservation;
use super::{Leftover, LeftoverKind, Remover};
use crate::env::sysctl;

/// Shell script that mounts private file systems, small enough to be filled quickly, and runs the rest of the command
/// there. The program is opened first, since it may be below /tmp.
const PRIVATE: &str = "exec 9<\"$0\" \
     && mount -t tmpfs -o size=32m,nr_inodes=4096 crossway /dev/shm \
     && mount -t tmpfs -o size=32m,nr_inodes=4096 crossway /tmp && mkdir /tmp/mqueue \
     && if grep -q mqueue /proc/filesystems; then mount -t mqueue crossway /tmp/mqueue; fi \
     && exec /proc/self/fd/9 \"$@\"";

const SHM: &str = "/dev/shm";
const TMP: &str = "/tmp";
const MQUEUE: &str = "/tmp/mqueue";

/// A command that runs `program` with private file systems and IPC; arguments can be appended.
pub(super) fn private_command(program: &Path) -> Command {
    let mut command = Command::new("unshare");
    if !proc::is_root() {
        command.arg("--map-root-user");
    }
    command.args(["--ipc", "--mount", "sh", "-c", PRIVATE]);
    command.arg(program).env("TMPDIR", TMP).env_remove("XDG_RUNTIME_DIR");
    command
}

/// The obstacle if private file systems and IPC cannot be created, because the kernel refuses them or the tools are
/// missing.
pub(super) fn refused() -> Obstacle {
    Obstacle::new(
        "private file systems and IPC namespaces cannot be created here",
        remedy(proc::is_root(), sysctl),
    )
}

/// The obstacle if a private `/tmp` would hide the contender's program.
pub(super) fn program_in_tmp() -> Obstacle {
    Obstacle::new(
        "a private /tmp would hide the contender's program, which is below /tmp",
        "move the contender's program to a directory outside of /tmp",
    )
}

/// What the kernel said when private file systems and IPC could not be created; `None` if they can be.
pub(super) fn why_not_private() -> Option<String> {
    match private_command(Path::new("/bin/true")).output() {
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        Err(error) => Some(format!("unshare: {error}")),
    }
}

/// The kernel settings that can forbid user namespaces: name, the value that forbids them, and one that allows them.
/// Only some kernels have the first two.
const FORBIDDING: [(&str, &str, &str); 3] = [
    ("kernel.unprivileged_userns_clone", "0", "1"),
    ("kernel.apparmor_restrict_unprivileged_userns", "1", "0"),
    ("user.max_user_namespaces", "0", "10000"),
];

/// The step that makes private file systems and IPC possible; `setting` reads a kernel setting.
fn remedy(is_root: bool, setting: impl Fn(&str) -> Option<String>) -> String {
    if is_root {
        return "run outside of a container, or with the capability CAP_SYS_ADMIN".to_owned();
    }
    let forbidding = FORBIDDING
        .iter()
        .find(|(name, forbids, _)| setting(name).is_some_and(|value| value == *forbids));
    match forbidding {
        Some((name, _, allows)) => {
            format!("run as root, or allow user namespaces: sudo sysctl {name}={allows}")
        }
        None => "run as root, or allow user namespaces".to_owned(),
    }
}

/// The warning for an attempt without private file systems and IPC, where leftovers cannot be distinguished from other
/// objects.
pub(super) fn unchecked(not_private: &Obstacle) -> String {
    format!("leftovers were not checked, because {not_private}")
}

/// Returns an error if file systems must not be filled, because they are not private.
pub(super) fn to_fill(not_private: Option<&Obstacle>) -> Result<(), NoObservation> {
    not_private.map_or(Ok(()), |Obstacle { why, remedy }| {
        Err(NoObservation::Skipped { why: why.clone(), remedy: Some(remedy.clone()) })
    })
}

/// Named objects, by kind and name.
pub(super) type Things = BTreeSet<(LeftoverKind, String)>;

/// The objects that exist now.
pub(super) fn look() -> Things {
    let mut found = Things::new();
    files(Path::new(TMP), LeftoverKind::Path, &mut found);
    files(Path::new(SHM), LeftoverKind::PosixShm, &mut found);
    files(Path::new(MQUEUE), LeftoverKind::PosixMq, &mut found);
    for (table, kind) in [
        ("msg", LeftoverKind::SysvMsg),
        ("sem", LeftoverKind::SysvSem),
        ("shm", LeftoverKind::SysvShm),
    ] {
        let text = fs::read_to_string(format!("/proc/sysvipc/{table}")).unwrap_or_default();
        let ids = text.lines().skip(1).filter_map(|line| line.split_whitespace().nth(1));
        found.extend(ids.map(|id| (kind, id.to_owned())));
    }
    found
}

/// Adds all files below a directory except leases, which belong to Crossway.
fn files(dir: &Path, kind: LeftoverKind, found: &mut Things) {
    for entry in fs::read_dir(dir).into_iter().flatten().filter_map(Result::ok) {
        let path = entry.path();
        if path == Path::new(MQUEUE) || path.extension().is_some_and(|e| e == "lease") {
            continue;
        }
        if entry.file_type().is_ok_and(|t| t.is_dir()) {
            files(&path, kind, found);
        } else {
            found.insert((kind, path.display().to_string()));
        }
    }
}

/// The objects that existed after an end had died (`at_death`), each with what removed it. `closed` contains those that
/// still existed after the survivor had closed its end, and `swept` those that still existed after a sweep of the
/// leases.
pub(super) fn leftovers(at_death: &Things, closed: &Things, swept: &Things) -> Vec<Leftover> {
    let remover = |thing| match () {
        () if swept.contains(thing) => Remover::ByHand,
        () if closed.contains(thing) => Remover::LeaseSweep,
        () => Remover::Survivor,
    };
    at_death.iter().map(|thing| leftover(thing, remover(thing))).collect()
}

/// An object that was left behind, with the command that would remove it.
fn leftover((kind, name): &(LeftoverKind, String), remover: Remover) -> Leftover {
    let remedy = match kind {
        LeftoverKind::Path | LeftoverKind::PosixShm => format!("rm {name}"),
        LeftoverKind::PosixMq => {
            let name = Path::new(name).file_name().unwrap_or_default().to_string_lossy();
            format!("mount -t mqueue mqueue /mnt && rm /mnt/{name}")
        }
        LeftoverKind::SysvMsg => format!("ipcrm -q {name}"),
        LeftoverKind::SysvSem => format!("ipcrm -s {name}"),
        LeftoverKind::SysvShm => format!("ipcrm -m {name}"),
    };
    Leftover { kind: *kind, name: name.clone(), remover, remedy }
}

/// A full file system, which is emptied when this value is dropped.
#[derive(Debug)]
pub(super) struct Filled(PathBuf);

impl Filled {
    /// Fills `/tmp`, both blocks and inodes. Must be called only with private file systems.
    pub(super) fn disk() -> Filled {
        Filled::below(TMP)
    }

    /// Fills `/dev/shm`, both blocks and inodes. Must be called only with private file systems.
    pub(super) fn shm() -> Filled {
        Filled::below(SHM)
    }

    fn below(root: &str) -> Filled {
        let dir = Path::new(root).join("filling");
        let _ = fs::create_dir(&dir);
        let chunk = vec![1; 1 << 20];
        let mut last = chunk.len();
        // Whole chunks at first, then smaller ones, until not even a byte fits.
        if let Ok(mut file) = fs::File::create(dir.join("blocks")) {
            use std::io::Write;
            while last > 0 {
                match file.write(&chunk[..last]) {
                    Ok(n) if n > 0 => {}
                    _ => last /= 2,
                }
            }
        }
        let mut n = 0;
        while fs::File::create(dir.join(n.to_string())).is_ok() {
            n += 1;
        }
        Filled(dir)
    }
}

impl Drop for Filled {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_remedy_names_only_a_setting_that_this_kernel_has_and_that_forbids_namespaces() {
        let with = |name: &'static str, value: &'static str| {
            remedy(false, move |asked| (asked == name).then(|| value.to_owned()))
        };
        let ubuntu = with("kernel.apparmor_restrict_unprivileged_userns", "1");
        assert!(ubuntu.ends_with("sysctl kernel.apparmor_restrict_unprivileged_userns=0"));
        let debian = with("kernel.unprivileged_userns_clone", "0");
        assert!(debian.ends_with("sysctl kernel.unprivileged_userns_clone=1"));
        for allowed in [with("kernel.unprivileged_userns_clone", "1"), with("other", "0")] {
            assert_eq!(allowed, "run as root, or allow user namespaces");
        }
        assert!(!remedy(true, |_| None).contains("as root"));
    }
}
