//! Makes recordings from what people already have: logs of strace, captures of packets, output of perf, traces of
//! NetPerfMeter.

mod assembly;
mod capture;
mod end;
mod netperfmeter;
mod perf;
mod strace;
mod strace_line;

use std::io::{self, BufRead};

use crate::recording::RecordingError;
pub use assembly::{Assembly, Call, Place};
pub use end::End;
pub(crate) use end::{one_way, over_ip};
pub use strace::{BLIND_TO, TRACED_CALLS, read_strace};

/// Why a log could not be imported.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// It cannot be read.
    #[error("cannot read the log: {0}")]
    Log(io::Error),
    /// It is no capture.
    #[error("the capture is damaged ({0}); write it again with tcpdump or tshark")]
    Capture(String),
    /// The recording cannot be written.
    #[error(transparent)]
    Recording(#[from] RecordingError),
}

/// The formats that can be imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `strace -f -ttt -T -yy`.
    Strace,
    /// A capture of packets: pcap or pcapng.
    Capture,
    /// `perf trace`, or `perf script` of system calls.
    Perf,
    /// A trace for NetPerfMeter.
    NetPerfMeter,
}

/// The first bytes of captures: pcap with microseconds and nanoseconds, in both byte orders, and pcapng.
const CAPTURES: [[u8; 4]; 5] = [
    [0xa1, 0xb2, 0xc3, 0xd4],
    [0xd4, 0xc3, 0xb2, 0xa1],
    [0xa1, 0xb2, 0x3c, 0x4d],
    [0x4d, 0x3c, 0xb2, 0xa1],
    [0x0a, 0x0d, 0x0d, 0x0a],
];
/// Lines at the beginning that may be remarks before the format is given up.
const REMARKS: usize = 50;

impl Format {
    /// The format of a file that begins so; `None` if it is none of them.
    pub fn of(beginning: &[u8]) -> Option<Format> {
        if CAPTURES.iter().any(|magic| beginning.starts_with(magic)) {
            return Some(Format::Capture);
        }
        let text = String::from_utf8_lossy(beginning);
        text.lines().take(REMARKS).find_map(|line| {
            if perf::line(line).is_some() {
                Some(Format::Perf)
            } else if strace_line::parse(line).is_some() {
                Some(Format::Strace)
            } else {
                netperfmeter::message(line).map(|_| Format::NetPerfMeter)
            }
        })
    }

    /// What recordings call it.
    pub const fn name(self) -> &'static str {
        match self {
            Format::Strace => "import of an strace log",
            Format::Capture => "import of a capture of packets",
            Format::Perf => "import of a log of perf",
            Format::NetPerfMeter => "import of a NetPerfMeter trace",
        }
    }

    /// What it does not show.
    pub const fn blind_to(self) -> &'static str {
        match self {
            Format::Strace => BLIND_TO,
            Format::Capture => {
                "everything but TCP and UDP; when programs called and how long their calls took; where messages begin \
                 and end within TCP, whose packets may hold a part of one or several; which clients are one process"
            }
            Format::Perf => {
                "the two ends of a socket as one channel; files, which look like channels where perf does not name \
                 them; sizes of sendmmsg and recvmmsg and of message queues; loads and stores in shared memory"
            }
            Format::NetPerfMeter => {
                "everything but when which size is sent: it is a plan, not an observation"
            }
        }
    }

    /// Why its cost is not known.
    pub const fn cost_note(self) -> &'static str {
        match self {
            Format::NetPerfMeter => "nothing was recorded",
            _ => "the file does not say what recording it cost",
        }
    }

    /// Reads a file of this format to its end into a recording. `each` is called after every line or packet; it returns
    /// false to stop early.
    ///
    /// # Errors
    /// The file cannot be read, or the recording cannot be written.
    pub fn read(
        self,
        file: impl BufRead + Send,
        assembly: &mut Assembly,
        each: impl FnMut() -> bool,
    ) -> Result<(), ImportError> {
        match self {
            Format::Strace => read_strace(file, assembly, each),
            Format::Capture => capture::read_capture(file, assembly, each),
            Format::Perf => perf::read_perf(file, assembly, each),
            Format::NetPerfMeter => netperfmeter::read_trace(file, assembly, each),
        }
    }
}
