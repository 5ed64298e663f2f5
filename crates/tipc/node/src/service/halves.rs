//! Streams whose directions end one by one, as those of TCP do. TIPC knows only the end of a whole
//! connection, so both ends must ask for this
//! ([`HALF_CLOSE`](crossway_tipc_client::protocol::control::HALF_CLOSE)).

use crossway_sys::{poll, socket};

use super::local::Local;
use super::token::Place;
use super::{Context, Service};

/// Which directions of a stream have ended.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Halves {
    /// Whether they end one by one.
    pub(super) wanted: bool,
    /// Whether the descriptor has reported an end, which is read after the data before it.
    pub(super) reported: bool,
    /// Whether the program has shut down sending. The peer learns of it after the data that is still
    /// queued.
    pub(super) own_ended: bool,
    /// Whether the peer knows.
    told: bool,
    /// Whether the peer has shut down sending. The program learns of it after the data that is still
    /// queued.
    pub(super) peer_ended: bool,
}

impl Local {
    /// Whether the end that a descriptor reports is that of one direction only, so that the program
    /// may still receive.
    pub(super) fn ends_by_half(&self) -> bool {
        self.halves.wanted && !poll::has_closed(&self.fd).unwrap_or(true)
    }

    /// Makes writes fail once the connection has ended, for a program that uses its descriptor
    /// without the library.
    pub(super) fn refuse_more(&self) {
        if self.halves.wanted {
            socket::shutdown_recv(&self.fd);
        }
    }

    /// Tells the program that the peer will send nothing more, if it has got everything that came
    /// before.
    pub(super) fn pass_half_end_on(&mut self) {
        if self.out.is_empty() && std::mem::take(&mut self.halves.peer_ended) {
            socket::shutdown_send(&self.fd);
        }
    }
}

impl Service {
    /// Handles a program that has shut down sending: tells the peer after all data before it.
    pub(super) fn end_half(&mut self, cx: &mut Context<'_>, place: Place) {
        let Some(local) = self.sockets.get_mut(place) else { return };
        local.readable = false;
        (local.halves.reported, local.halves.own_ended) = (false, true);
        self.tell_half_end(cx, place);
    }

    /// Tells the peer of a program that will send nothing more, if everything before has been sent.
    pub(super) fn tell_half_end(&mut self, cx: &mut Context<'_>, place: Place) {
        let Some(local) = self.sockets.get_mut(place) else { return };
        let due = local.halves.own_ended && local.stalled.is_empty();
        if due
            && let Some(port) = local.port
            && !std::mem::replace(&mut local.halves.told, true)
        {
            let _ = cx.node.end_sending(cx.now, port);
        }
    }
}
