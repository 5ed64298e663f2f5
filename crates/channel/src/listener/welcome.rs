//! Checking connectors that ask for a channel, answering them, and queueing their channels for accept.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::{Arc, PoisonError};

use crossway_sys::socket;

use super::Core;
use crate::channel::{Channel, Ends};
use crate::link::{Abroad, Link, Moving};
use crate::message::{Hello, Message, Outbox, VERSION, Welcome};
use crate::net::wire::Wire;
use crate::net::{Reader, Stream, Writer, write_now};
use crate::page::Page;
use crate::protocol::{Marks, Role, Switch};
use crate::transport::{Halves, Shape, Transport};
use crossway_sys::kernel::boot_id;

/// Number of channels that may wait to be accepted; further connectors are refused.
const WAITING: usize = 256;

/// Largest permitted `max_message` and `capacity_bytes` of a channel between hosts, in bytes.
const LARGEST: usize = 1 << 30;

impl Core {
    /// Control thread: creates a channel for a connector, which waits for the answer. `None` if the connector was
    /// refused or has ended.
    pub(crate) fn welcome(
        &self,
        socket: OwnedFd,
        hello: Hello,
        fds: Vec<OwnedFd>,
    ) -> Option<Arc<Link>> {
        let mut outbox = Outbox::default();
        match self.try_welcome(&socket, hello, fds) {
            Ok((ends, welcome)) => {
                outbox.send(&socket, &Message::Welcome(welcome), Vec::new());
                self.admit(ends, Wire::unix(socket))
            }
            Err(why) => {
                outbox.send(&socket, &Message::Refused(why), Vec::new());
                None
            }
        }
    }

    /// Control thread: does the same as [`Core::welcome`] for a connector on another host.
    pub(crate) fn welcome_from_abroad(
        &self,
        hello: Hello,
        mut writer: Writer,
        reader: Reader,
    ) -> Option<Arc<Link>> {
        if hello.name != self.name {
            write_now(&mut writer, &Message::OtherName(self.name.clone()));
            return None;
        }
        match self.try_welcome_from_abroad(hello, reader.stream()) {
            Ok((ends, welcome)) => {
                write_now(&mut writer, &Message::Welcome(welcome));
                self.admit(ends, Wire::net(writer, reader))
            }
            Err(why) => {
                write_now(&mut writer, &Message::Refused(why));
                None
            }
        }
    }

    /// Creates the channel and queues it until it is accepted; `None` if it cannot be created.
    fn admit(&self, ends: Ends, wire: Wire) -> Option<Arc<Link>> {
        let channel = Channel::new(ends, wire).ok()?;
        let link = channel.link();
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.push_back(channel);
        let _ = self.bell.signal();
        drop(waiting);
        self.arrived.notify_one();
        Some(link)
    }

    fn try_welcome_from_abroad(
        &self,
        hello: Hello,
        stream: &Stream,
    ) -> Result<(Ends, Welcome), String> {
        let transport = stream.transport();
        let ours = self.policy.transports_between(transport);
        self.check(&hello, &ours)?;
        let network =
            self.network.as_ref().ok_or("it accepts connections from its own host only")?;
        let Shape { max_message, capacity_bytes } = hello.shape;
        if max_message.max(capacity_bytes.unwrap_or(0)) > LARGEST {
            let capacity = capacity_bytes.map_or("default".to_owned(), |bytes| bytes.to_string());
            return Err(format!(
                "between hosts, max_message ({max_message}) and capacity_bytes ({capacity}) may be at most {LARGEST} \
                 bytes"
            ));
        }
        let (halves, _) = hello.shape.make(transport).map_err(|error| error.to_string())?;
        let (page, _) = Page::make().map_err(|error| error.to_string())?;
        let welcome =
            Welcome { read_nonce: 0, wrote_nonce: 0, boot_id: boot_id(), transports: ours };
        let peer = format!("{transport} {}", stream.peer());
        let network = Arc::clone(network);
        let abroad = Abroad { network, transport, peer, place: None };
        Ok((self.ends(hello, page, halves, transport, 0, Some(abroad)), welcome))
    }

    fn ends(
        &self,
        hello: Hello,
        page: Page,
        halves: Halves,
        transport: Transport,
        peer_pid: u32,
        abroad: Option<Abroad>,
    ) -> Ends {
        Ends {
            name: self.name.clone(),
            id: hello.id,
            switch: Switch::new(Role::Leader),
            marks: Marks::new(hello.marks),
            shape: hello.shape,
            peer_pid,
            directory: self.directory.clone(),
            page,
            halves,
            transport,
            policy: self.policy.clone(),
            peer_allows: hello.transports,
            // A connector with a budget sends it next.
            peer_budget: 1.0,
            sequences: (0, 0),
            held: VecDeque::new(),
            fin: false,
            abroad,
            network: self.network.clone(),
            listener: Some(self.id),
            moving: Moving::No,
            moves: 0,
        }
    }

    /// Checks whether this listener can accept the connector's request. `ours` are the transports that this end allows.
    fn check(&self, hello: &Hello, ours: &[Transport]) -> Result<(), String> {
        if hello.version != VERSION {
            return Err(format!(
                "it speaks version {VERSION} of the control protocol, but the connector speaks version {}",
                hello.version
            ));
        }
        if hello.name != self.name {
            return Err(format!("it listens on another name, '{}'", self.name));
        }
        if self.is_closed() {
            return Err("it has stopped listening".to_owned());
        }
        let queue = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).len();
        if queue >= WAITING {
            return Err(format!("{queue} channels are already waiting to be accepted"));
        }
        if !ours.iter().any(|transport| hello.transports.contains(transport)) {
            let names =
                |all: &[_]| all.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            return Err(format!(
                "the two ends have no transport in common: the listener allows {}, the connector {}",
                names(ours),
                names(&hello.transports)
            ));
        }
        Ok(())
    }

    fn try_welcome(
        &self,
        socket: &OwnedFd,
        mut hello: Hello,
        mut fds: Vec<OwnedFd>,
    ) -> Result<(Ends, Welcome), String> {
        let ours = self.policy.transports();
        self.check(&hello, &ours)?;
        if fds.is_empty() {
            return Err("no shared page came with the greeting".to_owned());
        }
        let page = Page::open(fds.remove(0)).map_err(|error| error.to_string())?;
        let page = page.ok_or("the descriptor that came with the greeting is not a sealed page")?;
        let first = hello.first.transport;
        let offer = hello.first.take().offer(fds);
        let mut offer = offer.ok_or("descriptors of the offer are missing")?;
        let halves = hello.shape.open(first, &mut offer).map_err(|error| error.to_string())?;
        let wrote_nonce = page.write_nonce(true).map_err(|error| error.to_string())?;
        let welcome = Welcome {
            read_nonce: page.nonce(false),
            wrote_nonce,
            boot_id: boot_id(),
            transports: ours,
        };
        let peer_pid = socket::peer_credentials(socket).map_or(0, |peer| peer.pid);
        Ok((self.ends(hello, page, halves, first, peer_pid, None), welcome))
    }
}
