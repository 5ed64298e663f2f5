//! What the texts below `/proc` say.

/// A process at one instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its number in the reader's PID namespace.
    pub pid: u32,
    /// Its parent's number; 0 if the parent is outside of the PID namespace.
    pub parent: u32,
    /// Its session; 0 if that was begun outside of the PID namespace.
    pub session: u32,
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
    // The second field is the command in parentheses and may contain anything, so fields are
    // counted after its last ')'.
    let (open, close) = (text.find('(')?, text.rfind(')')?);
    let fields: Vec<&str> = text[close + 1..].split_ascii_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    let tick_ns = 1_000_000_000 / ticks_per_s.max(1);
    Some(Identity {
        pid: text[..open].trim().parse().ok()?,
        name: text.get(open + 1..close)?.to_owned(),
        state: fields.first()?.chars().next()?,
        parent: u32::try_from(number(1)?).ok()?,
        session: u32::try_from(number(3)?).ok()?,
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

/// Parses the text of `/proc/PID/maps`. Several mappings of one object become one, with the sum of
/// their lengths.
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
}
