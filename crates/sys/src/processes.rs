//! What `/proc` says about each process: its identity, its descriptors and its shared mappings. Field meanings are from
//! proc(5).
//!
//! A [`ProcessFiles`] counts its system calls, so that a test can bound the cost of looking at a whole machine without
//! measuring time. Nothing here opens a file of a process, attaches to it or stops it.

mod texts;

use std::cell::Cell;
use std::io;
use std::path::PathBuf;

use rustix::fs::{AtFlags, Mode, OFlags, RawDir};
use rustix::io::Errno;

pub use texts::*;

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

    /// CPU time that a thread has used since it began, nanoseconds: `/proc/TID/schedstat`. Of one that
    /// is running, the time since the last tick is missing.
    ///
    /// # Errors
    /// The thread has ended, or the kernel does not count this (`CONFIG_SCHED_INFO`).
    pub fn thread_cpu_ns(&self, thread: u32) -> io::Result<u64> {
        let path = format!("/proc/{thread}/schedstat");
        let text = self.read(&path)?;
        let first = text.split_ascii_whitespace().next().and_then(|word| word.parse().ok());
        first.ok_or_else(|| io::Error::other(format!("{path} has an unknown format")))
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
        self.namespace(pid, "net")
    }

    /// The inode of the namespace of a kind (`net`, `ipc`, `mnt`, `pid`) that a process is in.
    ///
    /// # Errors
    /// The process has ended, or belongs to another user.
    pub fn namespace(&self, pid: u32, kind: &str) -> io::Result<u64> {
        self.count(1);
        let link = rustix::fs::readlink(format!("/proc/{pid}/ns/{kind}"), Vec::new())?;
        let link = link.to_string_lossy().into_owned();
        let unknown = || io::Error::other(format!("unknown link {link}"));
        bracketed(&link, &format!("{kind}:")).ok_or_else(unknown)
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

#[cfg(test)]
mod tests {
    use super::*;

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
