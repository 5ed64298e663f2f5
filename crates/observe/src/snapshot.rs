//! What the kernel says about all processes at one instant: their descriptors, shared mappings and sockets.
//!
//! A process may end while it is looked at; it is then left out, like one that ended before.

mod sockets;

use std::collections::{BTreeMap, HashMap};
use std::io;

use crossway_sys::proc;
use crossway_sys::processes::{Descriptor, ProcessFiles, SysvQueue, bracketed};
use serde::Serialize;

pub use sockets::{Socket, SocketTable};

/// A process.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// Its parent's number.
    pub parent: u32,
    /// Its short name.
    pub name: String,
    /// Its user; `None` if it ended before that was read.
    pub user: Option<u32>,
    /// Number of threads.
    pub threads: u32,
    /// When it started, in clock ticks after boot.
    pub started_ticks: u64,
    /// CPU time so far, nanoseconds.
    pub cpu_ns: u64,
    /// Whether it has ended and only waits for its parent.
    pub zombie: bool,
    /// Whether its descriptors and mappings could be read.
    pub readable: bool,
    /// Its network namespace (an inode); `None` if that could not be read.
    pub network_namespace: Option<u64>,
}

/// A kernel object through which processes can exchange data.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Object {
    /// A pipe, by its inode.
    Pipe(u64),
    /// A FIFO, by device and inode.
    Fifo(u64, u64),
    /// A socket, by its inode.
    Socket(u64),
    /// Shared memory, by device (as in `/proc/PID/maps`) and inode.
    Memory(String, u64),
    /// An eventfd, by the kernel's number for it.
    Event(u64),
    /// A pseudo-terminal, by its number.
    Terminal(u32),
    /// A POSIX message queue, by device and inode.
    Queue(u64, u64),
    /// An io_uring, by the first holder and descriptor.
    Uring(u32, i32),
}

/// How a process can use an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holding {
    /// The process.
    pub pid: u32,
    /// The object.
    pub object: Object,
    /// The descriptor; `None`: a mapping.
    pub descriptor: Option<i32>,
    /// Whether it can read from it.
    pub reads: bool,
    /// Whether it can write to it.
    pub writes: bool,
    /// The object's name or path, empty if it has none.
    pub name: String,
    /// Length of a mapping in bytes.
    pub mapped_bytes: u64,
}

/// Something that could not be seen, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Gap {
    /// What could not be seen, and why.
    pub what: String,
    /// What to do to see it.
    pub remedy: String,
}

/// The state of the machine at one instant.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// All processes, by their numbers.
    pub processes: BTreeMap<u32, Process>,
    /// What they hold.
    pub holdings: Vec<Holding>,
    /// All sockets of the network namespaces that could be entered.
    pub sockets: SocketTable,
    /// The System V message queues.
    pub sysv_queues: Vec<SysvQueue>,
    /// What could not be seen.
    pub gaps: Vec<Gap>,
    /// Number of descriptors seen.
    pub descriptors: u64,
    /// Number of system calls that it took to read `/proc`.
    pub calls: u64,
}

