//! Frames over a connection, sealed by Noise or plain. A frame is a length of four bytes, followed by that number of
//! bytes. On a sealed connection, the bytes of the frames travel in encrypted records.

use std::sync::Arc;
use std::time::Instant;

use crossway_mech::Deadline;
use crossway_sys::Errno;
use crossway_sys::poll::{Interest, wait_ready};
use snow::{HandshakeState, StatelessTransportState};

use super::stream::Stream;
use crate::message::Message;

/// Number of bytes that sealing adds to a message.
pub(super) const TAG: usize = 16;
/// Longest record in bytes: its length is a 16-bit number.
const RECORD: usize = u16::MAX as usize;
/// Maximum number of bytes to read at a time.
const CHUNK: usize = 64 << 10;
/// Size in bytes of a frame's length.
pub(crate) const HEADER: usize = 4;

/// Returns both directions of an unsealed connection.
pub(super) fn plain(stream: Stream) -> (Writer, Reader) {
    let stream = Arc::new(stream);
    let writer = Writer { stream: Arc::clone(&stream), seal: None, out: Vec::new(), at: 0 };
    (writer, Reader { stream, seal: None, bytes: Vec::new(), at: 0 })
}

/// The cipher's state for one direction.
struct Seal {
    transport: Arc<StatelessTransportState>,
    nonce: u64,
}

/// The sending direction.
pub(crate) struct Writer {
    stream: Arc<Stream>,
    seal: Option<Seal>,
    /// A sealed record that waits for room; the bytes before `at` have been sent.
    out: Vec<u8>,
    at: usize,
}

impl Writer {
    pub(crate) fn stream(&self) -> &Arc<Stream> {
        &self.stream
    }

    /// Takes as many of the bytes as there is room for and returns their number; EAGAIN if there is no room. The bytes
    /// taken are sent by this call or the next.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<usize, Errno> {
        self.flush()?;
        let Some(seal) = &mut self.seal else { return self.stream.try_send(bytes) };
        let bytes = &bytes[..bytes.len().min(RECORD - TAG)];
        self.out.resize(2 + bytes.len() + TAG, 0);
        let len = seal
            .transport
            .write_message(seal.nonce, bytes, &mut self.out[2..])
            .map_err(|_| Errno::IO)?;
        seal.nonce += 1;
        self.out[..2].copy_from_slice(&(len as u16).to_le_bytes());
        match self.flush() {
            Ok(()) | Err(Errno::AGAIN) => Ok(bytes.len()),
            Err(errno) => Err(errno),
        }
    }

    /// Sends a waiting record; EAGAIN if part of it still waits.
    pub(crate) fn flush(&mut self) -> Result<(), Errno> {
        while self.at < self.out.len() {
            self.at += self.stream.try_send(&self.out[self.at..])?;
        }
        self.out.clear();
        self.at = 0;
        Ok(())
    }

    /// Sends everything, waiting for room.
    pub(crate) fn write_all(&mut self, mut bytes: &[u8], until: Deadline) -> Result<(), Errno> {
        loop {
            let outcome =
                if bytes.is_empty() { self.flush().map(|()| 0) } else { self.write(bytes) };
            match outcome {
                Ok(_) if bytes.is_empty() => return Ok(()),
                Ok(taken) => bytes = &bytes[taken..],
                Err(Errno::AGAIN) => {
                    if !wait_ready(&*self.stream, Interest::Writable, until)? {
                        return Err(Errno::TIMEDOUT);
                    }
                }
                Err(errno) => return Err(errno),
            }
        }
    }

    /// Sends a frame, waiting for room.
    pub(crate) fn write_frame(&mut self, frame: &[u8], until: Deadline) -> Result<(), Errno> {
        self.write_all(&framed(frame), until)
    }
}

/// Sends an answer on a new connection without waiting; the buffer of a new connection has room for it. If sending
/// fails, the peer only sees that the connection ends.
pub(crate) fn write_now(writer: &mut Writer, message: &Message) {
    let text = serde_json::to_vec(message).expect("messages are plain data");
    let _ = writer.write_frame(&text, Some(Instant::now()));
}

/// Returns a frame with its length in front.
pub(crate) fn framed(frame: &[u8]) -> Vec<u8> {
    let len = u32::try_from(frame.len()).expect("a frame is shorter than 4 GiB");
    [&len.to_le_bytes()[..], frame].concat()
}

/// The receiving direction.
pub(crate) struct Reader {
    stream: Arc<Stream>,
    /// The cipher, and sealed bytes that do not form a whole record yet.
    seal: Option<(Seal, Vec<u8>)>,
    /// Bytes that have been received; those before `at` have been consumed.
    bytes: Vec<u8>,
    at: usize,
}

impl Reader {
    pub(crate) fn stream(&self) -> &Arc<Stream> {
        &self.stream
    }

