//! Handing the channels of a listener to another process of the host, in the middle of traffic.
//!
//! A channel that is handed over is first switched to no transport at all, by the same protocol as ever: each sender puts its marker and holds
//! what follows; each receiver follows the marker. Once both ends are settled nothing is under way, and an end is a control connection, a
//! shared page and two counts. The new process continues the counts, so that the next marker is checked against all that ever passed.

use std::collections::VecDeque;
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossway_mech::Deadline;
use crossway_sys::poll::{Interest, wait_ready};
use crossway_sys::{OsError, shm};

use crate::channel::{Channel, Ends, Options};
use crate::error::{Error, RecvError};
use crate::event::Reason;
use crate::link::flag;
use crate::listener::Listener;
use crate::message::{self, Handed, Message, Outbox, Packet};
use crate::net::wire::Wire;
use crate::page::Page;
use crate::protocol::{Marks, Role, Switch};
use crate::reactor::{self, Source};
use crate::transport::{RxHalf, Transport, TxHalf};

/// How long the old process receives before it looks again whether the peer has parked.
const SLICE: Duration = Duration::from_millis(2);
/// Bytes of a held message's length, in front of it.
const LENGTH: usize = size_of::<u64>();
/// Time between looks for the old process.
const LOOK: Duration = Duration::from_millis(5);

/// Old process: hands channels over; returns how many.
pub(crate) fn hand_over(
    successor: &OwnedFd,
    channels: Vec<Channel>,
    until: Deadline,
) -> Result<usize, Error> {
    let mut count = 0;
    for mut channel in channels {
        if park(&mut channel, until)? {
            let (handed, fds) = take_apart(&mut channel)?;
            send(successor, &Message::Handed(handed), fds, until)?;
            count += 1;
        }
    }
    send(successor, &Message::AllHanded, Vec::new(), until)?;
    Ok(count)
}

fn no_answer(why: &str) -> Error {
    Error::NoAnswer { name: "of the other process".to_owned(), why: why.to_owned() }
}

/// Sends a packet, waiting for room.
fn send(
    socket: &OwnedFd,
    message: &Message,
    fds: Vec<OwnedFd>,
    until: Deadline,
) -> Result<(), Error> {
    let mut outbox = Outbox::default();
    outbox.send(socket, message, fds);
    while !outbox.is_empty() {
        let room = wait_ready(socket, Interest::Writable, until);
        if !room.map_err(|e| OsError::new("poll", "successor", e))? {
            return Err(no_answer("it does not take what is handed to it"));
        }
        outbox.flush(socket);
    }
    Ok(())
}

/// Switches a channel to no transport, and lets go of its control connection; false if its peer is gone.
fn park(channel: &mut Channel, until: Deadline) -> Result<bool, Error> {
    let link = channel.link();
    if link.abroad.is_some() {
        return Err(no_answer("a channel whose peer is on another host cannot be handed over"));
    }
    if link.role != Role::Leader {
        return Err(no_answer("only channels of a listener can be handed over"));
    }
    loop {
        link.start(Transport::Parked, Reason::HandOver)?;
        // What the peer sends until its marker is for the new process.
        match channel.receiver().take_in(Some(Instant::now() + SLICE)) {
            Ok(()) => {}
            Err(RecvError::PeerDied) => return Ok(false),
            Err(error) => return Err(no_answer(&error.to_string())),
        }
        let state = link.lock();
        if state.over {
            return Ok(false);
        }
        if state.transport == Transport::Parked && state.switch.is_settled() {
            break;
        }
        if until.is_some_and(|until| until <= Instant::now()) {
            return Err(no_answer("its peer does not receive, so it cannot be parked"));
        }
    }
    // Whatever the peer says from here on stays in the connection for the new process.
    let mut state = link.lock();
    state.leaving = true;
    drop(state);
    link.call();
    let mut state = link.lock();
    while !state.left {
        (state, _) = link.wait(state, Some(Instant::now() + SLICE));
    }
    Ok(true)
}

fn take_apart(channel: &mut Channel) -> Result<(Handed, Vec<OwnedFd>), Error> {
    let link = channel.link();
    let sent = channel.sender().sequence();
    let (held, received, fin) = channel.receiver().give_up();
    // Lengths and contents go into memory: their number has no limit, but a packet's size has.
    let mut bytes = Vec::with_capacity(held.iter().map(|m| LENGTH + m.len()).sum());
    for message in &held {
        bytes.extend_from_slice(&(message.len() as u64).to_le_bytes());
        bytes.extend_from_slice(message);
    }
    let file = File::from(shm::create_sealed("crossway-channel-held", bytes.len())?);
    file.write_all_at(&bytes, 0).map_err(|e| OsError::new("pwrite", "held messages", e))?;
    let copy = |fd: &OwnedFd| {
        fd.try_clone().map_err(|e| OsError::new("fcntl(F_DUPFD_CLOEXEC)", "control connection", e))
    };
    let state = link.lock();
    let control = state.wire.socket().ok_or_else(|| no_answer("its peer is on another host"))?;
    let fds = vec![copy(control)?, copy(link.page.fd())?, file.into()];
    let handed = Handed {
        id: link.id,
        marks: link.marks.random(),
        shape: link.shape,
        epoch: state.switch.epoch(),
        sequences: (sent, received),
        held: held.len(),
        fin,
        deaf: link.tx.raised() & flag::DEAF != 0,
        peer_pid: link.peer_pid,
        peer_allows: state.peer_allows.clone(),
    };
    Ok((handed, fds))
}

