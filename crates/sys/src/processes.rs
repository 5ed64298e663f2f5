//! What `/proc` says about each process: its identity, its descriptors and its shared mappings. Field meanings are from
//! proc(5).
//!
//! A [`ProcessFiles`] counts its system calls, so that a test can bound the cost of looking at a whole machine without
//! measuring time. Nothing here opens a file of a process, attaches to it or stops it.

use std::cell::Cell;
use std::io;
use std::path::PathBuf;

use rustix::fs::{AtFlags, Mode, OFlags, RawDir};
use rustix::io::Errno;

/// A process at one instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its number in the reader's PID namespace.
    pub pid: u32,
    /// Its parent's number; 0 if the parent is outside of the PID namespace.
    pub parent: u32,
    /// Its short name, at most 15 bytes (`comm`).
    pub name: String,
    /// `R` running, `S` sleeping, `Z` zombie and so on.
    pub state: char,
    /// Number of threads.
    pub threads: u32,
    /// When it started, in clock ticks after boot; with the pid, this identifies it.
    pub started_ticks: u64,
    /// CPU time in user code, nanoseconds.
    pub user_ns: u64,
    /// CPU time in the kernel, nanoseconds.
    pub system_ns: u64,
}

impl Identity {
    /// Whether it has ended and only waits for its parent to collect its exit status.
    pub fn is_zombie(&self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }
}

/// Parses the text of `/proc/PID/stat`; `ticks_per_s` is the unit of its times.
pub fn parse_stat(text: &str, ticks_per_s: u64) -> Option<Identity> {
    // The second field is the command in parentheses and may contain anything, so fields are counted after its last
    // ')'.
    let (open, close) = (text.find('(')?, text.rfind(')')?);
    let fields: Vec<&str> = text[close + 1..].split_ascii_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    let tick_ns = 1_000_000_000 / ticks_per_s.max(1);
    Some(Identity {
        pid: text[..open].trim().parse().ok()?,
        name: text.get(open + 1..close)?.to_owned(),
        state: fields.first()?.chars().next()?,
        parent: u32::try_from(number(1)?).ok()?,
        user_ns: number(11)? * tick_ns,
        system_ns: number(12)? * tick_ns,
        threads: u32::try_from(number(17)?).ok()?,
        started_ticks: number(19)?,
    })
}

/// An open descriptor of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// Its number.
    pub number: i32,
    /// What the link in `/proc/PID/fd` names: a path, or a kind with an inode such as `pipe:[123]`.
    pub target: String,
    /// Whether it was opened for reading; known for pipes and paths, otherwise true.
    pub reads: bool,
    /// Whether it was opened for writing; known for pipes and paths, otherwise true.
    pub writes: bool,
}

/// A mapping that a process shares with everyone who maps the same object (`MAP_SHARED`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedMapping {
    /// The device of the mapped object, as in the file: `00:01`.
    pub device: String,
    /// Its inode on that device; the identifier of a System V segment.
    pub inode: u64,
    /// Its path or name, e.g. `/memfd:ring (deleted)`.
    pub path: String,
    /// Whether this process may write to it.
    pub writable: bool,
    /// Length of the mapping in bytes.
    pub bytes: u64,
}

/// Parses the text of `/proc/PID/maps`. Several mappings of one object become one, with the sum of their lengths.
pub fn parse_maps(text: &str) -> Vec<SharedMapping> {
    let mut found: Vec<SharedMapping> = Vec::new();
    for line in text.lines() {
        let mut parts = line.splitn(6, ' ');
        let (Some(range), Some(rights), Some(_), Some(device), Some(inode)) =
            (parts.next(), parts.next(), parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        if !rights.ends_with('s') {
            continue;
        }
        let Some((from, to)) = range.split_once('-') else { continue };
        let at = |hex: &str| u64::from_str_radix(hex, 16).ok();
        let (Some(from), Some(to), Ok(inode)) = (at(from), at(to), inode.parse()) else { continue };
        let path = parts.next().unwrap_or_default().trim();
        let writable = rights.contains('w');
        let bytes = to.saturating_sub(from);
        match found.iter_mut().find(|m| m.inode == inode && m.device == device) {
            Some(known) => {
                known.writable |= writable;
                known.bytes += bytes;
            }
            None => found.push(SharedMapping {
                device: device.to_owned(),
                inode,
                path: path.to_owned(),
                writable,
                bytes,
            }),
        }
    }
    found
}

/// The file that a descriptor refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileIdentity {
    /// The device that holds it.
    pub device: u64,
    /// Its inode on that device.
    pub inode: u64,
    /// Whether it is a FIFO.
    pub is_fifo: bool,
    /// Whether it is a regular file; a POSIX message queue is one, too.
    pub is_regular: bool,
}

