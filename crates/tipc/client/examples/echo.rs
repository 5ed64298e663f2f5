//! Example of a server and a client in one program. It binds the service address {1000, 1}, sends a message to itself,
//! answers that message and prints the answer. It uses the kernel's TIPC if there is one, otherwise the tipcd at
//! `$TIPCD_SOCKET` or at the default path.
//!
//!     cargo run -p crossway-tipc-client --example echo

use std::error::Error;
use std::time::{Duration, Instant};

use crossway_tipc_client::{Address, Patience, Scope, ServiceRange, Socket, SocketKind};

fn main() -> Result<(), Box<dyn Error>> {
    let server = Socket::open(SocketKind::Rdm)?;
    server.bind(ServiceRange { service: 1000, lower: 1, upper: 1 }, Scope::Cluster)?;
    let client = Socket::open(SocketKind::Rdm)?;
    let soon = || Patience::Until(Instant::now() + Duration::from_secs(5));

    client.send(b"hello", Some(Address::service(1000, 1)), soon())?;
    let mut text = [0; 64];
    let request = server.recv_message(&mut text, soon())?;
    server.send(&text[..request.len], Some(request.from.into()), soon())?;

    let len = client.recv(&mut text, soon())?;
    println!("{}", String::from_utf8_lossy(&text[..len]));
    Ok(())
}