/// New process: asks the other listener of the name for its channels.
pub(crate) fn take_over(
    options: &Options,
    name: &str,
    own: &Listener,
    until: Deadline,
) -> Result<Vec<Channel>, Error> {
    let start = Instant::now();
    let old = loop {
        if let Some(old) = options.directory.connect_other(name, own.path())? {
            break old;
        }
        if until.is_some_and(|until| until <= Instant::now()) {
            let directory = options.directory.path().to_owned();
            let (name, waited) = (name.to_owned(), start.elapsed());
            let elsewhere = String::new();
            return Err(Error::NobodyListens { name, directory, elsewhere, waited });
        }
        std::thread::sleep(LOOK);
    };
    Outbox::default().send(&old, &Message::TakeOver, Vec::new());
    let mut channels = Vec::new();
    loop {
        let came = wait_ready(&old, Interest::Readable, until);
        if !came.map_err(|e| OsError::new("poll", "predecessor", e))? {
            return Err(no_answer("it handed nothing over until the deadline"));
        }
        match message::receive(&old, true) {
            Packet::Message(Message::Handed(handed), fds) => {
                channels.push(put_together(options, name, handed, fds)?);
            }
            Packet::Message(Message::AllHanded, _) => return Ok(channels),
            Packet::Nothing => {}
            Packet::End => return Err(no_answer("it went away before all was handed over")),
            other => return Err(no_answer(&format!("it says {other:?}"))),
        }
    }
}

/// The messages in the memory that [`take_apart`] filled; `None` if it does not hold exactly `count`.
fn held_in(mut bytes: &[u8], count: usize) -> Option<VecDeque<Vec<u8>>> {
    let mut held = VecDeque::new();
    for _ in 0..count {
        let (len, rest) = bytes.split_first_chunk::<LENGTH>()?;
        let (message, rest) =
            rest.split_at_checked(usize::try_from(u64::from_le_bytes(*len)).ok()?)?;
        held.push_back(message.to_vec());
        bytes = rest;
    }
    bytes.is_empty().then_some(held)
}

fn put_together(
    options: &Options,
    name: &str,
    handed: Handed,
    fds: Vec<OwnedFd>,
) -> Result<Channel, Error> {
    let missing = || no_answer("descriptors are missing from what it handed over");
    let [control, page, memory] = <[OwnedFd; 3]>::try_from(fds).map_err(|_| missing())?;
    let page = Page::open(page)?.ok_or_else(missing)?;
    let mut bytes = Vec::new();
    File::from(memory)
        .read_to_end(&mut bytes)
        .map_err(|e| OsError::new("read", "held messages", e))?;
    let held = held_in(&bytes, handed.held)
        .ok_or_else(|| no_answer("the messages that it handed over are damaged"))?;
    let ends = Ends {
        name: name.to_owned(),
        id: handed.id,
        switch: Switch::at(Role::Leader, handed.epoch),
        marks: Marks::new(handed.marks),
        shape: handed.shape,
        peer_pid: handed.peer_pid,
        directory: options.directory.clone(),
        page,
        halves: (TxHalf::Parked, RxHalf::Parked),
        transport: Transport::Parked,
        policy: options.policy.clone(),
        peer_allows: handed.peer_allows,
        sequences: handed.sequences,
        held,
        fin: handed.fin,
        abroad: None,
    };
    let channel = Channel::new(ends, Wire::unix(control))?;
    let link = channel.link();
    if handed.deaf {
        link.tx.raise(flag::DEAF);
    }
    reactor::add(Source::Link(Arc::clone(&link)))?;
    link.start(Transport::UdsSeqpacket, Reason::HandOver)?;
    Ok(channel)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn held_messages_are_counted_and_whole() {
        let mut bytes = Vec::new();
        for message in [&b"one"[..], b"", b"three"] {
            bytes.extend_from_slice(&(message.len() as u64).to_le_bytes());
            bytes.extend_from_slice(message);
        }
        let held = held_in(&bytes, 3).expect("three messages");
        assert_eq!(held, [&b"one"[..], b"", b"three"].map(<[u8]>::to_vec));
        assert!(held_in(&bytes, 2).is_none() && held_in(&bytes, 4).is_none());
        assert!(held_in(&bytes[..bytes.len() - 1], 3).is_none());
        let long = u64::MAX.to_le_bytes();
        assert!(held_in(&long, 1).is_none());
    }
}
