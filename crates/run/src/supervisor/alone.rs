//! Whether nothing but a number refers to a socket of a supervised program, so that it can be replaced.

use std::fs;
use std::os::fd::RawFd;

use crossway_sys::proc;

use crate::reason::{self, Reason};

/// A program with more descriptors is not examined: it would take too long.
const MOST_DESCRIPTORS: usize = 2048;
/// Nor are more descendants.
const MOST_PROCESSES: usize = 64;

/// Checks that a socket with this inode, descriptor `fd` of process `pid`, has no copy there or in a process that it has
/// started, and is not registered with epoll.
pub(super) fn check(pid: u32, fd: RawFd, inode: u64) -> Result<(), Reason> {
    let mut processes = vec![pid];
    let mut at = 0;
    while let Some(process) = processes.get(at).copied() {
        let own = (process == pid).then_some(fd);
        examine(process, own, inode)?;
        processes.extend(children(process));
        if processes.len() > MOST_PROCESSES {
            return Err(
                "the program has started too many processes to see whether they have copies",
            );
        }
        at += 1;
    }
    Ok(())
}

/// Whether a process still belongs to the user of this one. One that has changed its user must not take part in this user's
/// connections.
pub(super) fn is_of_this_user(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let users = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    // Real, effective.
    let user = users.and_then(|users| users.split_whitespace().nth(1)?.parse().ok());
    user == Some(proc::effective_user())
}

/// Checks the descriptors of a process; `own` is the one that may be the socket.
fn examine(pid: u32, own: Option<RawFd>, inode: u64) -> Result<(), Reason> {
    let name = format!("socket:[{inode}]");
    // A process that has ended has no copies.
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fd")) else { return Ok(()) };
    for (n, entry) in entries.flatten().enumerate() {
        if n >= MOST_DESCRIPTORS {
            return Err("the program has too many descriptors to see whether there are copies");
        }
        let Ok(target) = fs::read_link(entry.path()) else { continue };
        let number = entry.file_name().to_str().and_then(|number| number.parse().ok());
        if target.as_os_str() == &*name && (own.is_none() || number != own) {
            return Err(reason::COPIED);
        }
        if target.as_os_str() == "anon_inode:[eventpoll]"
            && let Some(number) = number
            && is_registered(pid, number, inode)
        {
            return Err("the socket was registered with epoll before it was connected");
        }
    }
    Ok(())
}

/// Whether an epoll instance has a registration of a socket with this inode.
fn is_registered(pid: u32, epoll: RawFd, inode: u64) -> bool {
    let about = fs::read_to_string(format!("/proc/{pid}/fdinfo/{epoll}")).unwrap_or_default();
    let registrations = about.lines().filter(|line| line.starts_with("tfd:"));
    registrations.filter_map(|line| line.split("ino:").nth(1)).any(|rest| {
        let word = rest.split_whitespace().next().unwrap_or_default();
        u64::from_str_radix(word, 16) == Ok(inode)
    })
}

fn children(pid: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    lists
        .flat_map(|list| list.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
        .filter_map(|child| child.parse().ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::fd::{AsRawFd, OwnedFd};
    use std::time::{Duration, Instant};

    use crossway_sys::epoll::{Epoll, Trigger};
    use crossway_sys::socket::twin;

    use super::*;

    #[test]
    fn copies_and_registrations_are_seen() {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let (fd, inode, own) = (socket.as_raw_fd(), twin::inode(&socket), std::process::id());
        // A child of another test has copies of everything for a moment.
        let until = Instant::now() + Duration::from_secs(60);
        let settles = || {
            while check(own, fd, inode).is_err() {
                assert!(Instant::now() < until, "{:?}", check(own, fd, inode));
                std::thread::yield_now();
            }
        };
        settles();
        let copy = socket.try_clone().unwrap();
        assert!(check(own, fd, inode).unwrap_err().contains("copies"));
        drop(copy);
        let epoll = Epoll::new(1).unwrap();
        epoll.add(&socket, 1, Trigger::WhileReadable).unwrap();
        assert!(check(own, fd, inode).unwrap_err().contains("epoll"));
        drop(epoll);
        // A child that has inherited it.
        let inherited = OwnedFd::from(socket.try_clone().unwrap());
        let mut child =
            std::process::Command::new("sleep").arg("60").stdin(inherited).spawn().unwrap();
        assert!(check(own, fd, inode).unwrap_err().contains("copies"));
        child.kill().unwrap();
        child.wait().unwrap();
        settles();
    }
}
