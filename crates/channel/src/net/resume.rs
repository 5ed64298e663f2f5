//! Finding the peer again after a connection between hosts broke.
//!
//! The connecting end looks for the listener by the channel's name, in a thread that runs until the search is over; the
//! listening end waits. Each gives up after [`Network::resume`]. The search ends immediately if the process that is
//! found does not have the channel, or if nobody listens on the host any more; in both cases the peer is dead.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::connect::{Asked, ask};
use super::network::Network;
use super::rejoin;
use super::session::Session;
use super::stream::{Route, routes};
use crate::event::EventKind;
use crate::link::{Link, Moving};
use crate::message::Message;
use crate::transport::Transport;

/// Pause between the first two searches. The pause doubles each time, up to [`LAST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LAST_PAUSE: Duration = Duration::from_millis(200);

/// Longest pause when the listening end has moved: the new process gets the channel within milliseconds.
const LAST_PAUSE_IN_A_MOVE: Duration = Duration::from_millis(20);

/// The result of a search at one place.
pub(super) enum Found {
    Peer,
    /// The process at this place does not have the channel.
    Nothing,
    /// The process at this place may have the channel later.
    NoAnswer,
}

/// Starts a search in a new thread, which gives up after `patience`.
pub(crate) fn start(link: &Arc<Link>, patience: Duration) {
    if patience.is_zero() {
        return link.lost(None);
    }
    let link = Arc::clone(link);
    let name = "crossway-resume".to_owned();
    let searching = Arc::clone(&link);
    let started =
        std::thread::Builder::new().name(name).spawn(move || search(&searching, patience));
    if started.is_err() {
        link.lost(None);
    }
}

fn search(link: &Link, patience: Duration) {
    let start = Instant::now();
    let mut until = start + patience;
    let mut moves = false;
    let mut pause = FIRST_PAUSE;
    loop {
        let (over, abroad) = {
            let state = link.lock();
            if state.moving == Moving::Searching && !moves {
                moves = true;
                until = until.max(Instant::now() + link.patience_in_a_move());
            }
            (state.over, state.abroad.clone())
        };
        if over {
            return link.search_is_over(None);
        }
        let mut hopeless = false;
        match abroad {
            _ if moves => {
                if rejoin::look(link, until) {
                    return link.search_is_over(Some(start.elapsed()));
                }
            }
            Some(abroad) => {
                let (places, trouble) = routes_of(link, &abroad.network);
                hopeless = !places.is_empty() && trouble.is_none();
                for place in places {
                    match resume_at(link, &abroad.network, &place, until) {
                        Found::Peer => return link.search_is_over(Some(start.elapsed())),
                        Found::Nothing => {}
                        Found::NoAnswer => hopeless = false,
                    }
                }
            }
            None => return link.search_is_over(None),
        }
        // Meanwhile the peer may have announced that it moves.
        if link.lock().moving == Moving::Searching && !moves {
            continue;
        }
        if hopeless || Instant::now() >= until {
            link.lost(None);
            return link.search_is_over(None);
        }
        std::thread::sleep(pause);
        pause = (2 * pause).min(if moves { LAST_PAUSE_IN_A_MOVE } else { LAST_PAUSE });
    }
}

/// Returns the places where the listener may be, beginning with the one where it was last found, and an error if some
/// could not be looked up.
pub(super) fn routes_of(link: &Link, network: &Network) -> (Vec<Route>, Option<String>) {
    let (mut places, trouble) = routes(&link.name, network);
    let last = link.lock().abroad.as_ref().and_then(|abroad| abroad.place.clone());
    places.sort_by_key(|place| Some(place) != last.as_ref());
    (places, trouble)
}

/// Replaces every broken connection with a new one to `place`.
fn resume_at(link: &Link, network: &Network, place: &Route, until: Instant) -> Found {
    if link.lock().wire.is_down() {
        match resume_wire_at(link, network, place, until) {
            Found::Peer => {}
            other => return other,
        }
    }
    loop {
        let down = link.lock().sessions_down();
        let Some(session) = down.into_iter().next() else { return Found::Peer };
        match attach(link, network, place, until, &session) {
            Found::Peer => {}
            other => return other,
        }
    }
}

/// Replaces the control connection with a new one to `place`.
pub(super) fn resume_wire_at(
    link: &Link,
    network: &Network,
    place: &Route,
    until: Instant,
) -> Found {
    let (received, moves) = {
        let mut state = link.lock();
        (state.wire.disconnect(), state.moves)
    };
    let secret = link.marks.random();
    let question = Message::Resume { id: link.id, secret, moves, received };
    let (received, writer, reader) = match ask(place, network, &question, Some(until)) {
        Asked::Answer(answer) => match *answer {
            (Message::Resumed { received }, writer, reader) => (received, writer, reader),
            _ => return Found::NoAnswer,
        },
        other => return not_found(&other),
    };
    let connected = link.lock().wire.connect(writer, reader, received);
    if let Err(why) = connected {
        link.lost(Some(why));
        return Found::NoAnswer;
    }
    link.call();
    Found::Peer
}

fn attach(
    link: &Link,
    network: &Network,
    place: &Route,
    until: Instant,
    session: &Session,
) -> Found {
    let (secret, received) = (link.marks.random(), session.disconnect());
    let epoch = session.epoch().unwrap_or_default();
    let question = Message::Attach { id: link.id, secret, epoch, received };
    let answer = match ask(place, network, &question, Some(until)) {
        Asked::Answer(answer) => *answer,
        other => return not_found(&other),
    };
    match answer {
        (Message::Resumed { received }, writer, reader) => {
            match session.connect(writer, reader, received) {
                Ok(()) => Found::Peer,
                Err(why) => {
                    link.lost(Some(why));
                    Found::NoAnswer
                }
            }
        }
        // The epoch is over: the peer has continued to the next one, as it says on the control connection.
        (Message::Settled, ..) => {
            link.lock().forget_session(epoch);
            Found::Peer
        }
        _ => Found::NoAnswer,
    }
}

const fn not_found(asked: &Asked) -> Found {
    match asked {
        Asked::Nobody | Asked::Disagreed(_) => Found::Nothing,
        Asked::Answer(..) | Asked::Silence(_) => Found::NoAnswer,
    }
}

impl Link {
    /// Ends the search. `took` is its duration if it was successful.
    fn search_is_over(&self, took: Option<Duration>) {
        let mut state = self.lock();
        state.searching = false;
        let moved = state.moving == Moving::No && state.transport == Transport::Parked;
        if let Some(took) = took.filter(|_| state.was_interrupted || moved) {
            let took_us = took.as_micros().try_into().unwrap_or(u64::MAX);
            state.was_interrupted = false;
            self.log(&mut state, EventKind::Resumed { took_us });
        }
        drop(state);
        // The connection may have broken again, and there is a new descriptor to watch.
        self.call();
    }
}
