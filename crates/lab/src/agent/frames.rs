//! Transfers messages as frames of JSON over byte streams. Reading never waits for the rest of a frame, so that a
//! connection that stalls in mid-frame does not block others.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crossway_sys::OsError;
use serde::{Serialize, de::DeserializeOwned};

use super::greeting;
use crate::control::{self, ControlError};

const READ_BYTES: usize = 64 << 10;

/// The receiving end of a connection.
#[derive(Debug)]
pub(crate) struct Frames {
    from: File,
    bytes: Vec<u8>,
    taken: usize,
}

impl Frames {
    pub(crate) fn new(from: OwnedFd) -> Frames {
        Frames { from: File::from(from), bytes: Vec::new(), taken: 0 }
    }

    /// A descriptor that is readable when more data is available.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.from.as_fd()
    }

    /// Reads once; call it when the descriptor is readable.
    pub(crate) fn read_some(&mut self) -> Result<(), ControlError> {
        self.bytes.drain(..self.taken);
        self.taken = 0;
        let have = self.bytes.len();
        self.bytes.resize(have + READ_BYTES, 0);
        let read = self.from.read(&mut self.bytes[have..]);
        self.bytes.truncate(have + read.as_ref().map_or(0, |n| *n));
        match read {
            Ok(0) => Err(ControlError::Closed),
            Ok(_) => Ok(()),
            Err(e) if e.kind() == ErrorKind::Interrupted => Ok(()),
            Err(e) => Err(OsError::new("read", "control stream", e).into()),
        }
    }

    /// Removes and returns the next message; `None` if none is complete yet.
    pub(crate) fn next<T: DeserializeOwned>(&mut self) -> Result<Option<T>, ControlError> {
        let rest = &self.bytes[self.taken..];
        let Some((length, body)) = rest.split_first_chunk() else { return Ok(None) };
        let length = control::body_len(*length)?;
        let Some(body) = body.get(..length) else { return Ok(None) };
        let message = control::message(body);
        self.taken += 4 + length;
        message.map(Some)
    }

    /// Removes and returns the first line, including its line feed. If more bytes than the longest greeting were
    /// received without a line feed, returns all of them. `None` if the line is not complete yet.
    pub(crate) fn first_line(&mut self) -> Option<String> {
        let rest = &self.bytes[self.taken..];
        let end = rest.iter().position(|&byte| byte == b'\n').map(|at| at + 1);
        let length = end.or_else(|| (rest.len() > greeting::LONGEST).then_some(rest.len()))?;
        let line = String::from_utf8_lossy(&rest[..length]).into_owned();
        self.taken += length;
        Some(line)
    }

    /// Everything not yet consumed, as text.
    pub(crate) fn leftover(&self) -> String {
        String::from_utf8_lossy(&self.bytes[self.taken..]).into_owned()
    }
}

/// Sends a message.
pub(crate) fn send(mut to: &File, what: &impl Serialize) -> Result<(), ControlError> {
    to.write_all(&control::frame(what)?)
        .map_err(|e| control::gone(OsError::new("write", "control stream", e)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_whole_however_they_were_cut() {
        let (reader, writer) = std::io::pipe().unwrap();
        let mut frames = Frames::new(reader.into());
        let all = File::from(OwnedFd::from(writer));
        let (kept, cut) = std::io::pipe().unwrap();
        let cut = File::from(OwnedFd::from(cut));
        send(&cut, &"first").unwrap();
        send(&cut, &vec![1, 2, 3]).unwrap();
        drop(cut);
        let mut bytes = b"a line\n".to_vec();
        File::from(OwnedFd::from(kept)).read_to_end(&mut bytes).unwrap();
        let mut lines = Vec::new();
        let mut words: Vec<String> = Vec::new();
        let mut numbers: Vec<Vec<u32>> = Vec::new();
        for byte in bytes {
            (&all).write_all(&[byte]).unwrap();
            frames.read_some().unwrap();
            if lines.is_empty() {
                lines.extend(frames.first_line());
            } else if words.is_empty() {
                words.extend(frames.next::<String>().unwrap());
            } else {
                numbers.extend(frames.next::<Vec<u32>>().unwrap());
            }
        }
        assert_eq!(
            (lines, words, numbers),
            (vec!["a line\n".to_owned()], vec!["first".to_owned()], vec![vec![1, 2, 3]])
        );
        drop(all);
        assert!(matches!(frames.read_some(), Err(ControlError::Closed)));
    }

    #[test]
    fn nonsense_is_refused() {
        let (reader, writer) = std::io::pipe().unwrap();
        let mut frames = Frames::new(reader.into());
        (&File::from(OwnedFd::from(writer))).write_all(b"Welcome to the machine").unwrap();
        frames.read_some().unwrap();
        assert!(matches!(frames.next::<String>(), Err(ControlError::Nonsense(_))));
    }
}
