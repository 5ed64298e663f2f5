//! Encodes and decodes numbers and texts.

use crate::Spid;

/// The error for bytes that do not have the expected form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// Encodes fields.
#[derive(Debug, Default)]
pub(crate) struct Writer(pub(crate) Vec<u8>);

impl Writer {
    /// Starts a message with its kind.
    pub(crate) fn of(kind: u8) -> Writer {
        Writer(vec![kind])
    }

    pub(crate) fn byte(mut self, value: u8) -> Self {
        self.0.push(value);
        self
    }

    pub(crate) fn int(mut self, value: u32) -> Self {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    pub(crate) fn long(mut self, value: u64) -> Self {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    pub(crate) fn spid(self, value: Spid) -> Self {
        self.int(value.get())
    }

    /// Appends a text of at most 65,535 bytes, preceded by its length. A longer text is truncated.
    pub(crate) fn text(mut self, value: &str) -> Self {
        let mut len = value.len().min(usize::from(u16::MAX));
        while !value.is_char_boundary(len) {
            len -= 1;
        }
        self.0.extend_from_slice(&(len as u16).to_be_bytes());
        self.0.extend_from_slice(&value.as_bytes()[..len]);
        self
    }

    /// Appends bytes without a length; they must come last.
    pub(crate) fn rest(mut self, value: &[u8]) -> Self {
        self.0.extend_from_slice(value);
        self
    }

    pub(crate) fn done(self) -> Vec<u8> {
        self.0
    }
}

/// Decodes fields.
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Reader(bytes)
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (head, rest) = self.0.split_first_chunk::<N>().ok_or(Malformed)?;
        self.0 = rest;
        Ok(*head)
    }

    pub(crate) fn byte(&mut self) -> Result<u8, Malformed> {
        self.take::<1>().map(|[byte]| byte)
    }

    pub(crate) fn int(&mut self) -> Result<u32, Malformed> {
        self.take().map(u32::from_be_bytes)
    }

    pub(crate) fn long(&mut self) -> Result<u64, Malformed> {
        self.take().map(u64::from_be_bytes)
    }

    pub(crate) fn spid(&mut self) -> Result<Spid, Malformed> {
        Spid::new(self.int()?).ok_or(Malformed)
    }

    pub(crate) fn text(&mut self) -> Result<String, Malformed> {
        let len = usize::from(u16::from_be_bytes(self.take()?));
        let (text, rest) = self.0.split_at_checked(len).ok_or(Malformed)?;
        self.0 = rest;
        String::from_utf8(text.to_vec()).map_err(|_| Malformed)
    }

    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    /// Returns the value if no bytes remain.
    pub(crate) fn end<T>(self, value: T) -> Result<T, Malformed> {
        if self.0.is_empty() { Ok(value) } else { Err(Malformed) }
    }
}
