//! Named pipes: two FIFOs in the run's private directory, one each way.
//!
//! Several connecting ends may send to one listening end. Their messages arrive intact if they are not larger than
//! PIPE_BUF (4096 bytes). A message from the listening end is read by only one of them, no matter which.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossway_sys::lease::{self, Lease, Resource};
use crossway_sys::pipe::{FifoSide, PipeEnd, ignore_sigpipe, make_fifo, open_fifo};
use crossway_sys::poll::is_hung_up;
use crossway_sys::{Errno, OsError};

use crate::building_blocks::byte_stream::{ByteSink, ByteSource, StreamRx, StreamTx};
use crate::building_blocks::pipe_halves::{pipe_caps, pipe_facts};
use crate::{
    Caps, Carrier, Deadline, Facts, Family, Listener, Mechanism, Meeting, Offer, OpenError, Probe,
    Spec, Transport,
};

/// The mechanism `fifo`, fifo(7): one write(2), one read(2) and two copies per message.
#[derive(Debug)]
pub struct Fifo;

/// An end of one of the FIFOs. On the listening side, it keeps the FIFOs' names for as long as a peer may connect.
#[derive(Debug)]
pub struct FifoEnd {
    end: PipeEnd,
    _names: Option<Arc<Names>>,
}

#[derive(Debug)]
struct Names {
    _leases: [Lease; 2],
}

impl ByteSink for FifoEnd {
    const SWITCHES_MODE: bool = true;

    #[inline]
    fn write(&mut self, bytes: &[u8], nonblocking: bool) -> Result<usize, Errno> {
        self.end.write(bytes, nonblocking)
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.end.as_fd()
    }

    fn facts(&self) -> Facts {
        pipe_facts(&self.end)
    }
}

impl ByteSource for FifoEnd {
    const SWITCHES_MODE: bool = true;

    #[inline]
    fn read(&mut self, buf: &mut [u8], nonblocking: bool) -> Result<usize, Errno> {
        self.end.read(buf, nonblocking)
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.end.as_fd()
    }

    fn facts(&self) -> Facts {
        pipe_facts(&self.end)
    }
}

fn named_fifo() -> Result<(PathBuf, Lease), OsError> {
    let path = lease::fresh_path("fifo")?;
    let lease = lease::hold(Resource::Path { path: path.clone() })?;
    match make_fifo(&path) {
        Ok(()) => Ok((path, lease)),
        Err(error) => {
            lease.cancel();
            Err(error)
        }
    }
}

fn open_end(path: &Path, side: FifoSide, spec: &Spec) -> Result<PipeEnd, OsError> {
    let end = PipeEnd::new(open_fifo(path, side)?)?;
    if let Some(bytes) = spec.capacity_bytes {
        end.set_capacity_bytes(bytes)?;
    }
    Ok(end)
}

/// Opens the write end although no reader has opened the FIFO yet, with the help of a temporary reader.
fn open_writer_first(path: &Path, spec: &Spec) -> Result<PipeEnd, OsError> {
    let _reader = open_fifo(path, FifoSide::Read)?;
    open_end(path, FifoSide::Write, spec)
}

/// The listening side: one channel, to which all connected ends send.
#[derive(Debug)]
pub struct FifoListener {
    /// The write end and the read end, until accept returns them.
    ends: Option<(FifoEnd, FifoEnd)>,
    spec: Spec,
}

impl Listener for FifoListener {
    type Tx = StreamTx<FifoEnd>;
    type Rx = StreamRx<FifoEnd>;

    fn accept(&mut self, until: Deadline) -> Result<(Self::Tx, Self::Rx), OpenError> {
        let (write, read) = self
            .ends
            .take()
            .ok_or_else(|| crate::building_blocks::complete::no_second_channel(Fifo::ID))?;
        // A writer without readers polls as an error. There is no way to sleep until it has one, so this retries with
        // increasing pauses.
        let start = Instant::now();
        let mut pause = Duration::from_micros(20);
        while is_hung_up(write.end.as_fd()).map_err(|e| OsError::new("poll", "fifo", e))? {
            if until.is_some_and(|until| Instant::now() >= until) {
                self.ends = Some((write, read));
                return Err(OpenError::TimedOut { mechanism: Fifo::ID, waited: start.elapsed() });
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(1));
        }
        Ok((StreamTx::new(write, self.spec.wait), StreamRx::new(read, self.spec.wait)))
    }
}

impl Mechanism for Fifo {
    const ID: &'static str = "fifo";
    const ABOUT: &'static str = "named pipe, one each way";
    const CARRIER: Carrier = Carrier::new(Family::Pipe, Transport::Pipe).meeting(&[Meeting::Path]);
    type Tx = StreamTx<FifoEnd>;
    type Rx = StreamRx<FifoEnd>;
    type Listener = FifoListener;

    fn caps() -> Caps {
        Caps { fan_in: true, ..pipe_caps() }
    }

    fn probe() -> Probe {
        Probe::of_kernel(
            crate::self_test::exchange_a_byte::<Self>(),
            "set TMPDIR to a directory in which FIFOs can be created",
        )
    }

    fn listen(spec: &Spec) -> Result<(Self::Listener, Offer), OpenError> {
        ignore_sigpipe();
        let (up, up_lease) = named_fifo()?;
        let (down, down_lease) = named_fifo()?;
        let names = Arc::new(Names { _leases: [up_lease, down_lease] });
        let end = |end| FifoEnd { end, _names: Some(names.clone()) };
        let read = end(open_end(&up, FifoSide::Read, spec)?);
        let write = end(open_writer_first(&down, spec)?);
        let offer = Offer::new().with_word("up", up.display()).with_word("down", down.display());
        Ok((FifoListener { ends: Some((write, read)), spec: spec.clone() }, offer))
    }

    fn connect(spec: &Spec, offer: &mut Offer) -> Result<(Self::Tx, Self::Rx), OpenError> {
        ignore_sigpipe();
        let up: PathBuf = offer.word(Self::ID, "up")?;
        let down: PathBuf = offer.word(Self::ID, "down")?;
        // In this order: the listener takes a reader of "down" as a sign that the connector can already write.
        let write = open_end(&up, FifoSide::Write, spec)?;
        let read = open_end(&down, FifoSide::Read, spec)?;
        let end = |end| FifoEnd { end, _names: None };
        Ok((StreamTx::new(end(write), spec.wait), StreamRx::new(end(read), spec.wait)))
    }
}
