//! The channel of both programs: @MECHANISM@ with whole messages and a deadline on every call.
#![allow(dead_code)]

use std::io::{Error, ErrorKind, Result};
use std::time::{Duration, Instant};

pub const LARGEST: usize = @LARGEST@;
pub const DEADLINE: Duration = Duration::from_secs(2);
const PATIENCE: Duration = Duration::from_secs(30);

type Socket = std::@RUST_SOCKET@;

pub struct Channel(Socket);

impl Channel {
    /// Sets the deadlines. A send into a full channel waits, which provides back-pressure.
    fn new(socket: Socket) -> Result<Channel> {
        socket.set_read_timeout(Some(DEADLINE))?;
        socket.set_write_timeout(Some(DEADLINE))?;
@if nodelay
        socket.set_nodelay(true)?;
@end
        Ok(Channel(socket))
    }
@if stream

    pub fn send(&mut self, message: &[u8]) -> Result<()> {
        if message.len() > LARGEST {
            return Err(Error::new(ErrorKind::InvalidInput, "the message is too large"));
        }
        let mut framed = Vec::with_capacity(message.len() + 4);
        framed.extend((message.len() as u32).to_le_bytes());
        framed.extend(message);
        self.0.write_all(&framed)
    }

    /// Returns `None` if no message began before the deadline; the channel may be kept.
    pub fn receive(&mut self) -> Result<Option<Vec<u8>>> {
        let mut length = [0; 4];
        let begun = match self.0.read(&mut length) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(begun) => begun,
            Err(error) if is_late(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        self.0.read_exact(&mut length[begun..])?;
        let length = u32::from_le_bytes(length) as usize;
        if length > LARGEST {
            return Err(Error::new(ErrorKind::InvalidData, "the peer announced too large a message"));
        }
        let mut message = vec![0; length];
        self.0.read_exact(&mut message)?;
        Ok(Some(message))
    }
@end
@if dgram

    pub fn send(&mut self, message: &[u8]) -> Result<()> {
        if message.is_empty() || message.len() > LARGEST {
            return Err(Error::new(ErrorKind::InvalidInput, "the message is empty or too large"));
        }
        self.0.send(message).map(|_| ())
    }

    /// Returns `None` if no message came before the deadline; the channel may be kept.
    pub fn receive(&mut self) -> Result<Option<Vec<u8>>> {
        let mut message = vec![0; LARGEST + 1];
        match self.0.recv(&mut message) {
            Ok(length) if (1..=LARGEST).contains(&length) => {
                message.truncate(length);
                Ok(Some(message))
            }
            Ok(_) => Err(Error::new(ErrorKind::InvalidData, "the message is empty or too large")),
            Err(error) if is_late(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }
@end
}

/// Whether the error is an expired deadline, as opposed to a lost peer.
fn is_late(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}
@if unix

use std::os::unix::fs::FileTypeExt;

/// A server that was killed leaves its path behind; a live one answers.
fn remove_stale(address: &str, connected: Result<()>) -> Result<()> {
    match connected {
        Ok(()) => Err(Error::new(ErrorKind::AddrInUse, "another server is running")),
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
            let is_socket = std::fs::symlink_metadata(address)?.file_type().is_socket();
            if is_socket { std::fs::remove_file(address) } else { Ok(()) }
        }
        Err(_) => Ok(()),
    }
}
@end
@if stream

use std::io::{Read, Write};

pub struct Listener(std::@RUST_LISTENER@);

impl Listener {
    pub fn bind(address: &str) -> Result<Listener> {
@end
@if unixstream
        remove_stale(address, Socket::connect(address).map(|_| ()))?;
@end
@if stream
        std::@RUST_LISTENER@::bind(address).map(Listener)
    }

    pub fn accept(&self) -> Result<Channel> {
        Channel::new(self.0.accept()?.0)
    }
}

pub fn connect(address: &str) -> Result<Channel> {
@end
@if unixstream
    // A UNIX socket connects at once, or waits while the server's queue of connections is full.
    Channel::new(Socket::connect(address)?)
}
@end
@if inetstream
    let mut last = ErrorKind::NotFound.into();
    for address in std::net::ToSocketAddrs::to_socket_addrs(address)? {
        match Socket::connect_timeout(&address, DEADLINE) {
            Ok(socket) => return Channel::new(socket),
            Err(error) => last = error,
        }
    }
    Err(last)
}
@end
@if dgram

/// A socket with an address of its own.
@end
@if unixdgram
fn bound_socket() -> Result<Socket> {
    use std::os::linux::net::SocketAddrExt;
    use std::sync::atomic::{AtomicU64, Ordering};
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let name = format!("{}.{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
    let address = std::os::unix::net::SocketAddr::from_abstract_name(name)?;
    Socket::bind_addr(&address)
}
@end
@if inetdgram
fn bound_socket() -> Result<Socket> {
    Socket::bind("0.0.0.0:0")
}
@end
@if dgram

pub struct Listener(Socket);

impl Listener {
    pub fn bind(address: &str) -> Result<Listener> {
@end
@if unixdgram
        remove_stale(address, Socket::unbound()?.connect(address))?;
@end
@if dgram
        Socket::bind(address).map(Listener)
    }

    /// Each client gets a socket of its own, which is connected to the client's, so that it receives from nobody else:
    /// the server answers a greeting from it, and the client connects to the answer's source.
    pub fn accept(&self) -> Result<Channel> {
        loop {
            let (_, client) = self.0.recv_from(&mut [0])?;
            let socket = bound_socket()?;
            if socket.@RUST_CONNECT@(@RUST_REF@client).and_then(|()| socket.send(&[0])).is_ok() {
                return Channel::new(socket);
            } // Otherwise the client has gone meanwhile.
        }
    }
}

pub fn connect(address: &str) -> Result<Channel> {
    let channel = Channel::new(bound_socket()?)?;
    channel.0.send_to(&[0], address)?;
    let (_, server) = channel.0.recv_from(&mut [0])?;
    channel.0.@RUST_CONNECT@(@RUST_REF@server)?;
    Ok(channel)
}
@end

/// Connects; ends the program if nobody listens for as long as PATIENCE.
pub fn connected(address: &str) -> Channel {
    let (mut pause, begun) = (Duration::from_millis(10), Instant::now());
    loop {
        match connect(address) {
            Ok(link) => return link,
            Err(error) => eprintln!("waiting for {address}: {error}"),
        }
        if begun.elapsed() > PATIENCE {
            std::process::exit(1);
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(500));
    }
}

impl Listener {
    /// Serves each connection in a thread of its own.
    pub fn serve_all<T: Send + 'static>(&self, serve: fn(Channel) -> T) -> ! {
        loop {
            match self.accept() {
                // An error is that of one peer, which closed, died or violated the protocol: only its connection ends.
                Ok(link) => drop(std::thread::spawn(move || serve(link))),
                // For example too many open files: connections that end make room.
                Err(_) => std::thread::sleep(Duration::from_millis(10)),
            }
        }
    }
}