    /// Whether the reader holds bytes that were received but not consumed.
    pub(crate) fn holds_bytes(&self) -> bool {
        self.at < self.bytes.len()
    }

    pub(super) fn peek(&self) -> &[u8] {
        &self.bytes[self.at..]
    }

    pub(super) fn take(&mut self, len: usize) -> Vec<u8> {
        let taken = self.bytes[self.at..self.at + len].to_vec();
        self.at += len;
        taken
    }

    pub(super) fn take_rest(&mut self) -> Vec<u8> {
        self.take(self.bytes.len() - self.at)
    }

    /// Reads once and returns the number of bytes; 0 at the end of the connection, EAGAIN if nothing has arrived,
    /// EBADMSG if a record was tampered with.
    pub(crate) fn fill(&mut self) -> Result<usize, Errno> {
        if self.at == self.bytes.len() {
            self.bytes.clear();
            self.at = 0;
        } else if self.at >= CHUNK {
            self.bytes.drain(..self.at);
            self.at = 0;
        }
        let Some((seal, raw)) = &mut self.seal else {
            return self.stream.try_recv(&mut self.bytes, CHUNK);
        };
        let got = self.stream.try_recv(raw, CHUNK);
        let mut done = 0;
        while let Some(&[low, high]) = raw.get(done..done + 2) {
            let len = usize::from(u16::from_le_bytes([low, high]));
            let Some(record) = raw.get(done + 2..done + 2 + len) else { break };
            let before = self.bytes.len();
            self.bytes.resize(before + len, 0);
            let opened = seal.transport.read_message(seal.nonce, record, &mut self.bytes[before..]);
            let plain = opened.map_err(|_| Errno::BADMSG)?;
            self.bytes.truncate(before + plain);
            seal.nonce += 1;
            done += 2 + len;
        }
        raw.drain(..done);
        match got {
            // The bytes that arrived before the handshake was complete may contain whole records.
            Err(Errno::AGAIN) if done > 0 => Ok(done),
            got => got,
        }
    }

    /// Returns the length of the next frame; `None` if not all of it has arrived.
    ///
    /// # Errors
    /// The frame is longer than `longest`; the text says so.
    pub(crate) fn frame(&self, longest: usize) -> Result<Option<usize>, String> {
        let bytes = self.peek();
        let Some(header) = bytes.first_chunk::<HEADER>() else { return Ok(None) };
        let len = u32::from_le_bytes(*header) as usize;
        if len > longest {
            return Err(format!("a frame has {len} bytes, but at most {longest} are allowed"));
        }
        Ok((bytes.len() >= HEADER + len).then_some(len))
    }

    /// Returns the next frame; `len` is its length as returned by [`Reader::frame`].
    pub(crate) fn show(&self, len: usize) -> &[u8] {
        &self.peek()[HEADER..HEADER + len]
    }

    pub(crate) fn consume(&mut self, len: usize) {
        self.at += HEADER + len;
    }

    /// Replaces the sealed bytes that were received, for tests.
    #[cfg(test)]
    pub(super) fn replace_sealed(&mut self, raw: Vec<u8>) {
        self.seal.as_mut().expect("the connection is sealed").1 = raw;
    }

    fn wait(&mut self, until: Deadline) -> Result<(), Errno> {
        match self.fill() {
            Ok(0) => Err(Errno::CONNRESET),
            Ok(_) => Ok(()),
            Err(Errno::AGAIN) => match wait_ready(&*self.stream, Interest::Readable, until)? {
                true => Ok(()),
                false => Err(Errno::TIMEDOUT),
            },
            Err(errno) => Err(errno),
        }
    }

    pub(super) fn need(&mut self, len: usize, until: Deadline) -> Result<(), Errno> {
        while self.peek().len() < len {
            self.wait(until)?;
        }
        Ok(())
    }

    /// Waits for the next frame and returns it.
    pub(crate) fn read_frame(&mut self, longest: usize, until: Deadline) -> Result<Vec<u8>, Errno> {
        loop {
            if let Some(len) = self.frame(longest).map_err(|_| Errno::BADMSG)? {
                let frame = self.show(len).to_vec();
                self.consume(len);
                return Ok(frame);
            }
            self.wait(until)?;
        }
    }
}

/// Encrypts everything that follows a handshake, in both directions.
pub(super) fn seal(
    state: HandshakeState,
    writer: &mut Writer,
    reader: &mut Reader,
) -> Result<(), snow::Error> {
    let transport = Arc::new(state.into_stateless_transport_mode()?);
    writer.seal = Some(Seal { transport: Arc::clone(&transport), nonce: 0 });
    // Bytes that arrived after the peer's last handshake message are already sealed.
    let raw = reader.take_rest();
    reader.seal = Some((Seal { transport, nonce: 0 }, raw));
    Ok(())
}
