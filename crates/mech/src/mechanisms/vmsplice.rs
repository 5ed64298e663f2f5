//! Anonymous pipes into which the sender's pages are put without a copy (`vmsplice(2)`).
//!
//! A message costs one system call at the sender, and one `read` at the receiver, which makes the only copy. Bytes
//! passed to [`Tx::send`](crate::Tx::send) are copied into the sender's pages first; with
//! [`Tx::send_in_place`](crate::Tx::send_in_place), the caller writes them there.
//!
//! A page in the pipe still belongs to the sender: if it were written again before it was read, the reader would get
//! the new content. The pages are therefore used in rotation, and there are enough of them that the oldest ones have
//! always been read (see `pipe_pages`). Each message takes whole pages, and each page a slot of the pipe. By default, 16
//! messages fill the pipe, however small they are, so this is a mechanism for large messages. With a capacity
//! (F_SETPIPE_SZ) there are more slots.

use std::ops::Range;
use std::os::fd::AsFd;

use crossway_sys::Errno;
use crossway_sys::pages::Pages;
use crossway_sys::vmsplice;

use crate::building_blocks::pipe_pages::{PagesPipe, Placing};

/// The mechanism `vmsplice`: vmsplice(2) into a pipe.
pub type Vmsplice = PagesPipe<FromMemory>;

/// Puts pages into a pipe by vmsplice(2).
#[derive(Debug)]
pub struct FromMemory;

impl Placing for FromMemory {
    const ID: &'static str = "vmsplice";
    const ABOUT: &'static str = "anonymous pipe, one each way, into which the sender's pages are put without a copy \
         (ipc-bench: vmsplice)";
    const REMEDY: &'static str = "allow vmsplice and memfd_create (seccomp filters may forbid them), and raise the limit of open files (ulimit -n)";
    const LABEL: &'static str = "crossway-vmsplice";

    #[inline]
    fn place(
        pipe: impl AsFd,
        pages: &Pages,
        range: Range<usize>,
        nonblocking: bool,
    ) -> Result<usize, Errno> {
        vmsplice::splice(pipe, pages, range, nonblocking)
    }
}

#[cfg(test)]
mod tests {
    use crossway_sys::shm::page_len;

    use super::*;
    use crate::{Listener, Mechanism, Rx, SendError, Spec, Tx};

    #[test]
    fn a_pipe_kept_full_carries_every_byte_as_it_was_sent() {
        let spec = Spec { max_message: 3 * page_len(), ..Spec::default() };
        let (mut listener, mut offer) = Vmsplice::listen(&spec).unwrap();
        let (mut tx, _rx) = Vmsplice::connect(&spec, &mut offer).unwrap();
        let (_tx, mut rx) = listener.accept(None).unwrap();
        let lens = [1, 64, page_len() - 1, page_len(), page_len() + 1, 3 * page_len()];
        let message = |n: usize| -> Vec<u8> {
            (0..lens[n % lens.len()]).map(|i| (i * 31 + n * 7) as u8).collect()
        };
        let mut received = 0;
        for sent in 0..2000 {
            // A partially sent message continues when there is room.
            while matches!(tx.try_send(&message(sent)), Err(SendError::Full)) {
                let mut buf = vec![0; lens[received % lens.len()]];
                rx.recv(&mut buf, None).unwrap();
                assert!(buf == message(received), "message {received}");
                received += 1;
            }
        }
        assert!(received > 1900, "the pipe was not kept full");
    }

    #[test]
    fn a_message_longer_than_the_pages_goes_in_pieces() {
        let spec = Spec { max_message: page_len(), ..Spec::default() };
        let (mut listener, mut offer) = Vmsplice::listen(&spec).unwrap();
        let (mut tx, _rx) = Vmsplice::connect(&spec, &mut offer).unwrap();
        let (_tx, mut rx) = listener.accept(None).unwrap();
        let sent: Vec<u8> = (0..40 * page_len() + 5).map(|i| (i / 7) as u8).collect();
        tx.try_send(&sent).unwrap();
        assert!(matches!(tx.try_send(&[1]), Err(SendError::Full)));
        let expected = sent.clone();
        let reader = std::thread::spawn(move || {
            let mut got = vec![0; expected.len()];
            rx.recv(&mut got, None).unwrap();
            got == expected
        });
        tx.flush().unwrap();
        assert!(reader.join().unwrap());
    }
}
