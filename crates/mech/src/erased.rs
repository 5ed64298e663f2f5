//! Channels behind virtual calls, so that code which uses them is compiled once for all mechanisms.
//!
//! What works in place has no deadline: if one could come through a virtual call, the waits of rings in the loops that call
//! them directly would check for it, too.

use std::os::fd::BorrowedFd;

use crate::{
    Deadline, Facts, Listener, Mechanism, Offer, OpenError, RecvError, Rx, SendError, Spec, Tx,
    opening,
};

/// A sending half behind virtual calls. A reference to it is a [`Tx`] again.
pub trait AnyTx: Send {
    /// [`Tx::try_send`].
    fn try_send(&mut self, msg: &[u8]) -> Result<(), SendError>;
    /// [`Tx::send`].
    fn send(&mut self, msg: &[u8], until: Deadline) -> Result<(), SendError>;
    /// [`Tx::send_in_place`], without a deadline.
    fn send_in_place(
        &mut self,
        len: usize,
        scratch: &mut [u8],
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<(), SendError>;
    /// [`Tx::flush`].
    fn flush(&mut self) -> Result<(), SendError>;
    /// [`Tx::facts`].
    fn facts(&self) -> Facts;
}

impl<T: Tx> AnyTx for T {
    fn try_send(&mut self, msg: &[u8]) -> Result<(), SendError> {
        Tx::try_send(self, msg)
    }

    fn send(&mut self, msg: &[u8], until: Deadline) -> Result<(), SendError> {
        Tx::send(self, msg, until)
    }

    fn send_in_place(
        &mut self,
        len: usize,
        scratch: &mut [u8],
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<(), SendError> {
        Tx::send_in_place(self, len, scratch, None, fill)
    }

    fn flush(&mut self) -> Result<(), SendError> {
        Tx::flush(self)
    }

    fn facts(&self) -> Facts {
        Tx::facts(self)
    }
}

impl Tx for &mut dyn AnyTx {
    fn try_send(&mut self, msg: &[u8]) -> Result<(), SendError> {
        (**self).try_send(msg)
    }

    fn send(&mut self, msg: &[u8], until: Deadline) -> Result<(), SendError> {
        (**self).send(msg, until)
    }

    fn send_in_place(
        &mut self,
        len: usize,
        scratch: &mut [u8],
        until: Deadline,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), SendError> {
        if until.is_some() {
            fill(&mut scratch[..len]);
            return (**self).send(&scratch[..len], until);
        }
        let mut fill = Some(fill);
        (**self).send_in_place(len, scratch, &mut |message| {
            if let Some(fill) = fill.take() {
                fill(message);
            }
        })
    }

    fn flush(&mut self) -> Result<(), SendError> {
        (**self).flush()
    }

    fn facts(&self) -> Facts {
        (**self).facts()
    }
}

/// A receiving half behind virtual calls. A reference to it is an [`Rx`] again.
pub trait AnyRx: Send {
    /// [`Rx::try_recv`].
    fn try_recv(&mut self, buf: &mut [u8]) -> Result<usize, RecvError>;
    /// [`Rx::recv`].
    fn recv(&mut self, buf: &mut [u8], until: Deadline) -> Result<usize, RecvError>;
    /// [`Rx::recv_in_place`], without a deadline.
    fn recv_in_place(
        &mut self,
        scratch: &mut [u8],
        read: &mut dyn FnMut(&[u8]),
    ) -> Result<(), RecvError>;
    /// [`Rx::wait_fd`].
    fn wait_fd(&self) -> Option<BorrowedFd<'_>>;
    /// [`Rx::facts`].
    fn facts(&self) -> Facts;
}

impl<R: Rx> AnyRx for R {
    fn try_recv(&mut self, buf: &mut [u8]) -> Result<usize, RecvError> {
        Rx::try_recv(self, buf)
    }

    fn recv(&mut self, buf: &mut [u8], until: Deadline) -> Result<usize, RecvError> {
        Rx::recv(self, buf, until)
    }

    fn recv_in_place(
        &mut self,
        scratch: &mut [u8],
        read: &mut dyn FnMut(&[u8]),
    ) -> Result<(), RecvError> {
        Rx::recv_in_place(self, scratch, None, read)
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Rx::wait_fd(self)
    }

    fn facts(&self) -> Facts {
        Rx::facts(self)
    }
}

impl Rx for &mut dyn AnyRx {
    fn try_recv(&mut self, buf: &mut [u8]) -> Result<usize, RecvError> {
        (**self).try_recv(buf)
    }

    fn recv(&mut self, buf: &mut [u8], until: Deadline) -> Result<usize, RecvError> {
        (**self).recv(buf, until)
    }

    fn recv_in_place<T>(
        &mut self,
        scratch: &mut [u8],
        until: Deadline,
        read: impl FnOnce(&[u8]) -> T,
    ) -> Result<T, RecvError> {
        if until.is_some() {
            let len = (**self).recv(scratch, until)?;
            return Ok(read(&scratch[..len]));
        }
        let mut read = Some(read);
        let mut result = None;
        (**self).recv_in_place(scratch, &mut |message| {
            result = read.take().map(|read| read(message));
        })?;
        // A mechanism that passed on no message has received none.
        result.ok_or(RecvError::Empty)
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        (**self).wait_fd()
    }

    fn facts(&self) -> Facts {
        (**self).facts()
    }
}

/// A listener behind virtual calls.
pub(crate) trait AnyListener: Send {
    /// [`Listener::accept`].
    fn accept(&mut self, until: Deadline) -> Result<Halves, OpenError>;
}

/// A listener, and the offer for the other end.
pub(crate) type Listening = (Box<dyn AnyListener>, Offer);

/// Both halves of an end of a channel.
pub(crate) type Halves = (Box<dyn AnyTx>, Box<dyn AnyRx>);

impl<L: Listener> AnyListener for L {
    fn accept(&mut self, until: Deadline) -> Result<Halves, OpenError> {
        let (tx, rx) = opening::accept(self, until)?;
        Ok((Box::new(tx), Box::new(rx)))
    }
}

/// A mechanism whose channels are behind virtual calls.
#[derive(Clone, Copy)]
pub(crate) struct Erased {
    /// [`Mechanism::listen`].
    pub(crate) listen: fn(&Spec) -> Result<Listening, OpenError>,
    /// [`Mechanism::connect`].
    pub(crate) connect: fn(&Spec, &mut Offer) -> Result<Halves, OpenError>,
}

impl Erased {
    /// Mechanism `M` behind virtual calls.
    pub(crate) fn of<M: Mechanism>() -> Erased {
        Erased {
            listen: |spec| {
                let (listener, offer) = opening::listen::<M>(spec)?;
                Ok((Box::new(listener), offer))
            },
            connect: |spec, offer| {
                let (tx, rx) = opening::connect::<M>(spec, offer)?;
                Ok((Box::new(tx), Box::new(rx)))
            },
        }
    }
}
