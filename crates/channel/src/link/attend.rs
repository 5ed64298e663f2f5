//! What the control thread does for a link.

use crossway_sys::socket;

use super::{Link, Old, Pending};
use crate::event::Happening;
use crate::fault;
use crate::message::Message;
use crate::transport::{RxHalf, TxHalf};

impl Link {
    /// Control thread: opens what was offered.
    fn open_offered(&self) {
        let (text, fds, why, since) = {
            let mut state = self.lock();
            if !std::mem::take(&mut state.must_open) || state.over {
                return;
            }
            match state.offered.take() {
                Some(offered) => offered,
                None => return,
            }
        };
        let to = text.transport;
        let opened = text
            .offer(fds)
            .ok_or_else(|| "its descriptors did not arrive".to_owned())
            .and_then(|mut offer| self.shape.open(to, &mut offer).map_err(|e| e.to_string()));
        fault::point("Opened");
        let mut state = self.lock();
        let worked = opened.is_ok();
        match opened {
            Ok(halves) => {
                state.pending = Some(Pending { transport: to, why, since, halves: Some(halves) });
            }
            Err(because) => {
                let from = state.transport;
                self.log(&mut state, Happening::Refused { from, to, because });
                self.relax(false);
            }
        }
        state.switch.opened(worked);
        self.carry_out(&mut state);
    }

    /// Control thread: does what is due for halves whose owners are elsewhere. True if it should be called again soon.
    pub(crate) fn attend(&self) -> bool {
        self.open_offered();
        let (must_mark, installed, unsent, dropped, old) = {
            let mut state = self.lock();
            state.outbox.flush(&self.control);
            let installed = state.next_rx.is_some();
            let old = if state.switch.is_settled() || state.over {
                std::mem::take(&mut state.old)
            } else {
                Old::default()
            };
            let unsent = !state.outbox.is_empty();
            (state.must_mark, installed, unsent, state.dropped, old)
        };
        drop(old);
        let mut again = unsent;
        if must_mark {
            // A failure is the program's to hear, at its next call.
            let marked = self.tx.try_visit(|tx| self.try_mark(tx));
            again |= !matches!(marked, Some(Ok(true) | Err(_)));
        }
        if dropped[0] {
            again |= self.tx.try_visit(|tx| tx.finish(self)) != Some(true);
        }
        if installed || dropped[1] {
            let quiet = self.rx.try_visit(|rx| rx.visit(self, dropped[1]));
            again |= installed && quiet != Some(true);
        }
        if dropped == [true; 2] && self.tx.try_visit(|tx| tx.is_finished()) == Some(true) {
            self.close();
        }
        again
    }

    /// Says goodbye: both halves are dropped and the last word is out.
    fn close(&self) {
        let mut state = self.lock();
        if !state.over {
            state.over = true;
            state.switch.end();
            state.outbox.send(&self.control, &Message::Bye, Vec::new());
        }
        socket::shutdown_send(&self.control);
        socket::shutdown_recv(&self.control);
        drop(state);
        self.changed.notify_all();
        // What the peer has not read yet lives on in its own mappings and sockets.
        let tx = self.tx.try_visit(|tx| std::mem::replace(&mut tx.half, TxHalf::Parked));
        let rx = self.rx.try_visit(|rx| std::mem::replace(&mut rx.half, RxHalf::Parked));
        drop((tx, rx));
        let mut state = self.lock();
        let old = std::mem::take(&mut state.old);
        let next = (state.next_tx.take(), state.next_rx.take(), state.pending.take());
        drop(state);
        drop((old, next));
    }

    /// Both halves are dropped and nothing is left to do, or another process takes this end over.
    pub(crate) fn is_done(&self) -> bool {
        let state = self.lock();
        state.leaving || (state.over && state.dropped == [true; 2])
    }

    /// Control thread: it watches this link no longer.
    pub(crate) fn removed(&self) {
        let mut state = self.lock();
        if state.leaving {
            state.over = true;
            state.left = true;
            self.changed.notify_all();
        }
    }
}
