//! TIPC through Crossway's node in user space: the four socket types of a `tipcd`.
//!
//! The `tipcd` used is the one that listens at `$TIPCD_SOCKET` or at the default path. If there is none and the program
//! has specified how to start one ([`start_by`]), a private node without bearers is started, which ends with the
//! program.
//!
//! The mechanisms mirror those of the kernel's TIPC ([`super::tipc_kernel`]), so that the two can be compared.

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crossway_sys::lease::{self, Lease, Resource};
use crossway_sys::{Errno, OsError, socket};
use crossway_tipc_client::{
    Address, Error, LoneTipcd, NodeSocket, SOCKET_VARIABLE, Scope, ServiceRange, SocketKind,
    SocketOption, default_path,
};

use crate::{Offer, OpenError, Spec};

pub use super::tipc_node_connection::{TipcNodeSeqpacket, TipcNodeStream};
pub use super::tipc_node_message::{TipcNodeDgram, TipcNodeRdm};

/// The service type of every Crossway channel over a node; any number above 63 would be possible.
const SERVICE: u32 = 0x4357_0002;

/// The largest message in bytes of every socket type except streams.
pub(super) const MAX_MESSAGE_BYTES: usize = crossway_tipc_client::protocol::MESSAGE_LEN_MAX;

/// How to make a node available.
pub(super) const REMEDY: &str = "start a node: crossway tipcd & (without privilege: add --socket PATH, and set \
                                 TIPCD_SOCKET=PATH for the programs)";

/// The command that starts a node, and the directory for its socket unless that is to be next to the leases.
type How = (fn() -> Command, Option<PathBuf>);

/// How a private node is started, and the node that was started.
struct OnDemand {
    how: Option<How>,
    /// The node, which is dropped first, and the lease on its socket: if this process and the node are killed together,
    /// the node cannot remove it.
    lone: Option<(LoneTipcd, Lease)>,
}

impl OnDemand {
    /// The node that was started. The end of a run ([`lease::Run`]) removes the socket of its node, and then this ends
    /// the node itself.
    fn lone(&mut self) -> Option<&LoneTipcd> {
        self.lone.take_if(|(lone, _)| !lone.path().exists());
        self.lone.as_ref().map(|(lone, _)| lone)
    }
}

static ON_DEMAND: Mutex<OnDemand> = Mutex::new(OnDemand { how: None, lone: None });

fn on_demand() -> MutexGuard<'static, OnDemand> {
    ON_DEMAND.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Specifies how this program starts a node if none is running: a command that takes a `tipcd`'s arguments, and the
/// directory for the node's socket unless that is to be next to the leases. The node is started when a mechanism first
/// needs it, and ends with the run of leases in which it was started, with [`end`], or with this process.
pub fn start_by(command: fn() -> Command, dir: Option<PathBuf>) {
    on_demand().how = Some((command, dir));
}

/// Ends the node that this process started, if any. A process calls it before it exits, since its lease would otherwise
/// stay until the next run.
pub fn end() {
    on_demand().lone = None;
}

/// Returns the environment variable, with its value, by which another process finds the node that this process started;
/// `None` if it started none.
pub fn variable() -> Option<(&'static str, PathBuf)> {
    on_demand().lone().map(|lone| (SOCKET_VARIABLE, lone.path().to_owned()))
}

/// The process ID of the node that provides this process's sockets; 0 before the first one is opened.
static SERVED_BY: AtomicU32 = AtomicU32::new(0);

/// Returns the process ID of the node that provides this process's channels; the node's CPU time is part of their cost.
/// Returns `None` if there has been no channel, or if the node is in a PID namespace that this process cannot see.
pub fn served_by() -> Option<u32> {
    Some(SERVED_BY.load(Ordering::Relaxed)).filter(|pid| *pid != 0)
}

/// Returns the path of the node's socket; starts a node if none is running and [`start_by`] has specified how.
pub(super) fn node() -> Result<PathBuf, Error> {
    let path = default_path();
    let mut on_demand = on_demand();
    if let Some(lone) = on_demand.lone() {
        return Ok(lone.path().to_owned());
    }
    let Some((command, dir)) = &on_demand.how else { return Ok(path) };
    match NodeSocket::open(&path, SocketKind::Rdm) {
        Err(Error::NoDaemon { .. } | Error::NotPermitted { .. }) => {}
        _ => return Ok(path),
    }
    let none = |source| Error::NoDaemon { path: path.clone(), source };
    // By default next to the leases, where no other user can put a socket of the same name.
    let own = match dir {
        Some(dir) => dir.join(format!("{}.sock", lease::fresh_name("tipcd"))),
        None => lease::fresh_path("tipcd").map_err(|error| none(std::io::Error::other(error)))?,
    };
    let lease = lease::hold(Resource::Path { path: own.clone() })
        .map_err(|error| none(std::io::Error::other(error)))?;
    let lone =
        LoneTipcd::start(command(), &own).map_err(|error| none(std::io::Error::other(error)))?;
    on_demand.lone = Some((lone, lease));
    Ok(own)
}

/// Opens a socket on the node.
pub(super) fn node_socket(kind: SocketKind, spec: &Spec) -> Result<NodeSocket, OpenError> {
    let fd = node().and_then(|path| NodeSocket::open(&path, kind)).map_err(open_error)?;
    // The node created the pair of descriptors that this one belongs to.
    SERVED_BY.store(socket::peer_credentials(&fd)?.pid, Ordering::Relaxed);
    if let Some(bytes) = spec.socket_buffer_bytes {
        socket::set_buffers(&fd, bytes)?;
    }
    if !kind.is_connected_kind() {
        fd.set_option(SocketOption::DestinationDroppable, 0)
            .map_err(|e| call("setsockopt(SOL_TIPC)", e))?;
    }
    Ok(fd)
}

/// Binds a socket to a service of its own, so that peers can connect from this moment on. Returns the value for the
/// offer that identifies the service.
pub(super) fn publish(socket: &NodeSocket) -> Result<String, OpenError> {
    let own = socket.local_address().map_err(|e| call("getsockname", e))?;
    let range = ServiceRange::single(SERVICE, own.port);
    socket.bind(range, Scope::Cluster).map_err(|e| call("bind", e))?;
    Ok(own.port.to_string())
}

/// Reads the service that an offer has under `name`.
pub(super) fn offered(
    mechanism: &'static str,
    offer: &Offer,
    name: &str,
) -> Result<Address, OpenError> {
    Ok(Address::service(SERVICE, offer.word(mechanism, name)?))
}

pub(super) fn call(call: &'static str, errno: Errno) -> OpenError {
    OsError::new(call, "TIPC node", errno).into()
}

pub(super) fn open_error(error: Error) -> OpenError {
    OsError::new("open", "TIPC node", std::io::Error::other(error)).into()
}

/// Returns the version of the software that provides the mechanisms.
pub(super) fn version() -> String {
    format!("tipcd, local protocol {}", crossway_tipc_client::protocol::VERSION)
}
