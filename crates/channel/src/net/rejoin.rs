//! Finding the process to which the listening end of a channel has moved.
//!
//! Listeners of the name on this host are asked first, so that a channel with both ends on one host never stays on the
//! network. A listener that does not have the channel yet answers with its id. If it is then asked over the network as
//! well, it does not answer as if it were on another host.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use crossway_sys::poll::{Interest, wait_ready};
use crossway_sys::{OsError, socket};

use super::connect::{Asked, ask};
use super::resume::{Found, resume_wire_at, routes_of};
use super::wire::Wire;
use crate::event::EventKind;
use crate::link::{Abroad, Link};
use crate::message::{self, Message, Outbox, Packet, Welcome};
use crossway_sys::kernel::boot_id;

/// How long to wait for the answer of a listener on this host. A listener that does not answer is asked again later.
const ANSWER: Duration = Duration::from_secs(1);

/// Asks each process that may have the channel; returns whether one of them has it.
pub(super) fn look(link: &Link, until: Instant) -> bool {
    let mut near = Vec::new();
    for (_, socket) in link.directory.connect_all(Some(&link.name)).unwrap_or_default() {
        match ask_near(link, socket) {
            Ok(Answer::Found) => return true,
            Ok(Answer::NotHere(listener)) => near.push(listener),
            // The process has just ended, or is busy; the next round asks again.
            Ok(Answer::None) | Err(_) => {}
        }
    }
    let Some(network) = link.network.clone() else { return false };
    for place in routes_of(link, &network).0 {
        // The old process may not have received this end's confirmation that it leaves.
        let asks_again = {
            let state = link.lock();
            state.wire.is_down() && state.abroad.is_some()
        };
        if asks_again && matches!(resume_wire_at(link, &network, &place, until), Found::Peer) {
            continue;
        }
        let transport = place.transport();
        let transports = link.lock().policy.transports_between(transport);
        let question = Message::Rejoin(link.question(transports, &near));
        let Asked::Answer(answer) = ask(&place, &network, &question, Some(until)) else { continue };
        match *answer {
            (Message::Welcome(welcome), writer, reader) => {
                let peer = place.to_string();
                let network = network.clone();
                let abroad = Abroad { network, transport, peer, place: Some(place) };
                link.rejoin(Wire::net(writer, reader), welcome, Some(abroad), 0);
                return true;
            }
            (Message::Refused(because), ..) => refused(link, because),
            _ => {}
        }
    }
    false
}

/// The answer of a listener on this host.
enum Answer {
    Found,
    /// It does not have the channel yet; this is its id.
    NotHere(u64),
    None,
}

fn ask_near(link: &Link, socket: OwnedFd) -> Result<Answer, OsError> {
    let page = link.page();
    let wrote = page.write_nonce(false)?;
    let fd =
        page.fd().try_clone().map_err(|e| OsError::new("fcntl(F_DUPFD_CLOEXEC)", "page", e))?;
    let transports = link.lock().policy.transports();
    let question = Message::Rejoin(link.question(transports, &[]));
    Outbox::default().send(&socket, &question, vec![fd]);
    let came = wait_ready(&socket, Interest::Readable, Some(Instant::now() + ANSWER));
    if !came.map_err(|e| OsError::new("poll", "control connection", e))? {
        return Ok(Answer::None);
    }
    Ok(match message::receive(&socket, true) {
        // The same proof as when a channel is opened: both processes see one page, on one kernel.
        Packet::Message(Message::Welcome(welcome), _)
            if welcome.boot_id == boot_id()
                && welcome.read_nonce == wrote
                && welcome.wrote_nonce == page.nonce(true) =>
        {
            found_near(link, socket, welcome);
            Answer::Found
        }
        Packet::Message(Message::NotHere(listener), _) => Answer::NotHere(listener),
        Packet::Message(Message::Refused(because), _) => {
            refused(link, because);
            Answer::None
        }
        _ => Answer::None,
    })
}

fn found_near(link: &Link, socket: OwnedFd, welcome: Welcome) {
    let peer_pid = socket::peer_credentials(&socket).map_or(0, |peer| peer.pid);
    link.rejoin(Wire::unix(socket), welcome, None, peer_pid);
}

/// Logs that the new process refuses this end, unless the last entry of the log already says so.
fn refused(link: &Link, because: String) {
    let mut state = link.lock();
    let (from, to) = (state.transport, state.transport);
    let what = EventKind::Refused { from, to, because };
    if state.last_event() != Some(&what) {
        link.log(&mut state, what);
    }
}
