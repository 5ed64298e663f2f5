//! What two porters say to each other on a new stream.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossway_sys::sock_diag::{self, Transport};
use crossway_sys::socket::internet;
use crossway_sys::{Errno, poll};
use crossway_tipc_client::protocol::control::HALF_CLOSE;
use crossway_tipc_client::{Address, Patience, Socket, SocketKind};

use super::held::{Held, Stage};
use super::{Porter, lock, name_of};
use crate::via::{self, CONFIRMED, ESTABLISHED};

/// How long another porter may take to accept and to answer.
const ANSWER: Duration = Duration::from_secs(1);
/// How long TCP may take to connect. The connecting program withdraws by itself; this is for one
/// that was stopped.
const CONNECT: Duration = Duration::from_secs(120);

/// What a stream begins with, and which version of this it means.
const GREETING: [u8; 4] = *b"xwp1";
/// The answer of a porter whose program expects the connection.
const EXPECTED: u8 = b'Y';

/// Receives exactly as many bytes; false if they do not come in time.
fn receive(stream: &Socket, bytes: &mut [u8], limit: Duration) -> bool {
    let until = Patience::Until(Instant::now() + limit);
    let mut got = 0;
    while got < bytes.len() {
        match stream.recv(&mut bytes[got..], until) {
            Ok(len @ 1..) => got += len,
            Err(Errno::INTR) => {}
            _ => return false,
        }
    }
    true
}

/// Sends all bytes; false if the stream has ended.
fn send(stream: &Socket, bytes: &[u8]) -> bool {
    // They fit into an empty stream.
    stream.send(bytes, None, Patience::Now) == Ok(bytes.len())
}

impl Porter {
    /// Connects to the porter that expects a connection to `peer`. `None` if there is none.
    pub(super) fn dial(&self, own: SocketAddr, peer: SocketAddr) -> Option<Socket> {
        let stream = Socket::open_on(&self.backend, SocketKind::Stream).ok()?;
        let name = name_of(peer);
        let to = Address::service(name.service, name.lower);
        stream.connect(Some(to), Patience::Until(Instant::now() + ANSWER)).ok()?;
        stream.set_option_by_number(HALF_CLOSE, 1).ok()?;
        let mut greeting = GREETING.to_vec();
        greeting.extend(via::encode_ends(own, peer));
        let mut answer = [0];
        let expected = send(&stream, &greeting)
            && receive(&stream, &mut answer, ANSWER)
            && answer == [EXPECTED];
        expected.then_some(stream)
    }

    /// Answers another porter, and holds its stream until the program has accepted the connection.
    pub(super) fn greet(&self, stream: Socket) {
        let mut greeting = [0; GREETING.len() + via::ASK_LEN - 1];
        if !receive(&stream, &mut greeting, ANSWER) || greeting[..4] != GREETING {
            return;
        }
        let Some(ends) = greeting[4..].first_chunk() else { return };
        let (connecting, listening) = via::decode_ends(ends);
        if !self.expects(listening) || !internet::is_own_address(listening) {
            return;
        }
        if stream.set_option_by_number(HALF_CLOSE, 1).is_err() {
            return;
        }
        let held = Arc::new(Held::new(connecting, listening));
        lock(&self.held).push(Arc::clone(&held));
        let confirmed = send(&stream, &[EXPECTED]) && self.confirm(&stream, &held);
        let mut stage = lock(&held.stage);
        // A claim that has waited too long has withdrawn. Before the word is sent, nobody can claim
        // the stream, and once it is, the other end will use it.
        let agreed = confirmed && matches!(*stage, Stage::Dialled) && send(&stream, &[CONFIRMED]);
        *stage = if agreed { Stage::Confirmed(stream, None) } else { Stage::Over };
        held.changed.notify_all();
    }

    /// Waits until the connecting end has its TCP connection; returns whether this host has that
    /// connection, too.
    fn confirm(&self, stream: &Socket, held: &Held) -> bool {
        let mut word = [0];
        receive(stream, &mut word, CONNECT)
            && word == [ESTABLISHED]
            && !poll::has_closed(stream).unwrap_or(true)
            && sock_diag::inet_sockets(Transport::Tcp).is_ok_and(|t| held.is_here(&t).is_some())
    }
}