/// A System V message queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SysvQueue {
    /// Its identifier (`msqid`).
    pub id: u64,
    /// Bytes of the messages in it.
    pub queued_bytes: u64,
    /// Number of messages in it.
    pub queued_msgs: u64,
    /// The process that sent to it last; 0: none yet.
    pub last_sender: u32,
    /// The process that received from it last; 0: none yet.
    pub last_receiver: u32,
}

/// Parses the text of `/proc/sysvipc/msg`.
pub fn parse_sysv_queues(text: &str) -> Vec<SysvQueue> {
    let rows = text.lines().skip(1).filter_map(|line| {
        let fields: Vec<u64> =
            line.split_ascii_whitespace().map(|f| f.parse().unwrap_or(0)).collect();
        let process = |at: usize| u32::try_from(*fields.get(at)?).ok();
        Some(SysvQueue {
            id: *fields.get(1)?,
            queued_bytes: *fields.get(3)?,
            queued_msgs: *fields.get(4)?,
            last_sender: process(5)?,
            last_receiver: process(6)?,
        })
    });
    rows.collect()
}

/// Reads the files of processes and counts the system calls this takes.
#[derive(Debug, Default)]
pub struct ProcessFiles {
    calls: Cell<u64>,
}

/// Bytes for the entries of a directory that one call returns.
const ENTRIES: usize = 32 * 1024;

impl ProcessFiles {
    /// A reader that has made no calls yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of system calls so far.
    pub fn calls(&self) -> u64 {
        self.calls.get()
    }

    fn count(&self, calls: u64) {
        self.calls.set(self.calls.get() + calls);
    }

    /// The processes that the reader's `/proc` lists, in ascending order.
    ///
    /// # Errors
    /// `/proc` is not mounted.
    pub fn pids(&self) -> io::Result<Vec<u32>> {
        let mut pids: Vec<u32> = Vec::new();
        let directory = self.open_directory("/proc")?;
        self.entries(&directory, |name| {
            pids.extend(name.parse::<u32>());
            Ok(())
        })?;
        pids.sort_unstable();
        Ok(pids)
    }

    /// Reads `/proc/PID/stat`, which every user may read unless `/proc` is mounted with `hidepid`.
    ///
    /// # Errors
    /// The process has ended, or is hidden.
    pub fn identity(&self, pid: u32) -> io::Result<Identity> {
        let text = self.read(&format!("/proc/{pid}/stat"))?;
        let parsed = parse_stat(&text, rustix::param::clock_ticks_per_second());
        parsed.ok_or_else(|| io::Error::other(format!("/proc/{pid}/stat has an unknown format")))
    }

    /// The threads of a process.
    ///
    /// # Errors
    /// The process has ended.
    pub fn threads(&self, pid: u32) -> io::Result<Vec<u32>> {
        let directory = self.open_directory(&format!("/proc/{pid}/task"))?;
        let mut found = Vec::new();
        self.entries(&directory, |name| {
            found.extend(name.parse::<u32>());
            Ok(())
        })?;
        Ok(found)
    }

    /// Whether another process traces this one (ptrace); false if it has ended.
    pub fn is_traced(&self, pid: u32) -> bool {
        let status = self.read(&format!("/proc/{pid}/status")).unwrap_or_default();
        let tracer = status.lines().find_map(|line| line.strip_prefix("TracerPid:"));
        tracer.is_some_and(|tracer| tracer.trim() != "0")
    }

    /// The user to whom a process belongs.
    ///
    /// # Errors
    /// The process has ended.
    pub fn user(&self, pid: u32) -> io::Result<u32> {
        self.count(1);
        Ok(rustix::fs::stat(format!("/proc/{pid}"))?.st_uid)
    }

    /// The arguments of a process, separated by spaces; empty for a thread of the kernel.
    ///
    /// # Errors
    /// The process has ended.
    pub fn command_line(&self, pid: u32) -> io::Result<String> {
        let text = self.read(&format!("/proc/{pid}/cmdline"))?;
        Ok(text.trim_end_matches('\0').replace('\0', " "))
    }

    /// The inode of the network namespace that a process is in.
    ///
    /// # Errors
    /// The process has ended, or belongs to another user.
    pub fn network_namespace(&self, pid: u32) -> io::Result<u64> {
        self.count(1);
        let link = rustix::fs::readlink(format!("/proc/{pid}/ns/net"), Vec::new())?;
        let link = link.to_string_lossy().into_owned();
        bracketed(&link, "net:").ok_or_else(|| io::Error::other(format!("unknown link {link}")))
    }

