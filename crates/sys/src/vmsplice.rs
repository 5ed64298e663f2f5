//! Puts references to pages into a pipe instead of copies (`vmsplice(2)` from memory, `splice(2)` from a file).

use rustix::io::Errno;
use rustix::pipe::{IoSliceRaw, SpliceFlags};
use std::ops::Range;
use std::os::fd::AsFd;

use crate::pages::Pages;

/// Puts references to the pages of `range` into the pipe; returns the number of bytes. EAGAIN only if `nonblocking`,
/// EPIPE when there are no readers.
///
/// Each page of the range, even if only a part of it is in the range, occupies one of the pipe's slots; the number of
/// slots is the pipe's capacity divided by the page size. The reader copies out of the pages, so `range` must not be
/// written to until as many further pages have been spliced as the pipe has slots. By then its data is no longer in the
/// pipe, so it has been read. The pages are not gifted: SPLICE_F_GIFT promises never to touch them again, but these
/// pages are reused.
#[inline]
pub fn splice(
    pipe: impl AsFd,
    pages: &Pages,
    range: Range<usize>,
    nonblocking: bool,
) -> Result<usize, Errno> {
    let flags = if nonblocking { SpliceFlags::NONBLOCK } else { SpliceFlags::empty() };
    let bytes = [IoSliceRaw::from_slice(pages.bytes(range))];
    loop {
        // SAFETY: the kernel reads the bytes now and the pages later, through references that keep them alive beyond
        // the mapping; it writes nothing.
        match unsafe { rustix::pipe::vmsplice(&pipe, &bytes, flags) } {
            Err(Errno::INTR) => {}
            done => return done,
        }
    }
}

/// As [`splice`], but addresses the pages through the file that they belong to, like a program that sends a file.
#[inline]
pub fn splice_file(
    pipe: impl AsFd,
    pages: &Pages,
    range: Range<usize>,
    nonblocking: bool,
) -> Result<usize, Errno> {
    let flags = if nonblocking { SpliceFlags::NONBLOCK } else { SpliceFlags::empty() };
    loop {
        let mut from = range.start as u64;
        match rustix::pipe::splice(pages, Some(&mut from), &pipe, None, range.len(), flags) {
            Err(Errno::INTR) => {}
            done => return done,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use super::*;

    type Put = fn(&OwnedFd, &Pages, Range<usize>, bool) -> Result<usize, Errno>;
    const BOTH: [Put; 2] = [
        |pipe, pages, range, nonblocking| splice(pipe, pages, range, nonblocking),
        |pipe, pages, range, nonblocking| splice_file(pipe, pages, range, nonblocking),
    ];

    #[test]
    fn spliced_pages_are_read_without_having_been_copied() {
        for put in BOTH {
            let mut pages = Pages::new("crossway-test", 8192).unwrap();
            let (r, w) = rustix::pipe::pipe().unwrap();
            pages.bytes_mut(4096..4101).copy_from_slice(b"first");
            assert_eq!(put(&w, &pages, 4096..4101, false), Ok(5));
            // Still the same page: a write after the splice is visible, which it would not be in a copy.
            pages.bytes_mut(4096..4101).copy_from_slice(b"later");
            let mut buf = [0; 8];
            assert_eq!(rustix::io::read(&r, &mut buf), Ok(5));
            assert_eq!(&buf[..5], b"later");
        }
    }

    #[test]
    fn every_piece_takes_a_slot_of_the_pipe() {
        for put in BOTH {
            let pages = Pages::new("crossway-test", 4096).unwrap();
            let (r, w) = rustix::pipe::pipe().unwrap();
            let slots = rustix::pipe::fcntl_getpipe_size(&w).unwrap() / rustix::param::page_size();
            for _ in 0..slots {
                assert_eq!(put(&w, &pages, 0..1, true), Ok(1));
            }
            assert_eq!(put(&w, &pages, 0..1, true), Err(Errno::AGAIN));
            let mut byte = [0];
            assert_eq!(rustix::io::read(&r, &mut byte), Ok(1));
            assert_eq!(put(&w, &pages, 0..1, true), Ok(1));
        }
    }
}
