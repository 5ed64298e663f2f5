//! Connecting to a listener on another host.

use std::collections::VecDeque;
use std::sync::Arc;

use crossway_mech::{Deadline, Offer};

use super::frames::{Reader, Writer};
use super::greeting::{BadGreeting, greet};
use super::network::Network;
use super::stream::{NoConnection, Route, routes};
use super::wire::Wire;
use crate::channel::{Channel, Ends};
use crate::error::Error;
use crate::link::{Abroad, Moving};
use crate::message::{Hello, Message, OfferText, PACKET};
use crate::options::Options;
use crate::page::Page;
use crate::protocol::{Marks, Role, Switch};
use crate::reactor::{self, Source};
use crate::transport::Shape;

/// The result of asking a question at a place where a listener may be.
pub(crate) enum Asked {
    /// An answer, with the connection on which it came.
    Answer(Box<(Message, Writer, Reader)>),
    /// Nothing listens there, or only a listener of another name.
    Nobody,
    /// No answer; the text describes why.
    Silence(String),
    /// The two ends do not agree on a key; the text describes how.
    Disagreed(String),
}

/// Connects to a place, sends one message and waits for the answer.
pub(crate) fn ask(route: &Route, network: &Network, question: &Message, until: Deadline) -> Asked {
    match dial(route, network, until) {
        Ok((writer, reader)) => say(writer, reader, question, until),
        Err(asked) => asked,
    }
}

/// Connects to a place where a listener may be, and performs the connector's part of the
/// [greeting](super::greeting).
fn dial(route: &Route, network: &Network, until: Deadline) -> Result<(Writer, Reader), Asked> {
    let stream = route.dial(until).map_err(|error| match error {
        NoConnection::Refused => Asked::Nobody,
        NoConnection::Unreachable(why) => Asked::Silence(why),
    })?;
    greet(stream, network, until).map_err(|error| match error {
        BadGreeting::Broken(why) => Asked::Silence(why),
        BadGreeting::Disagreed(why) => Asked::Disagreed(why),
    })
}

fn say(mut writer: Writer, mut reader: Reader, question: &Message, until: Deadline) -> Asked {
    let question = serde_json::to_vec(question).expect("messages are plain data");
    let answer =
        writer.write_frame(&question, until).and_then(|()| reader.read_frame(PACKET, until));
    match answer.map(|answer| serde_json::from_slice(&answer)) {
        Ok(Ok(Message::Unknown)) => Asked::Nobody,
        Ok(Ok(answer)) => Asked::Answer(Box::new((answer, writer, reader))),
        Ok(Err(error)) => Asked::Silence(error.to_string()),
        Err(errno) => Asked::Silence(errno.to_string()),
    }
}

/// Looks for a listener of a name on other hosts. The inner `Err` lists the answers of the places that were tried.
pub(crate) fn connect(
    options: &Options,
    network: &Arc<Network>,
    name: &str,
    turn: usize,
    until: Deadline,
) -> Result<Result<Channel, String>, Error> {
    let (mut places, trouble) = routes(name, network);
    let mut tried: Vec<String> = trouble.into_iter().collect();
    if !places.is_empty() {
        let first = turn % places.len();
        places.rotate_left(first);
    }
    for place in places {
        match connect_at(options, network, name, &place, until)? {
            Ok(channel) => return Ok(Ok(channel)),
            Err(why) => tried.push(format!("{place}: {why}")),
        }
    }
    Ok(Err(tried.join("; ")))
}

fn connect_at(
    options: &Options,
    network: &Arc<Network>,
    name: &str,
    place: &Route,
    until: Deadline,
) -> Result<Result<Channel, String>, Error> {
    let transport = place.transport();
    let transports = options.policy.transports_between(transport);
    if transports.is_empty() {
        return Ok(Err(format!("the policy does not allow {transport}")));
    }
    let shape = Shape { max_message: options.max_message, capacity_bytes: options.capacity_bytes };
    let (first, _) = OfferText::new(transport, Offer::new());
    let hello = Hello::new(name, shape, transports, first)?;
    let (id, marks) = (hello.id, hello.marks);
    let asked = match dial(place, network, until) {
        // A listener first binds its name on its own host. If one has come to this host meanwhile, connect to it,
        // because it is nearer.
        Ok(_) if options.directory.connect(name, 0)?.is_some() => {
            return Ok(Err("a listener has appeared on this host".to_owned()));
        }
        Ok((writer, reader)) => say(writer, reader, &Message::Hello(Box::new(hello)), until),
        Err(asked) => asked,
    };
    let (answer, writer, reader) = match asked {
        Asked::Answer(answer) => *answer,
        Asked::Nobody => return Ok(Err("nobody listens there".to_owned())),
        Asked::Silence(why) => return Ok(Err(why)),
        Asked::Disagreed(why) => {
            let (name, place) = (name.to_owned(), place.to_string());
            return Err(Error::Disagreed { name, place, why });
        }
    };
    let welcome = match answer {
        Message::Welcome(welcome) => welcome,
        Message::OtherName(other) => {
            return Ok(Err(format!("it listens on another name, '{other}'")));
        }
        Message::Refused(why) => return Err(Error::Refused { name: name.to_owned(), why }),
        _ => return Ok(Err("its answer is not a greeting".to_owned())),
    };
    // The listener has checked that it is not too large.
    let (halves, _) = shape.make(transport)?;
    let ends = Ends {
        name: name.to_owned(),
        id,
        switch: Switch::new(Role::Follower),
        marks: Marks::new(marks),
        shape,
        peer_pid: 0,
        directory: options.directory.clone(),
        page: Page::make()?.0,
        halves,
        transport,
        policy: options.policy.clone(),
        peer_allows: welcome.transports,
        peer_budget: 1.0,
        sequences: (0, 0),
        held: VecDeque::new(),
        fin: false,
        abroad: Some(Abroad {
            network: Arc::clone(network),
            transport,
            peer: place.to_string(),
            place: Some(place.clone()),
        }),
        network: Some(Arc::clone(network)),
        listener: None,
        moving: Moving::No,
        moves: 0,
    };
    let channel = Channel::new(ends, Wire::net(writer, reader))?;
    reactor::add(Source::Link(channel.link()))?;
    Ok(Ok(channel))
}
