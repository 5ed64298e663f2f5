//! Signals in byte streams: a pair of UNIX sockets, or one FIFO for each direction.

use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crossway_ring::pool::{Block, Pool, Reference};
use crossway_sys::pipe::PipeEnd;
use crossway_sys::{Errno, records, socket};

use super::ahead::{Ahead, Arrived};
use super::frame::{ABANDONED, BY_REFERENCE, FIRST, GONE, HEADER, Header, OUT_OF_BAND};
use super::parts::{Assembly, Came, accept};
use super::{Broken, Filled, Outgoing, Sent};
use crate::limits::{LEAST_SIGNAL, PIECE, SHARED_FROM};

/// Maximum number of bytes per read while signals are small.
const BUFFER: usize = 64 << 10;

/// If at least this many bytes of a piece are missing, they are read directly into the signal's
/// buffer.
const DIRECTLY: usize = 8 << 10;

/// A two-way byte stream.
pub(crate) enum Pipe {
    Socket(OwnedFd),
    Fifo { read: PipeEnd, write: PipeEnd },
}

impl Pipe {
    #[inline]
    fn write(&mut self, parts: &[IoSlice<'_>], patient: bool) -> Result<usize, Errno> {
        match self {
            // The socket's own timeout limits the wait.
            Pipe::Socket(fd) => records::send_parts(fd, parts, !patient),
            Pipe::Fifo { write, .. } => write.write_parts(parts, true),
        }
    }

    /// Does the same as [`Pipe::write`] for a single buffer, for which there are cheaper calls.
    #[inline]
    fn write_one(&mut self, bytes: &[u8], patient: bool) -> Result<usize, Errno> {
        match self {
            Pipe::Socket(fd) => socket::send(fd, bytes, !patient),
            Pipe::Fifo { write, .. } => write.write(bytes, true),
        }
    }

    #[inline]
    fn read(&mut self, buf: &mut [u8], patient: bool) -> Result<usize, Errno> {
        match self {
            Pipe::Socket(fd) => socket::recv(fd, buf, !patient),
            Pipe::Fifo { read, .. } => read.read(buf, true),
        }
    }

    #[inline]
    fn read_parts(&mut self, parts: &mut [IoSliceMut<'_>]) -> Result<usize, Errno> {
        match self {
            Pipe::Socket(fd) => socket::recv_parts(fd, parts, true),
            Pipe::Fifo { read, .. } => read.read_parts(parts, true),
        }
    }

    #[inline]
    fn read_behind(
        &mut self,
        buf: &mut Vec<u8>,
        most: usize,
        patient: bool,
    ) -> Result<usize, Errno> {
        match self {
            Pipe::Socket(fd) => socket::recv_behind(fd, buf, most, !patient),
            Pipe::Fifo { read, .. } => read.read_behind(buf, most, true),
        }
    }
}

/// A piece whose header has arrived.
struct Piece {
    header: Header,
    /// The bytes of the signal received so far.
    bytes: Vec<u8>,
    /// Number of bytes of the piece that are still missing.
    left: usize,
}

/// One end of a byte stream.
pub(crate) struct StreamChannel {
    pipe: Pipe,
    number: u32,
    /// Whether large signals are sent in pieces, as on channels to a node. A node has room for one whole piece.
    in_pieces: bool,
    /// Bytes that were accepted but not written yet.
    unsent: Vec<u8>,
    unsent_from: usize,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Complete signals; they arrived before `piece` and `buffer`.
    complete: VecDeque<(Header, Vec<u8>)>,
    /// An incomplete piece; it arrived before `buffer`.
    piece: Option<Piece>,
    ahead: Ahead,
    pool: Option<Pool>,
}

impl StreamChannel {
    pub(crate) fn new(pipe: Pipe, number: u32, in_pieces: bool, pool: Option<Pool>) -> Self {
        StreamChannel {
            pipe,
            number,
            in_pieces,
            unsent: Vec::new(),
            unsent_from: 0,
            buffer: Vec::new(),
            start: 0,
            end: 0,
            complete: VecDeque::new(),
            piece: None,
            ahead: Ahead::default(),
            pool,
        }
    }

    pub(crate) fn write_fd(&self) -> BorrowedFd<'_> {
        match &self.pipe {
            Pipe::Socket(fd) => fd.as_fd(),
            Pipe::Fifo { write, .. } => write.as_fd(),
        }
    }

    pub(crate) fn read_fd(&self) -> BorrowedFd<'_> {
        match &self.pipe {
            Pipe::Socket(fd) => fd.as_fd(),
            Pipe::Fifo { read, .. } => read.as_fd(),
        }
    }

    pub(crate) fn holds_back(&self) -> bool {
        self.unsent_from < self.unsent.len()
    }

