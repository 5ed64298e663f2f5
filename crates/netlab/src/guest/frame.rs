//! The protocol of a guest's serial line: frames of many sessions on one byte stream in each direction.

use std::io::{self, Read};

/// Marks the start of the protocol on the line. Both ends skip everything before these bytes, because a kernel may
/// print messages before its first program runs.
pub(crate) const PREAMBLE: &[u8; 16] = b"\x00crossway-guest\n";

/// Longest payload in bytes; frames that carry data are far smaller.
const MAX_PAYLOAD_BYTES: usize = 4 << 20;

/// Maximum number of data bytes in one frame: as many as the line's own buffers hold. The limit makes sessions take
/// turns.
pub(crate) const CHUNK: usize = 4096;

/// Maximum number of bytes written to the guest's line and not yet read. The guest's terminal layer holds 4096 bytes.
/// When it is full, it throttles the line, and the line driver of Linux 6.1 does not recover from that.
pub(crate) const LINE_WINDOW: usize = 3072;

/// The guest reports what it has read in steps of this many bytes, and the host writes pieces of at most this size, so
/// a piece always fits once everything before it was read.
pub(crate) const LINE_PIECE: usize = 1024;

/// One of the three streams of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    Input,
    Output,
    Errors,
}

/// A frame on the line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    /// The guest is up; [`super::GuestFacts`] as JSON.
    Ready(Vec<u8>),
    /// The guest could not be set up, with the reason.
    Failed(Vec<u8>),
    /// Start a command; the request as JSON.
    Exec { session: u32, request: Vec<u8> },
    /// Some bytes of a command's stream.
    Data { session: u32, lane: Lane, bytes: Vec<u8> },
    /// The stream has ended.
    End { session: u32, lane: Lane },
    /// The receiver of a stream has room for this many more bytes.
    Credit { session: u32, lane: Lane, bytes: u32 },
    /// Kill the command and its children.
    Kill { session: u32 },
    /// This many bytes of the line itself were read. Sent only by guests, see [`LINE_WINDOW`].
    Received { bytes: u32 },
    /// The command has ended; its [`super::message::Outcome`] as JSON.
    Exit { session: u32, report: Vec<u8> },
    /// Requests a [`Frame::Pong`], to check that the guest is alive.
    Ping,
    /// The answer to a [`Frame::Ping`].
    Pong,
}

/// Length of the header in bytes: kind, lane, session, length of the payload, all little-endian.
const HEADER: usize = 10;

impl Frame {
    fn parts(&self) -> (u8, Lane, u32, &[u8]) {
        match self {
            Frame::Ready(text) => (1, Lane::Input, 0, text),
            Frame::Failed(text) => (2, Lane::Input, 0, text),
            Frame::Exec { session, request } => (3, Lane::Input, *session, request),
            Frame::Data { session, lane, bytes } => (4, *lane, *session, bytes),
            Frame::End { session, lane } => (5, *lane, *session, &[]),
            Frame::Credit { session, lane, .. } => (6, *lane, *session, &[]),
            Frame::Kill { session } => (7, Lane::Input, *session, &[]),
            Frame::Received { .. } => (9, Lane::Input, 0, &[]),
            Frame::Exit { session, report } => (8, Lane::Input, *session, report),
            Frame::Ping => (10, Lane::Input, 0, &[]),
            Frame::Pong => (11, Lane::Input, 0, &[]),
        }
    }

