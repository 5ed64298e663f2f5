//! Network namespaces by path: running code inside one, and listing its processes.

use std::fs::{self, File};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::net::{AddressFamily, SocketType};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::OsError;

/// Runs `work` on a thread that has entered the network namespace at `path` (e.g. `/run/netns/x`). Sockets made there
/// stay there; the caller's own namespace does not change.
///
/// # Errors
/// The namespace cannot be opened or entered.
pub fn inside<T: Send>(path: &Path, work: impl FnOnce() -> T + Send) -> Result<T, OsError> {
    let namespace = File::open(path).map_err(|e| OsError::new("open", path.display(), e))?;
    std::thread::scope(|scope| {
        let inside = scope.spawn(|| {
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
                .map_err(|e| OsError::new("setns", path.display(), e))?;
            Ok(work())
        });
        inside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Runs `work` on a thread in a network namespace of its own, which has no name: it exists as long as
/// a socket that `work` has made is open.
///
/// # Errors
/// EPERM without CAP_SYS_ADMIN.
pub fn in_new<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T, OsError> {
    std::thread::scope(|scope| {
        let inside = scope.spawn(|| {
            // SAFETY: the thread gets a network namespace of its own; nothing else changes.
            if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
                return Err(OsError::last("unshare", "network namespace"));
            }
            Ok(work())
        });
        inside.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// The number of an interface in the caller's own network namespace.
///
/// # Errors
/// There is no such interface.
pub fn interface_index(name: &str) -> Result<u32, OsError> {
    let answer = ask_of_interface(libc::SIOCGIFINDEX, "SIOCGIFINDEX", name)?;
    // SAFETY: SIOCGIFINDEX has filled in this member of the union.
    let index = unsafe { answer.ifr_ifru.ifru_ifindex };
    Ok(index.unsigned_abs())
}

/// Whether the interface is up and has its carrier, so that packets sent now are transmitted, not dropped. Applies to
/// the caller's own network namespace; for another one, call it within [`inside`].
///
/// # Errors
/// There is no such interface.
pub fn interface_runs(name: &str) -> Result<bool, OsError> {
    let answer = ask_of_interface(libc::SIOCGIFFLAGS, "SIOCGIFFLAGS", name)?;
    // SAFETY: SIOCGIFFLAGS has filled in this member of the union.
    let flags = i32::from(unsafe { answer.ifr_ifru.ifru_flags });
    Ok(flags & libc::IFF_RUNNING != 0)
}

/// The interface's MTU in bytes. Applies to the caller's own network namespace.
///
/// # Errors
/// There is no such interface.
pub fn interface_mtu(name: &str) -> Result<usize, OsError> {
    let answer = ask_of_interface(libc::SIOCGIFMTU, "SIOCGIFMTU", name)?;
    // SAFETY: SIOCGIFMTU has filled in this member of the union.
    let mtu = unsafe { answer.ifr_ifru.ifru_mtu };
    Ok(usize::try_from(mtu).unwrap_or_default())
}

/// Makes the ioctl `request`, which takes an interface's name in a `struct ifreq` and fills in the other fields. `call`
/// is the name of the call in errors.
fn ask_of_interface(
    request: libc::Ioctl,
    call: &'static str,
    name: &str,
) -> Result<libc::ifreq, OsError> {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None)
        .map_err(|e| OsError::new("socket", name, e))?;
    // SAFETY: ifreq is a name and a union of integers, pointers and addresses; all zeroes is a value of it.
    let mut answer: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.len() >= answer.ifr_name.len() {
        return Err(OsError::new(call, name, rustix::io::Errno::NAMETOOLONG));
    }
    for (slot, byte) in answer.ifr_name.iter_mut().zip(name.bytes()) {
        *slot = byte as libc::c_char;
    }
    // SAFETY: the request outlives the call and its name ends in a zero; the kernel writes only inside it.
    if unsafe { libc::ioctl(socket.as_raw_fd(), request, &mut answer) } != 0 {
        return Err(OsError::last(call, name));
    }
    Ok(answer)
}

/// The processes whose main thread is in one of the network namespaces at `paths`.
pub fn members<'a>(paths: impl IntoIterator<Item = &'a Path>) -> Vec<u32> {
    let inodes: Vec<u64> =
        paths.into_iter().filter_map(|p| fs::metadata(p).ok()).map(|m| m.ino()).collect();
    if inodes.is_empty() {
        return Vec::new();
    }
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    processes
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .filter(|pid| {
            fs::metadata(format!("/proc/{pid}/ns/net")).is_ok_and(|m| inodes.contains(&m.ino()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_namespace_is_an_error_that_names_it() {
        let error = inside(Path::new("/run/netns/no-such"), || ()).unwrap_err().to_string();
        assert!(error.contains("/run/netns/no-such"), "{error}");
    }

    #[test]
    fn an_interface_runs_or_is_unknown() {
        assert!(interface_runs("no-such-one").unwrap_err().to_string().contains("no-such-one"));
        assert!(interface_runs("a-name-longer-than-any").is_err());
        // Every namespace has `lo`, up or not.
        interface_runs("lo").unwrap();
        assert!(interface_mtu("lo").unwrap() >= 1500);
    }

    #[test]
    fn this_process_is_a_member_of_its_own_namespace() {
        let own = Path::new("/proc/self/ns/net");
        assert!(members([own]).contains(&std::process::id()));
        assert!(members([Path::new("/nowhere")]).is_empty());
    }
}
