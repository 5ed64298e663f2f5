//! Handing a listener's channels to another process while messages flow.
//!
//! A channel that is handed over is first *parked*: it uses the switch protocol to leave its transport without
//! beginning another. Each sender sends its marker and holds back later messages; each receiver follows the marker.
//! Once both ends are settled, nothing is in transit, and the state of an end consists of a control connection, a
//! shared page and two counts. The new process continues the counts, so the next marker is checked against all messages
//! that the channel has ever carried.
//!
//! Within a host, the new process receives the connection and the shared page, and the peer does not notice the change.
//! Otherwise the peer leaves the old connection and makes a new one ([`crate::link::moving`] shows the order).

mod successor;
mod take_over;

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crossway_mech::Deadline;
use crossway_sys::{OsError, shm};

use crate::channel::Channel;
use crate::error::{Error, RecvError};
use crate::event::Reason;
use crate::fault;
use crate::link::{Link, State, flag};
use crate::message::{Handed, Message};
use crate::protocol::Role;
use crate::transport::Transport;

pub(crate) use successor::Successor;
pub(crate) use take_over::take_over;

/// How long the old process receives messages before it checks again whether the peer has parked.
const SLICE: Duration = Duration::from_millis(2);
/// Size in bytes of the length that precedes a held message.
const LENGTH: usize = size_of::<u64>();

/// What the new process receives of a parked channel, apart from its state.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Given {
    /// The control connection and the shared page.
    All,
    /// No connection and no page: the peer has to look for the new process.
    Counts,
}

/// Old process: hands channels over; returns the number handed over.
pub(crate) fn hand_over(
    mut successor: Successor,
    channels: Vec<Channel>,
    until: Deadline,
) -> Result<usize, Error> {
    let (mut count, mut cannot) = (0, None);
    for mut channel in channels {
        match park(&mut channel, &successor, until) {
            Ok(Some(given)) => {
                let (handed, held) = take_apart(&mut channel);
                pass_on(&mut successor, &channel.link(), given, handed, &held, until)?;
                fault::point("Handed");
                count += 1;
            }
            Ok(None) => {}
            Err(error) => {
                // Because the channel is parked, no message about this can be sent over a transport.
                channel.link().give_up();
                match error {
                    Error::CannotFollow { .. } => cannot = Some(error),
                    error => return Err(error),
                }
            }
        }
    }
    successor.send(&Message::AllHanded, Vec::new(), until)?;
    cannot.map_or(Ok(count), Err)
}

fn not_handed_over(why: &str) -> Error {
    Error::HandOver(why.to_owned())
}

/// Switches a channel to no transport and stops using its control connection. Returns what the new process receives;
/// `None` if the channel's peer has ended.
fn park(
    channel: &mut Channel,
    successor: &Successor,
    until: Deadline,
) -> Result<Option<Given>, Error> {
    let link = channel.link();
    if link.role != Role::Leader {
        return Err(not_handed_over("only channels that a listener accepted can be handed over"));
    }
    let late = || until.is_some_and(|until| until <= Instant::now());
    let far = matches!(successor, Successor::Far(_));
    let given = loop {
        link.start(Transport::Parked, Reason::HandOver)?;
        // What the peer sends before its marker is for the new process.
        match channel.receiver().take_in(Some(Instant::now() + SLICE)) {
            Ok(()) => {}
            Err(RecvError::PeerDied) => return Ok(None),
            Err(error) => return Err(not_handed_over(&error.to_string())),
        }
        let mut state = link.lock();
        if state.over {
            return Ok(None);
        }
        if let Some(given) = leave_if_parked(&link, &mut state, far) {
            break given;
        }
        if late() {
            let name = &link.name;
            return Err(not_handed_over(&format!(
                "channel '{name}' could not be paused before the deadline, because its peer receives nothing"
            )));
        }
    };
    if given == Given::Counts {
        let mut state = link.lock();
        loop {
            if state.over {
                return Ok(None);
            }
            match Link::answer(&state) {
                Some(Ok(())) => break,
                Some(Err(why)) => {
                    let name = link.name.clone();
                    return Err(Error::CannotFollow { name, why });
                }
                None if late() => {
                    let name = &link.name;
                    return Err(not_handed_over(&format!(
                        "the peer of channel '{name}' did not confirm the move before the deadline"
                    )));
                }
                None => (state, _) = link.wait(state, Some(Instant::now() + SLICE)),
            }
        }
    }
    // From here on, packets from the peer stay in the connection for the new process, or wait at the peer.
    let mut state = link.lock();
    state.leaving = true;
    drop(state);
    link.call();
    let mut state = link.lock();
    while !state.left {
        (state, _) = link.wait(state, Some(Instant::now() + SLICE));
    }
    fault::point("Left");
    Ok(Some(given))
}