    /// Whether the rest of a piece would be read directly into the signal's buffer.
    pub(crate) fn is_amid_signal(&self) -> bool {
        self.piece.as_ref().is_some_and(|piece| piece.left >= DIRECTLY)
    }

    pub(crate) fn flush(&mut self, patient: bool) -> Result<bool, Broken> {
        while self.holds_back() {
            match self.pipe.write_one(&self.unsent[self.unsent_from..], patient) {
                Ok(n) => self.unsent_from += n,
                Err(Errno::AGAIN) => return Ok(false),
                Err(errno) => return Err(Broken::of("write", errno)),
            }
        }
        self.unsent.clear();
        self.unsent_from = 0;
        // Memory for a large signal is not kept forever.
        self.unsent.shrink_to(BUFFER);
        Ok(true)
    }

    #[inline]
    pub(crate) fn send(&mut self, out: &Outgoing<'_>, patient: bool) -> Result<Sent, Broken> {
        if self.holds_back() && !self.flush(patient)? {
            return Ok(Sent::Full);
        }
        if let Some(pool) = &self.pool {
            if let Some(block) = out.block.filter(|block| pool.has(block)) {
                let place = block.reference();
                return self.send_reference(out, place, Sent::Lent, patient);
            }
            if out.size() >= SHARED_FROM
                && let Some(mut block) = self.block(out.size())
            {
                block[..LEAST_SIGNAL].copy_from_slice(&out.number.to_ne_bytes());
                block[LEAST_SIGNAL..out.size()].copy_from_slice(out.payload);
                let place = block.reference();
                let sent = self.send_reference(out, place, Sent::Taken, patient)?;
                if sent == Sent::Taken {
                    block.lend();
                }
                return Ok(sent);
            }
        }
        if let Some(frame) = out.frame
            && (!self.in_pieces || out.size() <= PIECE)
        {
            return self.put_one(frame, patient);
        }
        let most = if self.in_pieces { PIECE - LEAST_SIGNAL } else { usize::MAX };
        let (first, mut rest) = out.payload.split_at(out.payload.len().min(most));
        let oob = if out.out_of_band { OUT_OF_BAND } else { 0 };
        let header = |piece: usize, flags| Header {
            piece: piece as u32,
            size: out.size() as u32,
            from: out.from,
            to: out.to.get(),
            flags: flags | oob,
        };
        let mut head = [0; HEADER + LEAST_SIGNAL];
        head[..HEADER].copy_from_slice(&header(first.len() + LEAST_SIGNAL, FIRST).encode());
        head[HEADER..].copy_from_slice(&out.number.to_ne_bytes());
        if self.put(&head, first, patient)? == Sent::Full {
            return Ok(Sent::Full);
        }
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(rest.len().min(PIECE));
            rest = after;
            let head = header(piece.len(), 0).encode();
            // The first piece was sent, so what has no room now must be kept.
            if (self.holds_back() && !self.flush(patient)?)
                || self.put(&head, piece, patient)? == Sent::Full
            {
                self.unsent.extend_from_slice(&head);
                self.unsent.extend_from_slice(piece);
            }
        }
        Ok(Sent::Taken)
    }

    /// Passes to the peer the block that contains a signal.
    fn send_reference(
        &mut self,
        out: &Outgoing<'_>,
        place: Reference,
        outcome: Sent,
        patient: bool,
    ) -> Result<Sent, Broken> {
        let header = Header::of_reference(out.size(), out.from, out.to, out.out_of_band);
        Ok(match self.put(&header.encode(), &place.encode(), patient)? {
            Sent::Full => Sent::Full,
            Sent::Taken | Sent::Lent => outcome,
        })
    }

    /// Does the same as [`Channel::block`](super::Channel::block).
    pub(crate) fn block(&self, size: usize) -> Option<Block> {
        self.pool.as_ref()?.alloc(size + 1)
    }

    /// Returns the number of bytes that were read but belong to no signal yet.
    #[cfg(test)]
    pub(crate) fn buffered(&self) -> usize {
        self.end - self.start
    }

    #[cfg(test)]
    pub(crate) fn pool(&self) -> Option<&Pool> {
        self.pool.as_ref()
    }

    /// Does the same as [`StreamChannel::put`] for a header and body in one buffer.
    #[inline]
    fn put_one(&mut self, frame: &[u8], patient: bool) -> Result<Sent, Broken> {
        match self.pipe.write_one(frame, patient) {
            Ok(n) => self.unsent.extend_from_slice(&frame[n..]),
            Err(Errno::AGAIN) => return Ok(Sent::Full),
            Err(errno) => return Err(Broken::of("write", errno)),
        }
        Ok(Sent::Taken)
    }

    /// Writes a header and its body. Keeps the bytes for which there was no room, unless nothing could be written.
    #[inline]
    fn put(&mut self, head: &[u8], body: &[u8], patient: bool) -> Result<Sent, Broken> {
        match self.pipe.write(&[IoSlice::new(head), IoSlice::new(body)], patient) {
            Ok(n) if n == head.len() + body.len() => {}
            Ok(n) => {
                let (of_head, of_body) = (n.min(head.len()), n.saturating_sub(head.len()));
                self.unsent.extend_from_slice(&head[of_head..]);
                self.unsent.extend_from_slice(&body[of_body..]);
            }
            Err(Errno::AGAIN) => return Ok(Sent::Full),
            Err(errno) => return Err(Broken::of("write", errno)),
        }
        Ok(Sent::Taken)
    }

    #[inline]
    pub(crate) fn next(&mut self, assembly: &mut Assembly) -> Result<Option<Came>, Broken> {
        if let Some((header, bytes)) = self.complete.pop_front() {
            return assembly.complete(self.number, &header, bytes);
        }
        loop {
            if let Some(piece) = &mut self.piece {
                let n = piece.left.min(self.end - self.start);
                piece.bytes.extend_from_slice(&self.buffer[self.start..self.start + n]);
                self.start += n;
                piece.left -= n;
                if piece.left > 0 {
                    return Ok(None);
                }
                let Some(Piece { header, bytes, .. }) = self.piece.take() else { continue };
                if header.flags & BY_REFERENCE != 0 {
                    return accept(self.pool.as_ref(), &header, &bytes).map(Some);
                }
                match assembly.complete(self.number, &header, bytes)? {
                    Some(came) => return Ok(Some(came)),
                    None => continue,
                }
            }
            let Some(head) = self.buffer[self.start..self.end].first_chunk::<HEADER>() else {
                return Ok(None);
            };
            let header = Header::decode(head).ok_or(Broken::Damaged("an invalid header"))?;
            self.start += HEADER;
            if header.flags & (GONE | ABANDONED) != 0 {
                if let Some(came) = assembly.notice(self.number, &header) {
                    return Ok(Some(came));
                }
                continue;
            }
            let bytes = match header.flags & BY_REFERENCE {
                0 => {
                    if header.piece == header.size {
                        self.ahead.saw(header.size as usize);
                    }
                    assembly.begin(self.number, &header)?
                }
                _ => Vec::with_capacity(Reference::LEN),
            };
            self.piece = Some(Piece { header, bytes, left: header.piece as usize });
        }
    }

    #[inline]
    pub(crate) fn fill(
        &mut self,
        assembly: &mut Assembly,
        patient: bool,
    ) -> Result<Filled, Broken> {
        let got = match &mut self.piece {
            Some(piece) if piece.left >= DIRECTLY => {
                let got = self.pipe.read_behind(&mut piece.bytes, piece.left, patient);
                got.inspect(|n| piece.left -= n)
            }
            _ => {
                if self.start == self.end {
                    (self.start, self.end) = (0, 0);
                } else if self.start > 0 {
                    self.buffer.copy_within(self.start..self.end, 0);
                    (self.start, self.end) = (0, self.end - self.start);
                }
                if self.buffer.is_empty() {
                    self.buffer = vec![0; BUFFER];
                }
                if self.ahead.expects() && self.end == 0 && self.piece.is_none() {
                    return self.fill_ahead(assembly);
                }
                self.pipe.read(&mut self.buffer[self.end..], false).inspect(|n| self.end += n)
            }
        };
        filled(got)
    }

    /// Reads signals of the predicted size directly into their buffers.
    fn fill_ahead(&mut self, assembly: &mut Assembly) -> Result<Filled, Broken> {
        let mut buffers = self.ahead.buffers(assembly, &mut self.buffer);
        let got = self.pipe.read_parts(&mut buffers);
        drop(buffers);
        let mut other = Vec::new();
        let behind = self.ahead.sort(*got.as_ref().unwrap_or(&0), |arrived| match arrived {
            Arrived::Signal { header, bytes, left: 0 } => self.complete.push_back((header, bytes)),
            Arrived::Signal { header, bytes, left } => {
                self.piece = Some(Piece { header, bytes, left });
            }
            Arrived::Other(bytes) => other = bytes,
        });
        self.end = behind;
        if !other.is_empty() {
            other.extend_from_slice(&self.buffer[..behind]);
            if self.buffer.len() < other.len() {
                self.buffer.resize(other.len(), 0);
            }
            self.buffer[..other.len()].copy_from_slice(&other);
            self.end = other.len();
        }
        filled(got)
    }
}

fn filled(got: Result<usize, Errno>) -> Result<Filled, Broken> {
    match got {
        Ok(0) => Err(Broken::Ended),
        Ok(_) => Ok(Filled::Something),
        Err(Errno::AGAIN) => Ok(Filled::Nothing),
        Err(errno) => Err(Broken::of("read", errno)),
    }
}
