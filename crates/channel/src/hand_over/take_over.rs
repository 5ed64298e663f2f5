//! Taking channels over from another process.

use std::collections::VecDeque;
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crossway_mech::Deadline;
use crossway_sys::poll::{Interest, wait_ready};
use crossway_sys::{Errno, OsError};

use super::{LENGTH, not_handed_over};
use crate::channel::{Channel, Ends};
use crate::error::Error;
use crate::event::Reason;
use crate::fault;
use crate::link::{Moving, flag};
use crate::listener::Listener;
use crate::message::{self, Handed, Message, Outbox, PACKET, Packet};
use crate::net::connect::{Asked, ask};
use crate::net::stream::routes;
use crate::net::wire::Wire;
use crate::net::{Network, Reader};
use crate::options::Options;
use crate::page::Page;
use crate::protocol::{Marks, Role, Switch};
use crate::reactor::{self, Source};
use crate::transport::{RxHalf, Transport, TxHalf};

/// Time between two searches for the old process.
const LOOK: Duration = Duration::from_millis(5);

/// A connection to the process that hands its channels over, on which it has been asked for them.
enum Old {
    Near(OwnedFd),
    /// On another host. The connection stays open while its reader exists.
    Far(Reader),
}

/// Asks another listener of the name for its channels: one on this host or, if there is none, one on another host. If
/// the old process dies or stops after it has handed some channels over, they are returned together with the error,
/// because no other process has them.
pub(crate) fn take_over(
    options: &Options,
    name: &str,
    own: &Listener,
    until: Deadline,
) -> Result<(Vec<Channel>, Option<Error>), Error> {
    let mut old = find(options, name, own, until)?;
    let mut channels = Vec::new();
    loop {
        match old.take_next(options, own, until) {
            Ok(Some(channel)) => channels.push(channel),
            Err(error) if channels.is_empty() => return Err(error),
            Ok(None) => return Ok((channels, None)),
            Err(error) => return Ok((channels, Some(error))),
        }
    }
}

fn find(options: &Options, name: &str, own: &Listener, until: Deadline) -> Result<Old, Error> {
    let start = Instant::now();
    let question = Message::TakeOver(own.id());
    loop {
        if let Some(old) = options.directory.connect_other(name, own.path())? {
            Outbox::default().send(&old, &question, Vec::new());
            return Ok(Old::Near(old));
        }
        let mut elsewhere = String::new();
        if let Some(network) = own.network() {
            match find_far(network, name, &question, until)? {
                Ok(old) => return Ok(old),
                Err(tried) if tried.is_empty() => {}
                Err(tried) => elsewhere = format!("; {tried}"),
            }
        }
        if until.is_some_and(|until| until <= Instant::now()) {
            let directory = options.directory.path().to_owned();
            let (name, waited) = (name.to_owned(), start.elapsed());
            return Err(Error::NobodyListens { name, directory, elsewhere, waited });
        }
        std::thread::sleep(LOOK);
    }
}

/// Looks for the old process on other hosts. The inner `Err` lists the answers of the places that were tried.
fn find_far(
    network: &Network,
    name: &str,
    question: &Message,
    until: Deadline,
) -> Result<Result<Old, String>, Error> {
    let (places, trouble) = routes(name, network);
    let mut tried: Vec<String> = trouble.into_iter().collect();
    for place in places {
        match ask(&place, network, question, until) {
            Asked::Answer(answer) => match *answer {
                (Message::Heard, _, reader) => return Ok(Ok(Old::Far(reader))),
                (other, ..) => tried.push(format!("{place}: unexpected answer {other:?}")),
            },
            Asked::Silence(why) => tried.push(format!("{place}: {why}")),
            Asked::Disagreed(why) => {
                let (name, place) = (name.to_owned(), place.to_string());
                return Err(Error::Disagreed { name, place, why });
            }
            // The listener of that place may be this process.
            Asked::Nobody => {}
        }
    }
    Ok(Err(tried.join("; ")))
}

impl Old {
    /// Receives the next channel; `None` if all were handed over.
    fn take_next(
        &mut self,
        options: &Options,
        own: &Listener,
        until: Deadline,
    ) -> Result<Option<Channel>, Error> {
        let (handed, fds) = match self.read(until)? {
            (Message::Handed(handed), fds) => (handed, fds),
            (Message::AllHanded, _) => return Ok(None),
            (other, _) => {
                return Err(not_handed_over(&format!(
                    "unexpected answer from the other process: {other:?}"
                )));
            }
        };
        let (held, given) = match self {
            Old::Near(_) => from_memory(&handed, fds)?,
            Old::Far(reader) => (from_frames(&handed, reader, until)?, None),
        };
        let channel = put_together(options, own, handed, held, given)?;
        fault::point("Taken");
        Ok(Some(channel))
    }