    /// The descriptors of a process. Descriptors that close meanwhile are left out.
    ///
    /// # Errors
    /// The process has ended, or belongs to another user (`EACCES`).
    pub fn descriptors(&self, pid: u32) -> io::Result<Vec<Descriptor>> {
        let directory = self.open_directory(&format!("/proc/{pid}/fd"))?;
        let mut found = Vec::new();
        let mut buffer = Vec::with_capacity(256);
        self.entries(&directory, |name| {
            let Ok(number) = name.parse::<i32>() else { return Ok(()) };
            self.count(1);
            match rustix::fs::readlinkat(&directory, name, std::mem::take(&mut buffer)) {
                Ok(link) => {
                    let target = link.to_string_lossy().into_owned();
                    let (mut reads, mut writes) = (true, true);
                    if target.starts_with("pipe:") || target.starts_with('/') {
                        self.count(1);
                        let flags = AtFlags::SYMLINK_NOFOLLOW;
                        // The link's own permissions are the mode in which the file was opened.
                        if let Ok(link) = rustix::fs::statat(&directory, name, flags) {
                            (reads, writes) =
                                (link.st_mode & 0o400 != 0, link.st_mode & 0o200 != 0);
                        }
                    }
                    found.push(Descriptor { number, target, reads, writes });
                    buffer = link.into_bytes();
                    buffer.clear();
                    Ok(())
                }
                Err(Errno::NOENT) => Ok(()),
                Err(e) => Err(e.into()),
            }
        })?;
        Ok(found)
    }

    /// The file behind a descriptor of a process.
    ///
    /// # Errors
    /// It has been closed, or the process belongs to another user.
    pub fn file(&self, pid: u32, descriptor: i32) -> io::Result<FileIdentity> {
        self.count(1);
        let found = rustix::fs::stat(format!("/proc/{pid}/fd/{descriptor}"))?;
        let kind = rustix::fs::FileType::from_raw_mode(found.st_mode);
        Ok(FileIdentity {
            device: found.st_dev,
            inode: found.st_ino,
            is_fifo: kind.is_fifo(),
            is_regular: kind.is_file(),
        })
    }

    /// Whether a descriptor of a process is a POSIX message queue.
    pub fn is_message_queue(&self, pid: u32, descriptor: i32) -> bool {
        /// MQUEUE_MAGIC of the kernel's ipc/mqueue.c.
        const MAGIC: u64 = 0x1980_0202;
        self.count(1);
        let found = rustix::fs::statfs(format!("/proc/{pid}/fd/{descriptor}"));
        found.is_ok_and(|found| found.f_type as u64 == MAGIC)
    }

    /// The value of a field in a descriptor's `fdinfo`, e.g. `eventfd-id`.
    ///
    /// # Errors
    /// The descriptor has been closed, or the process belongs to another user.
    pub fn descriptor_field(
        &self,
        pid: u32,
        descriptor: i32,
        field: &str,
    ) -> io::Result<Option<String>> {
        let text = self.read(&format!("/proc/{pid}/fdinfo/{descriptor}"))?;
        Ok(text.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            (name.trim() == field).then(|| value.trim().to_owned())
        }))
    }

    /// The kernel's name for the protocol of a socket of a process, e.g. `UNIX-STREAM` or `TIPC`, in whichever network
    /// namespace it is.
    ///
    /// # Errors
    /// The descriptor has been closed, or the process belongs to another user.
    pub fn socket_protocol(&self, pid: u32, descriptor: i32) -> io::Result<String> {
        self.count(1);
        let mut name = [0; 64];
        let path = format!("/proc/{pid}/fd/{descriptor}");
        let len = rustix::fs::getxattr(path, "system.sockprotoname", &mut name[..])?;
        Ok(String::from_utf8_lossy(&name[..len]).trim_end_matches('\0').to_owned())
    }

    /// The objects that a process maps shared.
    ///
    /// # Errors
    /// The process has ended, or belongs to another user.
    pub fn shared_mappings(&self, pid: u32) -> io::Result<Vec<SharedMapping>> {
        Ok(parse_maps(&self.read(&format!("/proc/{pid}/maps"))?))
    }

    /// The System V message queues of this process's IPC namespace; none if the kernel has no System V queues.
    pub fn sysv_queues(&self) -> Vec<SysvQueue> {
        parse_sysv_queues(&self.read("/proc/sysvipc/msg").unwrap_or_default())
    }

    /// Opens, reads and closes a file of `/proc`.
    fn read(&self, path: &str) -> io::Result<String> {
        use std::io::Read;
        let file = std::fs::File::open(path);
        self.count(1);
        let mut file = file?;
        let mut bytes = Vec::with_capacity(4096);
        let mut chunk = [0; 4096];
        loop {
            self.count(1);
            match file.read(&mut chunk)? {
                0 => break,
                len => bytes.extend_from_slice(&chunk[..len]),
            }
        }
        self.count(1);
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn open_directory(&self, path: &str) -> io::Result<rustix::fd::OwnedFd> {
        // Its end counts, too.
        self.count(2);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(rustix::fs::open(PathBuf::from(path), flags, Mode::empty())?)
    }

    fn entries(
        &self,
        directory: &rustix::fd::OwnedFd,
        mut each: impl FnMut(&str) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut buffer = Vec::with_capacity(ENTRIES);
        let mut entries = RawDir::new(directory, buffer.spare_capacity_mut());
        loop {
            // An empty buffer is filled by a call; the last call finds nothing more.
            self.count(u64::from(entries.is_buffer_empty()));
            let Some(entry) = entries.next() else { return Ok(()) };
            let entry = entry?;
            if let Ok(name) = entry.file_name().to_str() {
                each(name)?;
            }
        }
    }
}

