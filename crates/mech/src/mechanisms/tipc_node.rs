//! TIPC as Crossway's node in user space speaks it: the four socket types through a `tipcd`.
//!
//! Which `tipcd`: the one at the path that `$TIPCD_SOCKET` or the default names. Where none is there a program may have said how to
//! start one ([`start_by`]); it is a lone node then, which ends with the program.
//!
//! The mechanisms mirror those of the kernel's TIPC ([`super::tipc_kernel`]), so that the two can be held against each other.

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crossway_sys::{Errno, OsError, socket};
use crossway_tipc_client::{
    Address, Error, Kind, LoneTipcd, NodeSocket, SOCKET_VARIABLE, Scope, ServiceRange, default_path,
};

use crate::{Offer, OpenError, Spec};

pub use super::tipc_node_connection::{TipcNodeSeqpacket, TipcNodeStream};
pub use super::tipc_node_message::{TipcNodeDgram, TipcNodeRdm};

/// The service type of every Crossway channel over a node; any number above 63 would do.
const SERVICE: u32 = 0x4357_0002;

/// The largest message of every type but stream.
pub(super) const MAX_MESSAGE_BYTES: usize = crossway_tipc_client::protocol::MESSAGE_LEN_MAX;

/// TIPC_CONN_TIMEOUT.
pub(super) const CONN_TIMEOUT: u32 = 130;
/// TIPC_DEST_DROPPABLE.
const DEST_DROPPABLE: u32 = 129;

/// What brings a node here.
pub(super) const REMEDY: &str =
    "start a node: crossway tipcd & (no privilege needed with --socket PATH and TIPCD_SOCKET=PATH)";

/// How a lone node is started, and the one that was.
struct OnDemand {
    how: Option<(fn() -> Command, PathBuf)>,
    lone: Option<LoneTipcd>,
}

static ON_DEMAND: Mutex<OnDemand> = Mutex::new(OnDemand { how: None, lone: None });

fn on_demand() -> MutexGuard<'static, OnDemand> {
    ON_DEMAND.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Says how this program starts a node where none serves: a command that takes a `tipcd`'s arguments, and the directory in which the
/// node's socket is to be. The node is started when the first mechanism wants it, and ends with this process.
pub fn start_by(command: fn() -> Command, dir: PathBuf) {
    on_demand().how = Some((command, dir));
}

/// The variable that leads another process to the node which this process started, if it did.
pub fn variable() -> Option<(&'static str, PathBuf)> {
    on_demand().lone.as_ref().map(|lone| (SOCKET_VARIABLE, lone.path().to_owned()))
}

/// The process of the node that works for this process's sockets, 0 before the first.
static SERVED_BY: AtomicU32 = AtomicU32::new(0);

/// The process of the node that works for this process's channels: its CPU time is a part of what they cost. `None` while there was
/// no channel, and where the node lives in a process namespace that this process does not see.
pub fn served_by() -> Option<u32> {
    Some(SERVED_BY.load(Ordering::Relaxed)).filter(|pid| *pid != 0)
}

/// Where the node is.
pub(super) fn node() -> Result<PathBuf, Error> {
    let path = default_path();
    let mut on_demand = on_demand();
    if let Some(lone) = &on_demand.lone {
        return Ok(lone.path().to_owned());
    }
    let Some((command, dir)) = &on_demand.how else { return Ok(path) };
    match NodeSocket::open(&path, Kind::Rdm) {
        Err(Error::NoDaemon { .. } | Error::NotPermitted { .. }) => {}
        _ => return Ok(path),
    }
    let own = dir.join(format!("crossway-tipcd-{}.sock", std::process::id()));
    let lone = LoneTipcd::start(command(), &own)
        .map_err(|error| Error::NoDaemon { path, source: std::io::Error::other(error) })?;
    on_demand.lone = Some(lone);
    Ok(own)
}

/// A socket on the node.
pub(super) fn node_socket(kind: Kind, spec: &Spec) -> Result<NodeSocket, OpenError> {
    let fd = node().and_then(|path| NodeSocket::open(&path, kind)).map_err(open_error)?;
    // The node made the pair of descriptors of which this is one.
    SERVED_BY.store(socket::peer_credentials(&fd)?.pid, Ordering::Relaxed);
    if let Some(bytes) = spec.socket_buffer_bytes {
        socket::set_buffers(&fd, bytes)?;
    }
    if !kind.is_connected_kind() {
        fd.set_option(DEST_DROPPABLE, 0).map_err(|e| call("setsockopt(SOL_TIPC)", e))?;
    }
    Ok(fd)
}

/// Binds a socket to a service of its own; peers can come from this moment on. The word that names it.
pub(super) fn publish(socket: &NodeSocket) -> Result<String, OpenError> {
    let own = socket.local_address().map_err(|e| call("getsockname", e))?;
    let range = ServiceRange::single(SERVICE, own.port);
    socket.bind(range, Scope::Cluster).map_err(|e| call("bind", e))?;
    Ok(own.port.to_string())
}

/// The service that a word of an offer names.
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

/// The version of what provides it.
pub(super) fn version() -> String {
    format!("tipcd, local protocol {}", crossway_tipc_client::protocol::VERSION)
}
