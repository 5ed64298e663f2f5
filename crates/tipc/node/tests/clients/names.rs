//! Tests service addresses together with direct lanes. The node chooses the receiver of each message to a service
//! address, so these messages pass through it. A connection to a service address stays with the socket that was chosen
//! for it, and becomes direct.

use std::time::Instant;

use crossway_sys::poll::{Interest, wait_ready};
use crossway_tipc_client::{Address, Errno, NodeSocket, Patience, Scope, ServiceRange, SocketKind};

use crate::direct::{self, KINDS};
use crate::lane_pair::{counts, node_socket, signal};
use crate::site::{Site, WATCHDOG, soon, until};

const SERVICE: u32 = 5100;

/// Returns two sockets that are bound to the same name.
fn two(site: &Site, kind: SocketKind) -> ([NodeSocket; 2], ServiceRange, Address) {
    let range = ServiceRange::single(SERVICE, 1);
    let servers = [(); 2].map(|()| {
        let server = node_socket(site, kind);
        if kind.is_connected_kind() {
            server.listen().unwrap();
        }
        server.bind(range, Scope::Cluster).unwrap();
        server
    });
    (servers, range, Address::service(SERVICE, 1))
}

/// Sends numbered messages. Returns those that each server has received.
fn spread(client: &NodeSocket, servers: &[NodeSocket; 2], to: Address, n: u32) -> [Vec<u32>; 2] {
    let mut came = [Vec::new(), Vec::new()];
    for number in 0..n {
        assert_eq!(client.send(&number.to_ne_bytes(), Some(to), soon()), Ok(4));
        until("a message", || {
            servers.iter().zip(&mut came).any(|(server, came)| {
                let mut raw = [0; 4];
                match server.recv(&mut raw, Patience::Now) {
                    Ok(_) => came.push(u32::from_ne_bytes(raw)),
                    Err(errno) => assert_eq!(errno, Errno::AGAIN),
                }
                came.last() == Some(&number)
            })
        });
    }
    came
}

#[test]
fn each_message_to_a_name_goes_to_the_next_socket_and_to_none_that_has_withdrawn() {
    const N: u32 = 200;
    for kind in [SocketKind::Rdm, SocketKind::Dgram] {
        let site = direct::site();
        let (servers, range, name) = two(&site, kind);
        let client = node_socket(&site, kind);
        let came = spread(&client, &servers, name, N);
        for came in &came {
            assert!(came.iter().copied().eq((came[0]..N).step_by(2)), "{kind:?}: {came:?}");
        }
        servers[0].unbind(range, Scope::Cluster).unwrap();
        let came = spread(&client, &servers, name, N);
        assert_eq!(came, [vec![], (0..N).collect()]);
        // The address of a socket is not resolved, but its messages pass through the node, too.
        let address = Address::Socket(servers[0].local_address().unwrap());
        let came = spread(&client, &servers, address, N);
        assert_eq!(came, [(0..N).collect(), vec![]]);
        assert!(client.lane_sleeps_and_wakes().is_some(), "the client has lanes");
        assert!(!client.sends_directly());
        assert_eq!(counts(&site).iter().map(|lanes| lanes.direct).sum::<u64>(), 0);
    }
}

#[test]
fn a_connection_to_a_name_is_resolved_once_and_does_without_the_node() {
    for kind in KINDS {
        let site = direct::site();
        let (servers, range, name) = two(&site, kind);
        // One connection after the other: each goes to the next socket.
        let connections: Vec<_> = (0..2)
            .map(|_| {
                let client = node_socket(&site, kind);
                let connecting = client.connect(Some(name), Patience::Now);
                assert_eq!(connecting, Err(Errno::INPROGRESS));
                let mut accepted = None;
                until("a connection", || {
                    accepted = servers.iter().position(|server| {
                        wait_ready(server, Interest::Readable, Some(Instant::now())).unwrap()
                    });
                    accepted.is_some()
                });
                let at = accepted.unwrap();
                let server = servers[at].accept(soon()).unwrap().0;
                let writable =
                    wait_ready(&client, Interest::Writable, Some(Instant::now() + WATCHDOG));
                assert_eq!(writable, Ok(true));
                (at, client, server)
            })
            .collect();
        assert_ne!(connections[0].0, connections[1].0, "{kind:?}");
        for server in &servers {
            server.unbind(range, Scope::Cluster).unwrap();
        }
        let mut raw = [0; 4];
        let mut exchange = |client: &NodeSocket, server: &NodeSocket| {
            for (from, to) in [(client, server), (server, client)] {
                assert_eq!(from.send(b"ping", None, soon()), Ok(4));
                assert_eq!(to.recv(&mut raw, soon()), Ok(4));
            }
        };
        for (_, client, server) in &connections {
            until("direct lanes", || {
                exchange(client, server);
                client.sends_directly() && server.sends_directly()
            });
        }
        signal(&site, "-STOP");
        for _ in 0..1_000 {
            for (_, client, server) in &connections {
                exchange(client, server);
            }
        }
        signal(&site, "-CONT");
    }
}