    /// Reads the next packet.
    fn read(&mut self, until: Deadline) -> Result<(Message, Vec<OwnedFd>), Error> {
        let late = || not_handed_over("the other process did not finish before the deadline");
        let gone =
            || not_handed_over("the other process ended before it had handed everything over");
        match self {
            Old::Near(socket) => loop {
                let came = wait_ready(&*socket, Interest::Readable, until);
                if !came.map_err(|e| OsError::new("poll", "predecessor", e))? {
                    return Err(late());
                }
                match message::receive(&*socket, true) {
                    Packet::Message(message, fds) => return Ok((message, fds)),
                    Packet::Nothing => {}
                    Packet::End => return Err(gone()),
                    other => {
                        return Err(not_handed_over(&format!(
                            "unexpected answer from the other process: {other:?}"
                        )));
                    }
                }
            },
            Old::Far(reader) => {
                let frame = reader.read_frame(PACKET, until).map_err(|errno| match errno {
                    Errno::TIMEDOUT => late(),
                    _ => gone(),
                })?;
                let message = serde_json::from_slice(&frame);
                Ok((message.map_err(|error| not_handed_over(&error.to_string()))?, Vec::new()))
            }
        }
    }
}

/// Reads held messages from the memory that the old process filled; `None` if it does not contain exactly `count`.
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

/// The control connection and the shared page of a channel whose peer does not notice the move; `None` if the peer has
/// to look for this process.
type Given = Option<(OwnedFd, Page)>;

fn from_memory(
    handed: &Handed,
    mut fds: Vec<OwnedFd>,
) -> Result<(VecDeque<Vec<u8>>, Given), Error> {
    let missing =
        || not_handed_over("descriptors are missing from what the other process handed over");
    let memory = fds.pop().ok_or_else(missing)?;
    let mut bytes = Vec::new();
    File::from(memory)
        .read_to_end(&mut bytes)
        .map_err(|e| OsError::new("read", "held messages", e))?;
    let held = held_in(&bytes, handed.held).ok_or_else(|| {
        not_handed_over("the messages that the other process handed over are damaged")
    })?;
    if fds.is_empty() {
        return Ok((held, None));
    }
    let [control, page] = <[OwnedFd; 2]>::try_from(fds).map_err(|_| missing())?;
    let page = Page::open(page)?.ok_or_else(missing)?;
    Ok((held, Some((control, page))))
}

fn from_frames(
    handed: &Handed,
    reader: &mut Reader,
    until: Deadline,
) -> Result<VecDeque<Vec<u8>>, Error> {
    let longest = handed.shape.max_message;
    let read = |_| reader.read_frame(longest, until);
    let held: Result<_, Errno> = (0..handed.held).map(read).collect();
    held.map_err(|errno| match errno {
        Errno::TIMEDOUT => {
            not_handed_over("the other process did not hand all messages over before the deadline")
        }
        _ => not_handed_over("the other process ended before it had handed all messages over"),
    })
}

fn put_together(
    options: &Options,
    own: &Listener,
    handed: Handed,
    held: VecDeque<Vec<u8>>,
    given: Given,
) -> Result<Channel, Error> {
    let (wire, page, moving) = match given {
        Some((control, page)) => (Wire::unix(control), page, Moving::No),
        // The connecting end brings a connection and, within a host, its page.
        None => (Wire::none(), Page::make()?.0, Moving::Awaiting(Instant::now())),
    };
    let comes = moving != Moving::No;
    let ends = Ends {
        name: own.name().to_owned(),
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
        peer_budget: handed.peer_budget,
        sequences: handed.sequences,
        held,
        fin: handed.fin,
        abroad: None,
        network: own.network().cloned(),
        listener: Some(own.id()),
        moving,
        moves: handed.moves,
    };
    let channel = Channel::new(ends, wire)?;
    let link = channel.link();
    link.lost.store(handed.lost, Ordering::Relaxed);
    if handed.deaf {
        link.tx.raise(flag::DEAF);
    }
    reactor::add(Source::Link(Arc::clone(&link)))?;
    if !comes {
        link.start(Transport::UdsSeqpacket, Reason::HandOver)?;
    }
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