    /// Encodes the frame for the line.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let (kind, lane, session, payload) = self.parts();
        let credit;
        let payload = match self {
            Frame::Credit { bytes, .. } | Frame::Received { bytes } => {
                credit = bytes.to_le_bytes();
                &credit[..]
            }
            _ => payload,
        };
        let mut whole = Vec::with_capacity(HEADER + payload.len());
        whole.extend([kind, lane as u8]);
        whole.extend(session.to_le_bytes());
        whole.extend((payload.len() as u32).to_le_bytes());
        whole.extend(payload);
        whole
    }

    /// Reads the next frame; `None` at the end of the stream.
    pub(crate) fn read(from: &mut impl Read) -> io::Result<Option<Frame>> {
        let mut header = [0; HEADER];
        match from.read_exact(&mut header) {
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            other => other?,
        }
        let word = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|i| header[at + i]));
        let (session, length) = (word(2), word(6) as usize);
        if length > MAX_PAYLOAD_BYTES {
            return Err(broken(format!("a frame of {length} bytes")));
        }
        let lane = match header[1] {
            0 => Lane::Input,
            1 => Lane::Output,
            2 => Lane::Errors,
            other => return Err(broken(format!("lane {other}"))),
        };
        let mut payload = vec![0; length];
        from.read_exact(&mut payload)?;
        Ok(Some(match header[0] {
            1 => Frame::Ready(payload),
            2 => Frame::Failed(payload),
            3 => Frame::Exec { session, request: payload },
            4 => Frame::Data { session, lane, bytes: payload },
            5 => Frame::End { session, lane },
            6 => Frame::Credit { session, lane, bytes: number(&payload)? },
            7 => Frame::Kill { session },
            8 => Frame::Exit { session, report: payload },
            9 => Frame::Received { bytes: number(&payload)? },
            10 => Frame::Ping,
            11 => Frame::Pong,
            other => return Err(broken(format!("a frame of kind {other}"))),
        }))
    }
}

fn number(payload: &[u8]) -> io::Result<u32> {
    let bytes = <[u8; 4]>::try_from(payload)
        .map_err(|_| broken("a frame without its 4-byte value".to_owned()))?;
    Ok(u32::from_le_bytes(bytes))
}

/// Reads up to and including the preamble. Returns `false` if the stream ended before it.
pub(crate) fn skip_to_preamble(from: &mut impl Read) -> io::Result<bool> {
    let mut seen = 0;
    let mut byte = [0];
    while seen < PREAMBLE.len() {
        if from.read(&mut byte)? == 0 {
            return Ok(false);
        }
        // Its first byte occurs in it only once, so after a mismatch a new match can only start here.
        seen = match byte[0] {
            b if b == PREAMBLE[seen] => seen + 1,
            b if b == PREAMBLE[0] => 1,
            _ => 0,
        };
    }
    Ok(true)
}

fn broken(what: String) -> io::Error {
    let why = format!(
        "invalid data on the line between host and guest ({what}); are both ends the same version of crossway?"
    );
    io::Error::new(io::ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_back_as_they_went_behind_what_a_kernel_prints() {
        let frames = [
            Frame::Ready(b"{}".to_vec()),
            Frame::Failed(b"why".to_vec()),
            Frame::Exec { session: 7, request: b"{\"a\":1}".to_vec() },
            Frame::Data { session: u32::MAX, lane: Lane::Errors, bytes: (0..=255).collect() },
            Frame::End { session: 1, lane: Lane::Output },
            Frame::Credit { session: 1, lane: Lane::Input, bytes: 65536 },
            Frame::Kill { session: 3 },
            Frame::Received { bytes: 1024 },
            Frame::Exit { session: 3, report: Vec::new() },
            Frame::Ping,
            Frame::Pong,
        ];
        let mut line = b"Core dump limits :\n\x00\x00cross\x00".to_vec();
        line.extend(PREAMBLE);
        for frame in &frames {
            line.extend(frame.to_bytes());
        }
        let mut line = &line[..];
        assert!(skip_to_preamble(&mut line).unwrap());
        for frame in frames {
            assert_eq!(Frame::read(&mut line).unwrap(), Some(frame));
        }
        assert_eq!(Frame::read(&mut line).unwrap(), None);
        assert!(!skip_to_preamble(&mut &b"never"[..]).unwrap());
    }

    #[test]
    fn an_invalid_frame_is_an_error() {
        for bad in [
            [12, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            [4, 3, 0, 0, 0, 0, 0, 0, 0, 0],
            [4, 0, 0, 0, 0, 0, 255, 255, 255, 255],
            [6, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        ] {
            assert_eq!(Frame::read(&mut &bad[..]).unwrap_err().kind(), io::ErrorKind::InvalidData);
        }
        let cut = [4, 0, 0, 0, 0, 0, 5, 0, 0, 0, 1];
        assert!(Frame::read(&mut &cut[..]).is_err());
    }
}