impl Snapshot {
    /// Looks at all processes that this process may look at. The observed processes do not notice.
    ///
    /// # Errors
    /// `/proc` is not mounted.
    pub fn take() -> io::Result<Snapshot> {
        let files = ProcessFiles::new();
        let mut snapshot = Snapshot { sysv_queues: files.sysv_queues(), ..Snapshot::default() };
        let mut closed: BTreeMap<u32, usize> = BTreeMap::new();
        for pid in files.pids()? {
            let Ok(identity) = files.identity(pid) else { continue };
            let user = files.user(pid).ok();
            let mut process = Process {
                pid,
                parent: identity.parent,
                zombie: identity.is_zombie(),
                user,
                threads: identity.threads,
                started_ticks: identity.started_ticks,
                cpu_ns: identity.user_ns + identity.system_ns,
                name: identity.name,
                readable: false,
                network_namespace: None,
            };
            if !process.zombie {
                match snapshot.look_into(&files, pid) {
                    Ok(()) => {
                        process.readable = true;
                        process.network_namespace = files.network_namespace(pid).ok();
                    }
                    Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
                        *closed.entry(user.unwrap_or(u32::MAX)).or_default() += 1;
                    }
                    // It ended meanwhile.
                    Err(_) => continue,
                }
            }
            snapshot.processes.insert(pid, process);
        }
        snapshot.gaps.extend(closed.into_iter().map(|(user, count)| {
            Gap {
                what: format!(
                    "the descriptors of {count} {} of {}",
                    if count == 1 { "process" } else { "processes" },
                    if user == u32::MAX { "an unknown user".to_owned() } else { user_name(user) }
                ),
                remedy: if proc::is_root() {
                    "leave the container or user namespace; a security module may also forbid it"
                } else {
                    "run as root, or as that user"
                }
                .to_owned(),
            }
        }));
        snapshot.share_urings();
        snapshot.list_sockets(&files);
        snapshot.calls = files.calls();
        Ok(snapshot)
    }

    /// Reads what a process holds.
    fn look_into(&mut self, files: &ProcessFiles, pid: u32) -> io::Result<()> {
        let descriptors = files.descriptors(pid)?;
        self.descriptors += descriptors.len() as u64;
        for descriptor in &descriptors {
            if let Some((object, name)) = identify(files, pid, descriptor) {
                self.holdings.push(Holding {
                    pid,
                    object,
                    descriptor: Some(descriptor.number),
                    reads: descriptor.reads,
                    writes: descriptor.writes,
                    name,
                    mapped_bytes: 0,
                });
            }
        }
        // A process may end here; what it held is then still true of the instant before.
        for mapping in files.shared_mappings(pid).unwrap_or_default() {
            if is_exchange(&mapping.path) {
                self.holdings.push(Holding {
                    pid,
                    object: Object::Memory(mapping.device, mapping.inode),
                    descriptor: None,
                    reads: true,
                    writes: mapping.writable,
                    name: mapping.path.trim_end_matches(" (deleted)").to_owned(),
                    mapped_bytes: mapping.bytes,
                });
            }
        }
        Ok(())
    }

    /// Gives rings that are the same open file in several processes the same identity. They have no number of their
    /// own, so the kernel compares them.
    fn share_urings(&mut self) {
        let mut known: Vec<(u32, i32)> = Vec::new();
        for holding in &mut self.holdings {
            let (Object::Uring(pid, _), Some(descriptor)) = (&holding.object, holding.descriptor)
            else {
                continue;
            };
            let here = (*pid, descriptor);
            let same = known.iter().find(|there| {
                crossway_sys::kcmp::compare_files(here, **there)
                    .is_ok_and(|order| order == std::cmp::Ordering::Equal)
            });
            match same {
                Some((pid, descriptor)) => holding.object = Object::Uring(*pid, *descriptor),
                None => known.push(here),
            }
        }
    }

    /// Lists the sockets of each network namespace in which a process has sockets.
    fn list_sockets(&mut self, files: &ProcessFiles) {
        let own = files.network_namespace(std::process::id()).ok();
        self.sockets.list_own(own, &mut self.gaps);
        let mut others: BTreeMap<u64, u32> = BTreeMap::new();
        for process in self.processes.values() {
            if let Some(namespace) = process.network_namespace.filter(|n| Some(*n) != own) {
                others.entry(namespace).or_insert(process.pid);
            }
        }
        for (namespace, pid) in others {
            let name = self.processes.get(&pid).map_or("", |p| p.name.as_str()).to_owned();
            self.sockets.list_of(namespace, pid, &name, &mut self.gaps);
        }
        // What no list contains still has the name of its protocol.
        let mut asked: HashMap<u64, ()> = HashMap::new();
        for holding in &self.holdings {
            let (Object::Socket(inode), Some(descriptor)) = (&holding.object, holding.descriptor)
            else {
                continue;
            };
            if self.sockets.get(*inode).is_none() && asked.insert(*inode, ()).is_none() {
                let protocol = files.socket_protocol(holding.pid, descriptor);
                let protocol = protocol.unwrap_or_else(|_| "socket".to_owned());
                self.sockets.add(*inode, Socket::Other(protocol));
            }
        }
    }
}

/// The object behind a descriptor, with its name; `None` if it carries nothing between processes.
fn identify(files: &ProcessFiles, pid: u32, descriptor: &Descriptor) -> Option<(Object, String)> {
    let target = descriptor.target.as_str();
    let number = descriptor.number;
    if let Some(inode) = bracketed(target, "pipe:") {
        return Some((Object::Pipe(inode), String::new()));
    }
    if let Some(inode) = bracketed(target, "socket:") {
        return Some((Object::Socket(inode), String::new()));
    }
    if let Some(kind) = target.strip_prefix("anon_inode:") {
        return match kind {
            "[eventfd]" => {
                // Since Linux 5.2.
                let id = files.descriptor_field(pid, number, "eventfd-id").ok()??;
                Some((Object::Event(id.parse().ok()?), String::new()))
            }
            "[io_uring]" => Some((Object::Uring(pid, number), String::new())),
            _ => None,
        };
    }
    if let Some(terminal) = target.strip_prefix("/dev/pts/")
        && let Ok(terminal) = terminal.parse()
    {
        return Some((Object::Terminal(terminal), target.to_owned()));
    }
    if target == "/dev/ptmx" || target == "/dev/pts/ptmx" {
        let index = files.descriptor_field(pid, number, "tty-index").ok()??;
        // Only the master has no name here.
        return Some((Object::Terminal(index.parse().ok()?), String::new()));
    }
    // Devices and the kernel's own files carry nothing between processes; memfds count if they are mapped.
    let skipped = ["/dev/", "/proc/", "/sys/", "/memfd:"];
    if !target.starts_with('/') || skipped.iter().any(|prefix| target.starts_with(prefix)) {
        return None;
    }
    let file = files.file(pid, number).ok()?;
    let name = target.trim_end_matches(" (deleted)").to_owned();
    if file.is_fifo {
        return Some((Object::Fifo(file.device, file.inode), name));
    }
    // The name of a queue has no second slash.
    let may_be_queue = file.is_regular && !target[1..].contains('/');
    if may_be_queue && files.is_message_queue(pid, number) {
        return Some((Object::Queue(file.device, file.inode), name));
    }
    None
}

/// Whether a shared mapping can carry data between processes: not the memory of a device or of the kernel.
fn is_exchange(path: &str) -> bool {
    let device = path.starts_with("/dev/")
        && !path.starts_with("/dev/shm/")
        && !path.starts_with("/dev/zero")
        && !path.starts_with("/dev/mqueue");
    !path.is_empty() && !device && !path.starts_with("anon_inode:") && !path.starts_with('[')
}

/// A user as text: `this user`, `root` or its number.
pub fn user_name(user: u32) -> String {
    match user {
        0 => "root".to_owned(),
        user if user == proc::effective_user() => "this user".to_owned(),
        user => format!("user {user}"),
    }
}
