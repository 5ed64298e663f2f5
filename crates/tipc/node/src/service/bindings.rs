//! Binds sockets and joins groups, within the share that each user has of the node's bindings.

use crossway_sys::Errno;
use crossway_sys::socket::Credentials;
use crossway_tipc_client::address::{Binding, ENCODED_LEN};
use crossway_tipc_client::protocol::refusal::Refusal;
use crossway_tipc_proto::addr::Scope;
use crossway_tipc_proto::node::Node;
use crossway_tipc_proto::socket::GroupRequest;

use super::local::{proto_range, proto_scope};
use super::request::errno;
use super::token::Place;
use super::{Context, Service};

impl Service {
    /// Binds a socket, or withdraws one of its bindings.
    pub(super) fn bind(
        &mut self,
        cx: &mut Context<'_>,
        place: Place,
        address: &[u8; ENCODED_LEN],
    ) -> Result<(), Errno> {
        let binding = match Binding::decode(address) {
            Ok(Some(binding)) => binding,
            Ok(None) => return Err(Errno::AFNOSUPPORT),
            Err(_) => return Err(Errno::INVAL),
        };
        let (range, scope) = (proto_range(binding.range), proto_scope(binding.scope));
        if !binding.withdraw {
            self.check_binding(place)?;
        }
        let port = self.sockets.get(place).and_then(|local| local.port).ok_or(Errno::BADF)?;
        if binding.withdraw {
            cx.node.unbind(cx.now, port, Some((range, scope))).map_err(errno)
        } else {
            cx.node.bind(port, range, scope).map_err(errno)
        }
    }

    /// Joins a group, given the fields of a struct tipc_group_req: type, instance, scope, flags.
    pub(super) fn join(
        &mut self,
        cx: &mut Context<'_>,
        place: Place,
        [group, instance, scope, flags]: [u32; 4],
    ) -> Result<(), Errno> {
        const NODE_SCOPE: u32 = 3;
        const LOOPBACK: u32 = 1;
        const EVENTS: u32 = 2;
        if scope > NODE_SCOPE {
            return Err(Errno::INVAL);
        }
        self.check_binding(place)?;
        let port = self.sockets.get(place).and_then(|local| local.port).ok_or(Errno::BADF)?;
        let scope = if scope == NODE_SCOPE { Scope::Node } else { Scope::Cluster };
        let (loopback, events) = (flags & LOOPBACK != 0, flags & EVENTS != 0);
        let request = GroupRequest { group, instance, scope, loopback, events };
        cx.node.join(cx.now, port, request).map_err(errno)
    }

    /// Fails if the user of a socket has the maximum number of bindings.
    fn check_binding(&mut self, place: Place) -> Result<(), Errno> {
        let client = self.sockets.get(place).map(|local| local.client);
        let program = client.and_then(|client| self.program(client));
        match self.shares.refuses_binding(program) {
            Some(why) => {
                self.turned_away.note(program, why);
                Err(why.errno())
            }
            None => Ok(()),
        }
    }

    /// Updates the user's share after a request that may have changed a socket's bindings.
    pub(super) fn count_bindings(&mut self, node: &Node, place: Place) {
        let Some(local) = self.sockets.get_mut(place) else { return };
        let now = local.port.map_or(0, |port| node.bindings_of(port));
        let before = std::mem::replace(&mut local.bindings, now);
        if before != now {
            let program = self.clients.get(local.client).and_then(|client| client.credentials);
            self.shares.bound(program, before, now);
        }
    }

    /// Returns the reason if one more socket of this program's user must be refused.
    pub(super) fn refuses_socket(&mut self, client: Place) -> Option<Refusal> {
        let program = self.program(client);
        let refusal = self.shares.refuses_socket(program);
        if let Some(why) = refusal {
            self.turned_away.note(program, why);
        }
        refusal
    }

    /// The process and the user of a program, if they are known.
    pub(super) fn program(&self, client: Place) -> Option<Credentials> {
        self.clients.get(client)?.credentials
    }
}
