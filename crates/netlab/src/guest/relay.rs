//! Streams of commands over the line: a pump reads a descriptor and sends frames, a sink takes frames and writes to a
//! descriptor. A pump sends only as much as its sink has room for, so a stream that is not read cannot block the
//! others.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use crossway_sys::lifeline::{Lifeline, Wakeup};

use super::frame::{CHUNK, Frame, LINE_PIECE, LINE_WINDOW, Lane};

/// Maximum number of bytes in flight in one stream.
const WINDOW: usize = 64 << 10;

/// The sending side of the line, shared by all senders.
#[derive(Clone)]
pub(crate) struct Wire {
    line: Arc<Mutex<File>>,
    /// Limits how many bytes may be written before the other end has read them; `None`: no limit but the line's own.
    room: Option<Arc<Window>>,
}

impl Wire {
    /// Creates the guest's end.
    pub(crate) fn unbounded(line: File) -> Wire {
        Wire { line: Arc::new(Mutex::new(line)), room: None }
    }

    /// Creates the host's end, and the window that the guest's reports widen.
    pub(crate) fn bounded(line: File) -> (Wire, Arc<Window>) {
        let room = Window::of(LINE_WINDOW);
        (Wire { line: Arc::new(Mutex::new(line)), room: Some(Arc::clone(&room)) }, room)
    }

    /// Sends a frame. On a closed line the frame is discarded: whoever reads the line notices that it is closed.
    pub(crate) fn send(&self, frame: &Frame) {
        let mut line = lock(&self.line);
        let bytes = frame.to_bytes();
        for piece in bytes.chunks(LINE_PIECE) {
            if self.room.as_ref().is_some_and(|room| !room.take(piece.len())) {
                return;
            }
            if line.write_all(piece).is_err() {
                return;
            }
        }
    }
}

/// Reads the guest's end of the line, and reports to the host how many bytes were read.
pub(crate) struct CountingReader {
    line: File,
    wire: Wire,
    unsaid: usize,
}

impl CountingReader {
    pub(crate) fn new(line: File, wire: Wire) -> CountingReader {
        CountingReader { line, wire, unsaid: 0 }
    }
}

impl Read for CountingReader {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.line.read(buffer)?;
        self.unsaid += count;
        if self.unsaid >= LINE_PIECE {
            self.wire.send(&Frame::Received { bytes: self.unsaid as u32 });
            self.unsaid = 0;
        }
        Ok(count)
    }
}

/// Locks a mutex, even if another thread has panicked while it held the lock. The values are still usable in that case,
/// because each is written in one step.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How many bytes a pump may send.
pub(crate) struct Window {
    room: Mutex<Option<usize>>,
    changed: Condvar,
}

impl Window {
    /// Creates the window of one stream.
    pub(crate) fn new() -> Arc<Window> {
        Self::of(WINDOW)
    }

    fn of(bytes: usize) -> Arc<Window> {
        Arc::new(Window { room: Mutex::new(Some(bytes)), changed: Condvar::new() })
    }

    /// Records that the sink has consumed `bytes`, so that the pump may send as many more.
    pub(crate) fn widen(&self, bytes: usize) {
        if let Some(room) = lock(&self.room).as_mut() {
            *room += bytes;
        }
        self.changed.notify_all();
    }

    /// Records that the session is over and no more bytes will be consumed.
    pub(crate) fn close(&self) {
        *lock(&self.room) = None;
        self.changed.notify_all();
    }

    /// Waits until there is room for `bytes` and takes it; returns `false` if the window is closed.
    fn take(&self, bytes: usize) -> bool {
        let mut room = lock(&self.room);
        loop {
            match room.as_mut() {
                None => return false,
                Some(free) if *free >= bytes => {
                    *free -= bytes;
                    return true;
                }
                Some(_) => room = self.changed.wait(room).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}

/// The identity of a stream on the line.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) wire: Wire,
    pub(crate) session: u32,
    pub(crate) lane: Lane,
}

/// Sends what can be read from `source` until it ends, or until the other end of `stop` is closed and no more data is
/// ready; then sends the end of the stream.
pub(crate) fn pump(source: File, stop: Lifeline, window: Arc<Window>, to: Place) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let mut buffer = [0; CHUNK];
        while let Some(count) = next(&source, source.as_fd(), &stop, &mut buffer) {
            if !window.take(count) {
                break;
            }
            let bytes = buffer[..count].to_vec();
            to.wire.send(&Frame::Data { session: to.session, lane: to.lane, bytes });
        }
        to.wire.send(&Frame::End { session: to.session, lane: to.lane });
    })
}

fn next(
    mut source: &File,
    fd: BorrowedFd<'_>,
    stop: &Lifeline,
    buffer: &mut [u8],
) -> Option<usize> {
    loop {
        match stop.wait_readable(fd, None) {
            Ok(Wakeup::Timeout) => {}
            // A hang-up without data reads as the end of the stream.
            Ok(Wakeup::Readable) => match source.read(buffer) {
                Ok(0) => return None,
                Ok(count) => return Some(count),
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => return None,
            },
            Ok(Wakeup::PeerClosed) | Err(_) => return None,
        }
    }
}

/// Writes the bytes of received frames to `target`. The thread that does so ends when every sender has been dropped and
/// everything has been written; then it closes `target`.
pub(crate) fn sink(mut target: File, from: Place) -> (Sender<Vec<u8>>, JoinHandle<()>) {
    let (sender, queue): (_, Receiver<Vec<u8>>) = channel();
    let worker = std::thread::spawn(move || {
        let mut open = true;
        for bytes in queue {
            if open && target.write_all(&bytes).is_err() {
                // The reader has closed its pipe: the other end closes its own, so that the writer notices.
                open = false;
                from.wire.send(&Frame::End { session: from.session, lane: from.lane });
            }
            let bytes = bytes.len() as u32;
            from.wire.send(&Frame::Credit { session: from.session, lane: from.lane, bytes });
        }
    });
    (sender, worker)
}