/// If the channel is parked, begins to leave it, so that no other switch begins, and returns what the new process
/// receives. Both happen under one lock: the policy and the program's other threads may start a switch at any time.
fn leave_if_parked(link: &Link, state: &mut State, far: bool) -> Option<Given> {
    if state.transport != Transport::Parked || !state.switch.is_settled() {
        return None;
    }
    if far || state.wire.is_net() {
        link.part(state, far);
        return Some(Given::Counts);
    }
    state.leaving = true;
    Some(Given::All)
}

/// Returns the state of a parked end, and the messages that its program has not received.
fn take_apart(channel: &mut Channel) -> (Handed, Vec<Vec<u8>>) {
    let link = channel.link();
    let sent = channel.sender().sequence();
    let (held, received, fin) = channel.receiver().give_up();
    let state = link.lock();
    let handed = Handed {
        id: link.id,
        marks: link.marks.random(),
        shape: link.shape,
        epoch: state.switch.epoch(),
        sequences: (sent, received),
        lost: link.lost.load(Ordering::Relaxed),
        held: held.len(),
        moves: state.moves,
        fin,
        deaf: link.tx.raised() & flag::DEAF != 0,
        peer_pid: state.peer_pid,
        peer_allows: state.peer_allows.clone(),
        peer_budget: state.peer_budget,
    };
    (handed, held.into())
}

/// Sends an end's state to the new process.
fn pass_on(
    successor: &mut Successor,
    link: &Link,
    given: Given,
    mut handed: Handed,
    held: &[Vec<u8>],
    until: Deadline,
) -> Result<(), Error> {
    if given == Given::Counts {
        handed.moves += 1;
    }
    let mut fds = Vec::new();
    if given == Given::All {
        let copy = |fd: &OwnedFd| {
            let copied = fd.try_clone();
            copied.map_err(|e| OsError::new("fcntl(F_DUPFD_CLOEXEC)", "control connection", e))
        };
        let state = link.lock();
        let control =
            state.wire.socket().ok_or_else(|| not_handed_over("the peer is on another host"))?;
        fds = vec![copy(control)?, copy(link.page().fd())?];
    }
    match successor {
        Successor::Near(_) => {
            fds.push(in_memory(held)?);
            successor.send(&Message::Handed(handed), fds, until)
        }
        Successor::Far(_) => {
            successor.send(&Message::Handed(handed), fds, until)?;
            held.iter().try_for_each(|message| successor.send_held(message, until))
        }
    }
}

/// Copies held messages to shared memory, each preceded by its length. They do not travel in packets, because their
/// number is unlimited and the size of a packet is not.
fn in_memory(held: &[Vec<u8>]) -> Result<OwnedFd, Error> {
    let mut bytes = Vec::with_capacity(held.iter().map(|m| LENGTH + m.len()).sum());
    for message in held {
        bytes.extend_from_slice(&(message.len() as u64).to_le_bytes());
        bytes.extend_from_slice(message);
    }
    let file = File::from(shm::create_sealed("crossway-channel-held", bytes.len())?);
    file.write_all_at(&bytes, 0).map_err(|e| OsError::new("pwrite", "held messages", e))?;
    Ok(file.into())
}
