//! Tests of the lists of sockets, with sockets of this process.

use std::io::Write;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};

use super::*;
use crate::processes::bracketed;

fn inode_of(fd: &impl AsRawFd) -> u64 {
    let link = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd())).unwrap();
    bracketed(link.to_str().unwrap(), "socket:").unwrap()
}

/// The list, or `None` with a message where this kernel cannot make it.
fn listed<T>(list: Result<Vec<T>, OsError>) -> Option<Vec<T>> {
    match list {
        Ok(list) => Some(list),
        Err(e) if [libc::ENOENT, libc::EPROTONOSUPPORT, libc::EOPNOTSUPP].contains(&e.errno()) => {
            eprintln!("SKIP sock_diag: {e}; load the module, e.g. modprobe unix_diag");
            None
        }
        Err(e) => panic!("{e}"),
    }
}

#[test]
fn the_ends_of_a_pair_name_each_other_and_what_is_queued() {
    let (mut one, other) = UnixStream::pair().unwrap();
    one.write_all(&[7; 100]).unwrap();
    let Some(list) = listed(unix_sockets()) else { return };
    let find = |inode| list.iter().find(|s| s.inode == inode).unwrap();
    let (one, other) = (find(inode_of(&one)), find(inode_of(&other)));
    assert_eq!((one.peer, other.peer), (Some(other.inode), Some(one.inode)));
    assert_eq!(one.kind, UnixKind::Stream);
    // The kernel counts the first message of the queue of a stream as 1 in some versions, and its bytes in others.
    assert!(other.queued_bytes.unwrap() > 0, "{other:?}");
    assert_eq!(one.queued_bytes, Some(0));
}

#[test]
fn a_listener_and_what_it_accepted_have_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a socket");
    let listener = UnixListener::bind(&path).unwrap();
    let client = UnixStream::connect(&path).unwrap();
    let (server, _) = listener.accept().unwrap();
    let Some(list) = listed(unix_sockets()) else { return };
    let find = |inode| list.iter().find(|s| s.inode == inode).unwrap();
    assert!(find(inode_of(&listener)).listens);
    assert_eq!(find(inode_of(&server)).name.as_deref(), path.to_str());
    assert_eq!(find(inode_of(&client)).peer, Some(inode_of(&server)));
}

#[test]
fn an_abstract_name_begins_with_an_at_sign() {
    use std::os::linux::net::SocketAddrExt;
    let name = format!("crossway-test-{}", std::process::id());
    let address = std::os::unix::net::SocketAddr::from_abstract_name(&name).unwrap();
    let listener = UnixListener::bind_addr(&address).unwrap();
    let Some(list) = listed(unix_sockets()) else { return };
    let found = list.iter().find(|s| s.inode == inode_of(&listener)).unwrap();
    assert_eq!(found.name, Some(format!("@{name}")));
}

#[test]
fn tcp_connections_count_their_bytes() {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let Ok(listener) = TcpListener::bind(address) else {
            eprintln!("SKIP sock_diag: cannot listen on {address}; set lo up");
            continue;
        };
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        client.write_all(&[1; 1000]).unwrap();
        let mut buffer = [0; 1000];
        std::io::Read::read_exact(&mut server, &mut buffer).unwrap();
        let Some(list) = listed(inet_sockets(Transport::Tcp)) else { return };
        let find = |inode| list.iter().find(|s| s.inode == inode).unwrap();
        let (near, far) = (find(inode_of(&client)), find(inode_of(&server)));
        assert_eq!((near.local, near.remote), (far.remote, far.local));
        assert_eq!(near.local, client.local_addr().unwrap());
        assert_eq!(far.received_bytes, Some(1000));
        assert!(find(inode_of(&listener)).listens);
    }
}

#[test]
fn udp_sockets_have_their_addresses() {
    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    client.connect(server.local_addr().unwrap()).unwrap();
    let Some(list) = listed(inet_sockets(Transport::Udp)) else { return };
    let find = |inode| list.iter().find(|s| s.inode == inode).unwrap();
    assert_eq!(find(inode_of(&client)).remote, server.local_addr().unwrap());
    assert_eq!(find(inode_of(&server)).remote.port(), 0);
}

#[test]
fn netlink_sockets_have_their_protocol() {
    let watch = crate::link_watch::LinkWatch::open("lo", 1).unwrap();
    use std::os::fd::AsFd;
    let inode = inode_of(&watch.as_fd());
    let Some(list) = listed(netlink_sockets()) else { return };
    assert_eq!(list.iter().find(|s| s.inode == inode).unwrap().protocol, 0);
    listed(vsock_sockets());
    listed(inet_sockets(Transport::Sctp));
}

#[test]
fn messages_cut_short_are_left_out() {
    for len in 0..72 {
        assert_eq!(parse_inet(Transport::Tcp, &vec![0; len]), None, "{len}");
    }
    for len in 0..16 {
        assert_eq!(parse_unix(&vec![1; len]), None, "{len}");
    }
    assert_eq!(parse_vsock(&[0; 23]), None);
    assert_eq!(parse_netlink(&[0; 19]), None);
    // An attribute that claims more than there is ends the list.
    assert_eq!(attributes(&[200, 0, 1, 0, 9]).count(), 0);
    assert_eq!(attributes(&[2, 0, 1, 0]).count(), 0);
}
