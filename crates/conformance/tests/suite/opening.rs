//! Tests ends that open too early, or without a peer.

use std::os::fd::OwnedFd;
use std::time::Duration;

use super::bench::*;
use crossway_mech::mechanisms::tipc_node;
use crossway_mech::{Mechanism, Offer, OpenError, Spec};
use crossway_sys::socket::{self, SocketType};
use crossway_sys::tipc::{self, TipcAddress};
use crossway_tipc_client as node;

/// The service types in the offers of the TIPC mechanisms; `KERNEL_SERVICE` is for mechanisms over the kernel,
/// `NODE_SERVICE` for those over a `tipcd`.
const KERNEL_SERVICE: u32 = 0x4357_0001;
const NODE_SERVICE: u32 = 0x4357_0002;

/// A listening socket whose name is not yet published.
enum Unnamed {
    Kernel(OwnedFd, TipcAddress),
    Node(node::NodeSocket, node::ServiceRange),
}

impl Unnamed {
    /// A listening socket that is not yet published, and the offer that will be valid once it is. `None` unless the
    /// mechanism's names spread over a network.
    fn listening<M: Mechanism>() -> Option<(Unnamed, Offer)> {
        let stream = M::ID.ends_with("-stream");
        if M::ID.starts_with("tipc-kernel-") {
            let kind = if stream { SocketType::Stream } else { SocketType::Seqpacket };
            let fd = socket::of_family(tipc::FAMILY, kind, "AF_TIPC").unwrap();
            socket::listen(&fd, 8).unwrap();
            let TipcAddress::Socket { port, .. } = TipcAddress::of(&fd).unwrap() else { panic!() };
            let name = TipcAddress::Service { kind: KERNEL_SERVICE, instance: port };
            Some((Unnamed::Kernel(fd, name), Offer::new().with_word("service", name)))
        } else if M::ID.starts_with("tipc-node-") {
            let kind = if stream { node::SocketKind::Stream } else { node::SocketKind::Seqpacket };
            let path = tipc_node::variable().map_or_else(node::default_path, |(_, path)| path);
            let fd = node::NodeSocket::open(&path, kind).unwrap();
            fd.listen().unwrap();
            let port = fd.local_address().unwrap().port;
            let name = node::ServiceRange::single(NODE_SERVICE, port);
            Some((Unnamed::Node(fd, name), Offer::new().with_word("service", port)))
        } else {
            None
        }
    }

    fn publish(&self) {
        match self {
            Unnamed::Kernel(fd, name) => {
                socket::bind(fd, &(*name).into(), &name.to_string()).unwrap()
            }
            Unnamed::Node(fd, name) => fd.bind(*name, node::Scope::Cluster).unwrap(),
        }
    }

    fn accept(&self) -> Box<dyn Send> {
        match self {
            Unnamed::Kernel(fd, _) => Box::new(socket::accept(fd).unwrap()),
            Unnamed::Node(fd, _) => Box::new(fd.accept(node::Patience::Forever).unwrap().0),
        }
    }
}

pub(crate) fn a_name_that_comes_late_is_waited_for_and_one_that_never_comes_is_reported<
    M: Mechanism,
>() {
    if !M::caps().reconnects {
        return;
    }
    check::<M>(|| {
        let Some((listener, mut offer)) = Unnamed::listening::<M>() else { return };
        let brief = Spec { open_timeout: Duration::from_millis(50), ..natural_spec::<M>() };
        let error = M::connect(&brief, &mut offer).err().expect("there is no listener");
        let OpenError::Os(error) = error else { panic!("{error}") };
        let text = error.to_string();
        assert!(text.starts_with("connect ") && text.contains("(tried for 50ms)"), "{text}");

        let connector = start("connector", move || {
            M::connect(&natural_spec::<M>(), &mut offer).map(drop).unwrap();
        });
        // If this is shorter than the first attempt, the name is already published by then.
        std::thread::sleep(Duration::from_millis(30));
        listener.publish();
        let accepted = listener.accept();
        join(connector);
        drop(accepted);
    });
}
