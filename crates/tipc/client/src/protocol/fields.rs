//! The fields of requests and answers: integers and octets one behind the other, in the machine's order.

/// The fixed part of a request, on the stack.
#[derive(Clone, Copy, Debug, Default)]
pub struct Head {
    octets: [u8; Self::LEN_MAX],
    len: usize,
}

impl Head {
    /// The longest: a connection request's number, token, address and padding.
    const LEN_MAX: usize = 32;

    /// The octets written.
    pub fn octets(&self) -> &[u8] {
        &self.octets[..self.len]
    }

    pub(super) fn u32(self, number: u32) -> Self {
        self.put(&number.to_ne_bytes())
    }

    pub(super) fn u64(self, number: u64) -> Self {
        self.put(&number.to_ne_bytes())
    }

    pub(super) fn put(mut self, octets: &[u8]) -> Self {
        self.octets[self.len..][..octets.len()].copy_from_slice(octets);
        self.len += octets.len();
        self
    }
}

/// Writes integers one behind the other.
#[derive(Debug, Default)]
pub struct Writer(Vec<u8>);

impl Writer {
    /// Begins an answer.
    pub fn answer(errno: i32) -> Self {
        Self(errno.to_ne_bytes().to_vec())
    }

    /// Adds an integer.
    pub fn u32(mut self, number: u32) -> Self {
        self.0.extend_from_slice(&number.to_ne_bytes());
        self
    }

    /// Adds a long integer.
    pub fn u64(mut self, number: u64) -> Self {
        self.0.extend_from_slice(&number.to_ne_bytes());
        self
    }

    /// The octets written.
    pub fn finish(self) -> Vec<u8> {
        self.0
    }
}

/// Reads integers one behind the other.
#[derive(Debug)]
pub struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    /// Over these octets.
    pub const fn new(octets: &'a [u8]) -> Self {
        Self(octets)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*first)
    }

    /// The next integer.
    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_ne_bytes)
    }

    /// The next long integer.
    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_ne_bytes)
    }

    pub(super) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }
}
