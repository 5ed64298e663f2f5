//! Members of groups on the hosts of a network, for the group tests.

use core::time::Duration;

use crossway_tipc_proto::addr::{NodeAddr, Port, Scope, ServiceRange, SocketAddr};
use crossway_tipc_proto::socket::{
    Address, GroupRequest, MembershipEvent, Received, SocketError, SocketKind,
};
use crossway_tipc_sim::{HostId, Network};

pub const GROUP: u32 = 5000;

pub fn cluster(seed: u64, hosts: usize) -> Network {
    let mut net = Network::new(seed, hosts, 1500, Duration::from_millis(1500));
    for host in 0..hosts {
        net.start(HostId(host), false);
    }
    net.run(Duration::from_secs(3));
    net
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Member {
    pub host: HostId,
    pub port: Port,
    pub instance: u32,
}

impl Member {
    pub fn addr(&self, net: &Network) -> SocketAddr {
        SocketAddr { port: self.port, node: net.addr(self.host) }
    }
}

pub fn request(instance: u32) -> GroupRequest {
    GroupRequest { group: GROUP, instance, scope: Scope::Cluster, loopback: false, events: true }
}

pub fn join(net: &mut Network, host: usize, request: GroupRequest) -> Member {
    let host = HostId(host);
    let port = net.with(host, |node, now| {
        let port = node.open(SocketKind::Rdm).unwrap();
        node.join(now, port, request).unwrap();
        port
    });
    net.run(Duration::from_millis(50));
    Member { host, port: port.unwrap(), instance: request.instance }
}

pub fn try_send(
    net: &mut Network,
    m: Member,
    to: Option<Address>,
    text: &[u8],
) -> Result<usize, SocketError> {
    net.with(m.host, |node, now| node.send(now, m.port, to, text)).unwrap()
}

pub fn send(
    net: &mut Network,
    m: Member,
    to: Option<Address>,
    text: &[u8],
) -> Result<usize, SocketError> {
    let result = try_send(net, m, to, text);
    net.run(Duration::from_millis(50));
    result
}

pub fn recv(net: &mut Network, m: Member) -> Option<Received> {
    net.with(m.host, |node, now| node.recv(now, m.port, 100_000)).unwrap().ok()
}

/// Receives and returns all messages waiting for a member.
pub fn texts(net: &mut Network, m: Member) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    while let Some(r) = recv(net, m) {
        if r.group.unwrap().event.is_none() {
            all.push(r.payload);
        }
    }
    all
}

/// Receives and returns all membership events waiting for a member, sorted.
pub fn news(net: &mut Network, m: Member) -> Vec<(SocketAddr, u32, MembershipEvent)> {
    let mut all = Vec::new();
    while let Some(r) = recv(net, m) {
        let source = r.group.unwrap();
        assert_eq!(source.group, GROUP);
        all.extend(source.event.map(|event| (r.from, source.instance, event)));
    }
    all.sort();
    all
}

pub const fn to_instance(instance: u32) -> Option<Address> {
    Some(Address::Range(ServiceRange::single(GROUP, instance)))
}

pub const fn any_of(instance: u32) -> Option<Address> {
    Some(Address::Service { service: GROUP, instance, domain: NodeAddr(0) })
}