/// The number in a text such as `pipe:[123]`, if it begins with `kind`.
pub fn bracketed(text: &str, kind: &str) -> Option<u64> {
    text.strip_prefix(kind)?.strip_prefix('[')?.strip_suffix(']')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_and_spaces_does_not_shift_the_fields() {
        let text = "42 (a) b (c) S 7 42 42 0 -1 4194304 1 2 3 4 150 50 0 0 20 0 3 0 987 1 2";
        let found = parse_stat(text, 100).unwrap();
        assert_eq!((found.pid, found.parent, found.threads), (42, 7, 3));
        assert_eq!(found.name, "a) b (c");
        assert_eq!((found.user_ns, found.system_ns), (1_500_000_000, 500_000_000));
        assert_eq!(found.started_ticks, 987);
        assert!(!found.is_zombie());
        for cut in 0..text.len() - 4 {
            // Never a panic; a text cut within the last fields may still be complete enough.
            let _ = parse_stat(&text[..cut], 100);
        }
    }

    #[test]
    fn only_shared_mappings_count_and_those_of_one_object_are_one() {
        let text = "\
7f00-8f00 rw-s 00000000 00:01 1034   /memfd:a ring (deleted)
8f00-9f00 r--s 00001000 00:01 1034   /memfd:a ring (deleted)
a000-b000 r-xp 00000000 fe:00 99     /usr/lib/libc.so.6
c000-d000 r--s 00000000 fe:00 12     /usr/share/cache
";
        let found = parse_maps(text);
        assert_eq!(found.len(), 2, "{found:?}");
        assert_eq!(found[0].path, "/memfd:a ring (deleted)");
        assert_eq!((found[0].bytes, found[0].writable), (0x2000, true));
        assert!(!found[1].writable);
    }

    #[test]
    fn the_queues_of_system_v_have_their_last_users() {
        let text = "key msqid perms cbytes qnum lspid lrpid uid\n 0 3 600 128 2 77 78 0\n bad\n";
        let queue = SysvQueue {
            id: 3,
            queued_bytes: 128,
            queued_msgs: 2,
            last_sender: 77,
            last_receiver: 78,
        };
        assert_eq!(parse_sysv_queues(text), [queue]);
        assert!(parse_sysv_queues("").is_empty());
    }

    #[test]
    fn this_process_is_found_with_its_descriptors_and_their_directions() {
        let files = ProcessFiles::new();
        let own = std::process::id();
        assert!(files.pids().unwrap().contains(&own));
        assert_eq!(files.identity(own).unwrap().pid, own);
        assert!(files.network_namespace(own).unwrap() > 0);
        let (reader, writer) = crate::pipe::pipe().unwrap();
        let before = files.calls();
        let found = files.descriptors(own).unwrap();
        let calls = files.calls() - before;
        use std::os::fd::AsRawFd;
        let of = |fd: i32| found.iter().find(|d| d.number == fd).unwrap();
        let (reads, writes) = (of(reader.as_raw_fd()), of(writer.as_raw_fd()));
        assert_eq!(reads.target, writes.target);
        assert!(bracketed(&reads.target, "pipe:").is_some());
        assert_eq!((reads.reads, reads.writes), (true, false));
        assert_eq!((writes.reads, writes.writes), (false, true));
        assert!(calls <= 8 + 2 * found.len() as u64, "{calls} calls for {}", found.len());
    }

    #[test]
    fn a_process_that_has_ended_is_not_found() {
        let files = ProcessFiles::new();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        assert_eq!(files.identity(child.id()).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(files.descriptors(child.id()).is_err());
    }

    #[test]
    fn a_socket_has_a_protocol() {
        use std::os::fd::AsRawFd;
        let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let files = ProcessFiles::new();
        let name = files.socket_protocol(std::process::id(), one.as_raw_fd()).unwrap();
        assert!(name.starts_with("UNIX"), "{name}");
    }
}
