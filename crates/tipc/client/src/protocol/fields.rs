//! Encodes and decodes the fields of requests and answers: consecutive integers and bytes, in the
//! machine's byte order.

/// The fixed part of a request, built without allocating memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct Head {
    bytes: [u8; Self::LEN_MAX],
    len: usize,
}

impl Head {
    /// Maximum length in bytes: number, token, address and padding of a connection request.
    const LEN_MAX: usize = 32;

    /// Returns the bytes written so far.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    pub(super) fn u32(self, number: u32) -> Self {
        self.put(&number.to_ne_bytes())
    }

    pub(super) fn u64(self, number: u64) -> Self {
        self.put(&number.to_ne_bytes())
    }

    pub(super) fn put(mut self, bytes: &[u8]) -> Self {
        self.bytes[self.len..][..bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
        self
    }
}

/// Writes integers one after the other, without padding, in native byte order.
#[derive(Debug, Default)]
pub struct Writer(Vec<u8>);

impl Writer {
    /// Starts an answer with this errno.
    pub fn answer(errno: i32) -> Self {
        Self(errno.to_ne_bytes().to_vec())
    }

    /// Appends a 32-bit integer.
    pub fn u32(mut self, number: u32) -> Self {
        self.0.extend_from_slice(&number.to_ne_bytes());
        self
    }

    /// Appends a 64-bit integer.
    pub fn u64(mut self, number: u64) -> Self {
        self.0.extend_from_slice(&number.to_ne_bytes());
        self
    }

    /// Returns the bytes written.
    pub fn finish(self) -> Vec<u8> {
        self.0
    }
}

/// Reads what [`Writer`] has written.
#[derive(Debug)]
pub struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    /// Creates a reader of these bytes.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*first)
    }

    /// Reads the next 32-bit integer; `None` if too few bytes are left.
    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_ne_bytes)
    }

    /// Reads the next 64-bit integer; `None` if too few bytes are left.
    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_ne_bytes)
    }

    /// Reads the bytes of a record's header; `None` if too few are left.
    pub fn header(&mut self) -> Option<[u8; super::record::HEADER_LEN]> {
        self.array()
    }

    pub(super) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }
}
