//! A child process that cannot write to the machine's files and cannot outlive its parent.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use rustix::mount::{MountFlags, MountPropagationFlags};
use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use rustix::thread::UnshareFlags;

use crate::{OsError, seccomp};

/// How a child is confined.
#[derive(Debug)]
pub struct Confinement<'a> {
    /// An empty folder on which the child gets its own tmpfs. The child can write to nothing else.
    pub writable: &'a Path,
    /// Whether to hide the extended CPU state from the child ([`seccomp::hide_extended_state`]).
    pub hide_extended_state: bool,
    /// A library that the child loads before all others; `None`: no library.
    pub preload: Option<OwnedFd>,
    /// A descriptor that the child inherits as number [`CHANNEL`].
    pub channel: OwnedFd,
}

/// The descriptor number under which a confined child finds [`Confinement::channel`].
pub const CHANNEL: i32 = 3;
/// The descriptor number under which a confined child finds the library that it preloads. It is high, because the
/// parent's open descriptors occupy low numbers in the child until exec.
const PRELOAD: i32 = 200;

/// Closes every descriptor beyond the standard three that this process inherited. A process that outlives its parent
/// calls this first: otherwise it would keep inherited pipes open, and whoever reads such a pipe to its end would wait
/// for this process as well. Descriptors marked close-on-exec were opened by this process itself and stay open.
pub fn close_inherited() {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else { return };
    let numbers: Vec<i32> =
        entries.flatten().filter_map(|e| e.file_name().to_str()?.parse().ok()).collect();
    for number in numbers.into_iter().filter(|n| *n > 2) {
        // SAFETY: both calls take a number and no memory. std and rustix always set close-on-exec, so a descriptor
        // without it belongs to neither, and no owner in this process will use it or close it again.
        unsafe {
            let flags = libc::fcntl(number, libc::F_GETFD);
            if flags >= 0 && flags & libc::FD_CLOEXEC == 0 {
                libc::close(number);
            }
        }
    }
}

/// Makes the calling thread's next child the first process of a new PID namespace: when that child dies, everything it
/// started dies with it. Only the first child works as described, and the thread must not start threads afterwards.
///
/// # Errors
/// The caller lacks the privilege.
pub fn give_children_a_process_namespace() -> Result<(), OsError> {
    // SAFETY: NEWPID changes only where later children go; no file, memory or signal table is unshared.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWPID) }
        .map_err(|e| OsError::new("unshare", "CLONE_NEWPID", e))
}

/// Confines the child that `command` will start: every file system is read-only for it except `writable`, and it is
/// killed when the calling thread ends.
///
/// # Errors
/// The folder's path contains a NUL byte. Errors of the kernel's calls appear as the error of `spawn`.
pub fn confine(command: &mut Command, confinement: Confinement<'_>) -> Result<(), OsError> {
    let Confinement { writable, hide_extended_state, preload, channel } = confinement;
    if preload.is_some() {
        command.env("LD_PRELOAD", format!("/proc/self/fd/{PRELOAD}"));
    }
    let folder = CString::new(writable.as_os_str().as_bytes())
        .map_err(|e| OsError::new("mount", writable.display(), e))?;
    // SAFETY: the closure runs between fork and exec. It makes system calls on values prepared here and neither
    // allocates nor takes a lock (rustix passes `CStr`s on as they are).
    unsafe {
        command.pre_exec(move || {
            set_parent_process_death_signal(Some(Signal::KILL))?;
            // In its own PID namespace the child sees a parent outside as 0. A parent that has died meanwhile looks the
            // same, but then the other end of the channel is closed, which ends the child.
            let _ = getppid();
            rustix::thread::unshare_unsafe(UnshareFlags::NEWNS)?;
            let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
            rustix::mount::mount_change(c"/", private)?;
            make_all_read_only()?;
            let flags = MountFlags::NOSUID | MountFlags::NODEV;
            rustix::mount::mount(c"tmpfs", folder.as_c_str(), c"tmpfs", flags, c"mode=0700")?;
            if hide_extended_state {
                seccomp::hide_extended_state()?;
            }
            if let Some(library) = &preload
                && libc::dup2(library.as_raw_fd(), PRELOAD) < 0
            {
                return Err(io::Error::last_os_error());
            }
            // dup2 clears close-on-exec, unless both numbers are the same.
            if channel.as_raw_fd() == CHANNEL {
                rustix::io::fcntl_setfd(&channel, rustix::io::FdFlags::empty())?;
            } else if libc::dup2(channel.as_raw_fd(), CHANNEL) < 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(())
        });
    }
    Ok(())
}

/// Makes every mount of the calling process's mount namespace read-only; device nodes stay usable.
fn make_all_read_only() -> io::Result<()> {
    let attributes = libc::mount_attr {
        attr_set: libc::MOUNT_ATTR_RDONLY,
        attr_clr: 0,
        propagation: 0,
        userns_fd: 0,
    };
    // SAFETY: the path is a C string, `attributes` outlives the call and its size is stated.
    let failed = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            c"/".as_ptr(),
            libc::AT_RECURSIVE,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        ) != 0
    };
    if failed { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_confined_child_writes_only_to_its_own_folder_and_has_its_channel() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("SKIP confinement: mount namespaces need root; run with sudo");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let writable = folder.path().join("writable");
        fs::create_dir(&writable).unwrap();
        let (mut near, far) = UnixStream::pair().unwrap();
        let script = format!(
            "cat <&3 >{w}/copy; cat {w}/copy >&3; touch {f}/file || echo refused >&3; \
             mount -o remount,rw / 2>/dev/null; echo $$ >&3",
            w = writable.display(),
            f = folder.path().display()
        );
        std::thread::spawn(move || {
            give_children_a_process_namespace().unwrap();
            let mut command = Command::new("sh");
            command.args(["-c", &script]).stderr(std::process::Stdio::null());
            let channel = far.into();
            confine(
                &mut command,
                Confinement {
                    writable: &writable,
                    hide_extended_state: true,
                    preload: None,
                    channel,
                },
            )
            .unwrap();
            let mut child = command.spawn().unwrap();
            near.write_all(b"bytes\n").unwrap();
            near.shutdown(std::net::Shutdown::Write).unwrap();
            drop(command);
            let mut said = String::new();
            near.read_to_string(&mut said).unwrap();
            assert!(child.wait().unwrap().success());
            assert_eq!(said, "bytes\nrefused\n1\n");
            assert_eq!(
                fs::read_dir(&writable).unwrap().count(),
                0,
                "it wrote only to its own tmpfs"
            );
        })
        .join()
        .unwrap();
        assert!(!folder.path().join("file").exists());
    }
}
