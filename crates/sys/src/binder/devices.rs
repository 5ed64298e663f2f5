//! The devices by which programs reach the driver.

use std::fs;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::wire;
use crate::OsError;
use crate::error::last_errno;

/// Finds the first binderfs that is mounted here.
pub fn file_system() -> Option<PathBuf> {
    mounted(&fs::read_to_string("/proc/self/mountinfo").ok()?)
}

/// As [`file_system`], from the text of `/proc/self/mountinfo`.
fn mounted(text: &str) -> Option<PathBuf> {
    text.lines().find_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        (kind.split(' ').next() == Some("binder"))
            .then(|| mount.split(' ').nth(4))?
            .map(PathBuf::from)
    })
}

/// How the names of devices begin that are meant for [`fixed_devices`].
pub const FIXED_DEVICE: &str = "crossway-binder";

/// The devices of a kernel without binderfs that are ours to use: `/dev/crossway-binder0` and so
/// on, made by `modprobe binder_linux devices=crossway-binder0,...`. Others belong to whoever has
/// named them.
pub fn fixed_devices() -> Vec<PathBuf> {
    let entries = fs::read_dir("/dev").into_iter().flatten().flatten();
    let ours = entries.filter(|e| e.file_name().to_string_lossy().starts_with(FIXED_DEVICE));
    ours.map(|entry| entry.path()).collect()
}

/// Creates the device `name` in the binderfs at `folder`, and returns its path. Remove it by
/// unlinking it.
///
/// # Errors
/// There is such a device (`EEXIST`), or this user may not create one (`EACCES`).
pub fn add_device(folder: &Path, name: &str) -> Result<PathBuf, OsError> {
    let control = folder.join("binder-control");
    let failed = |call| move |e: Errno| OsError::new(call, folder.join(name).display(), e);
    let fd = rustix::fs::open(&control, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        .map_err(|e| OsError::new("open", control.display(), e))?;
    let mut device = wire::Device { name: [0; 256], major: 0, minor: 0 };
    let room = device.name.len() - 1;
    if name.len() > room {
        return Err(failed("binderfs")(Errno::NAMETOOLONG));
    }
    device.name[..name.len()].copy_from_slice(name.as_bytes());
    // SAFETY: the argument is the structure that this request reads and writes.
    let done = unsafe { libc::ioctl(fd.as_raw_fd(), wire::ADD_DEVICE as _, &raw mut device) };
    if done == -1 {
        Err(failed("ioctl(BINDER_CTL_ADD)")(last_errno()))
    } else {
        Ok(folder.join(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mount_is_found_by_its_type() {
        let text = "30 23 0:26 / /dev/shm rw - tmpfs tmpfs rw\n\
                    61 23 0:41 / /dev/binderfs rw,relatime shared:5 - binder binder rw,max=1048576\n";
        assert_eq!(mounted(text), Some("/dev/binderfs".into()));
        assert_eq!(mounted("30 23 0:26 / /mnt/binder rw - tmpfs binder rw\n"), None);
    }
}
