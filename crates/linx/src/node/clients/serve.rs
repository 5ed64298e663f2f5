//! Accepts the connections of programs and tools, and handles their requests.

use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;

use crossway_sys::epoll::Trigger;
use crossway_sys::socket::{self, Credentials};
use crossway_sys::{Errno, OsError};

use super::{Client, reserve};
use crate::Error;
use crate::limits::RECORD;
use crate::node::{Node, Token};
use crate::registry::Refused;
use crate::trace::record::EventKind;
use crate::wire::local::{Event, Refusal, Request, VERSION};

/// Maximum number of records handled for one program before the node turns to other programs.
const AT_A_TIME: usize = 64;

fn turn_away(fd: &OwnedFd, why: &str) {
    let refused = Event::Refused { refusal: Refusal::Limit, why: why.to_owned() };
    let _ = socket::send(fd, &refused.encode(), true);
}

impl Node {
    /// Accepts waiting connections.
    pub(in crate::node) fn admit(&mut self) -> Result<(), Error> {
        loop {
            match self.listener.accept() {
                Ok(fd) => {
                    let Ok(credentials) = socket::peer_credentials(&fd) else { continue };
                    socket::set_nonblocking(&fd)?;
                    if self.clients.has_its_share(credentials.pid) {
                        turn_away(
                            &fd,
                            "this process has reached the node's limit of endpoints per process; raise the node's limit of descriptors (ulimit -n)",
                        );
                        continue;
                    }
                    let entry = self.clients.all.vacant_entry();
                    let index = entry.key();
                    self.epoll.add(&fd, Token::Client(index).number(), Trigger::Changes)?;
                    entry.insert(Client {
                        fd,
                        credentials,
                        spid: None,
                        outbox: VecDeque::new(),
                        is_unsent: false,
                        channels: 0,
                        numbers: HashMap::new(),
                        listing: None,
                    });
                    self.clients.changed(index, false);
                }
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::MFILE | Errno::NFILE) => self.turn_away_unheard()?,
                // The client has already disconnected.
                Err(Errno::CONNABORTED | Errno::INTR) => {}
                Err(errno) => return Err(OsError::new("accept", "LINX node", errno).into()),
            }
        }
    }

    /// Rejects a connection that cannot be served for lack of descriptors.
    fn turn_away_unheard(&mut self) -> Result<(), Error> {
        self.clients.reserve = None;
        if let Ok(fd) = self.listener.accept() {
            turn_away(
                &fd,
                "the node has no descriptor left for another endpoint; raise its limit (ulimit -n)",
            );
        }
        self.clients.reserve = Some(reserve()?);
        Ok(())
    }

    /// Handles requests of programs, a limited number for each program.
    pub(in crate::node) fn serve_clients(&mut self) {
        for _ in 0..self.clients.readable.len() {
            let Some(index) = self.clients.readable.pop_front() else { break };
            self.clients.is_readable.remove(&index);
            let mut closed = false;
            let mut more = true;
            for _ in 0..AT_A_TIME {
                let Some(client) = self.clients.all.get(index) else { break };
                match socket::recv_message(&client.fd, &mut self.clients.record, true) {
                    Ok(len) if (1..=RECORD).contains(&len) => {
                        let request = Request::decode(&self.clients.record[..len]);
                        closed = !request.is_ok_and(|request| self.serve(index, request));
                    }
                    Err(Errno::AGAIN) => more = false,
                    // The end of the connection, or a faulty program.
                    _ => closed = true,
                }
                if closed || !more {
                    break;
                }
            }
            if closed {
                if let Some(spid) = self.clients.drop_client(index) {
                    self.close(spid);
                }
            } else if more {
                self.clients.changed(index, false);
            }
            self.work_off();
        }
        self.finish_listings();
    }

    /// Handles one request; returns false if no correct program would make it.
    fn serve(&mut self, index: usize, request: Request) -> bool {
        let client = &self.clients.all[index];
        let Some(own) = client.spid else { return self.serve_stranger(index, request) };
        self.tracing.request(own, &request);
        let answer: Result<(), Refused> = match request {
            Request::Hunt { id, owner, path } => {
                // A correct program has already checked for the errors that the registry would report.
                return self.registry.handle_hunt(own, id, &path, owner).is_ok();
            }
            Request::CancelHunt { id } => {
                self.registry.handle_cancel_hunt(own, id);
                Ok(())
            }
            Request::Attach { id, spid } => {
                return self.registry.handle_attach(own, id, spid).is_ok();
            }
            Request::Detach { id } => {
                self.registry.handle_detach(own, id);
                Ok(())
            }
            Request::Connect { spid, transport } => self.connect(index, own, spid, transport),
            Request::NoChannel { spid } => {
                self.no_channel(own, spid);
                Ok(())
            }
            Request::Vouch { from, to } => self.vouch(index, own, from, to),
            Request::Name { spid } => match self.registry.row(spid) {
                Some(row) => {
                    self.clients.post(index, &Event::NameIs(row), Vec::new());
                    Ok(())
                }
                None => Err(self.registry.refusal_of(spid)),
            },
            Request::Report { serial, report } => {
                if let Some(listing) = self.clients.listings.get_mut(&serial)
                    && listing.waits_for.remove(&own)
                {
                    listing.reports.insert(own, report);
                }
                Ok(())
            }
            Request::NewLink { id, token } => {
                self.registry.handle_new_link(own, id, token);
                Ok(())
            }
            Request::CancelNewLink { id } => {
                self.registry.handle_cancel_new_link(own, id);
                Ok(())
            }
            Request::Condition { spid } => {
                self.begin_listing(index, Some(spid));
                Ok(())
            }
            Request::JoinTrace => match self.tracing.invitation() {
                Ok((event, fds)) => {
                    self.clients.post(index, &event, fds);
                    Ok(())
                }
                Err(error) => Err((
                    Refusal::Limit,
                    format!("the node cannot add this endpoint to the trace: {error}"),
                )),
            },
            Request::Open { .. } | Request::List { .. } | Request::StartTrace { .. } => {
                return false;
            }
        };
        if let Err(refused) = answer {
            self.clients.refuse(index, refused);
        }
        true
    }

    /// Handles a request on a connection without an endpoint: opens one, or does what a tool requests. Returns false
    /// for any other request.
    fn serve_stranger(&mut self, index: usize, request: Request) -> bool {
        let client = &self.clients.all[index];
        let Credentials { pid, uid: user, .. } = client.credentials;
        let version = match &request {
            Request::Open { version, .. }
            | Request::List { version }
            | Request::StartTrace { version, .. } => *version,
            _ => return false,
        };
        if version != VERSION {
            let why = format!(
                "the program speaks version {version} of the protocol, the node speaks version {VERSION}"
            );
            self.clients.refuse(index, (Refusal::Protocol, why));
            return true;
        }
        match request {
            Request::Open { name, .. } => self.open_for(index, &name, pid, user),
            Request::StartTrace { payload, .. } => {
                let Client { fd, credentials, .. } = &self.clients.all[index];
                let (fd, credentials) = (fd.try_clone(), *credentials);
                let started = fd
                    .map_err(|error| {
                        (Refusal::Limit, format!("the node cannot start a trace: {error}"))
                    })
                    .and_then(|fd| self.start_trace(&fd, credentials, payload));
                match started {
                    Ok(fds) => {
                        self.clients.tracer = Some(index);
                        self.clients.post(index, &Event::End, fds);
                    }
                    Err(refused) => self.clients.refuse(index, refused),
                }
            }
            _ => self.begin_listing(index, None),
        }
        true
    }

    fn open_for(&mut self, index: usize, name: &str, pid: u32, user: u32) {
        let memory = match self.tracing.memory() {
            Ok(memory) => memory,
            Err(error) => {
                let why = format!("the node cannot open another endpoint: {error}");
                return self.clients.refuse(index, (Refusal::Limit, why));
            }
        };
        match self.registry.handle_open(name, pid, user) {
            Ok(spid) => {
                self.clients.all[index].spid = Some(spid);
                self.clients.by_spid.insert(spid, index);
                self.clients.post(index, &Event::Opened { spid }, vec![memory]);
                self.tracing.opened_or_closed(EventKind::Open, spid, name);
            }
            Err(refused) => self.clients.refuse(index, refused),
        }
    }
}
