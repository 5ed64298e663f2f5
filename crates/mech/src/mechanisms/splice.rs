//! Anonymous pipes into which pages of a file in memory are put without a copy (`splice(2)` from a memfd).
//!
//! Like [`vmsplice`](super::vmsplice), but the pages are addressed through their file instead of through the sender's
//! memory, as in a program that passes on a file, a received buffer or another pipe. A message costs one system call at
//! the sender, and one `read` at the receiver, which makes the only copy.
//!
//! The pipe holds references to the pages, as with [`vmsplice`](super::vmsplice), so a page that is written again
//! before it was read changes the message. The pages are used in rotation. Each page takes a slot of the pipe, however
//! few of its bytes are used. A peer that can write to the file can change a message that is in the pipe.
//!
//! `tee(2)` is not a separate mechanism: it duplicates references from one pipe into another, and the receiver still
//! reads from a pipe. A channel that uses it is this one with an additional system call.

use std::ops::Range;
use std::os::fd::AsFd;

use crossway_sys::Errno;
use crossway_sys::pages::Pages;
use crossway_sys::vmsplice::splice_file;

use crate::building_blocks::pipe_pages::{PagesPipe, Placing};

/// The mechanism `splice`: splice(2) from a memfd into a pipe.
pub type Splice = PagesPipe<FromFile>;

/// Puts pages into a pipe by splice(2).
#[derive(Debug)]
pub struct FromFile;

impl Placing for FromFile {
    const ID: &'static str = "splice";
    const ABOUT: &'static str =
        "anonymous pipe, one each way, into which pages of a memfd are put without a copy (splice)";
    const REMEDY: &'static str = "allow splice and memfd_create (seccomp filters may forbid them), and raise the limit of open files (ulimit -n)";
    const LABEL: &'static str = "crossway-splice";

    #[inline]
    fn place(
        pipe: impl AsFd,
        pages: &Pages,
        range: Range<usize>,
        nonblocking: bool,
    ) -> Result<usize, Errno> {
        splice_file(pipe, pages, range, nonblocking)
    }
}
