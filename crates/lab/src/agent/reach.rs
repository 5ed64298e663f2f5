//! Determines at which of its addresses a host can be reached by another: one host listens, the other tries all
//! addresses. The listener sends a password that only these two hosts know. The password shows that the right host
//! answered, not a different host with the same address (every host has the same loopback address, and many have the
//! same bridge address).

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use crossway_sys::lease;

/// Time limit for an address to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// A port to which others can try to connect.
#[derive(Debug)]
pub(crate) struct CallListener {
    listener: TcpListener,
    password: String,
}

impl CallListener {
    /// Opens a port on all addresses.
    pub(crate) fn open() -> std::io::Result<CallListener> {
        // The IPv6 wildcard address accepts IPv4 too, unless the host has no IPv6.
        let listener = TcpListener::bind("[::]:0").or_else(|_| TcpListener::bind("0.0.0.0:0"))?;
        listener.set_nonblocking(true)?;
        Ok(CallListener { listener, password: format!("{:016x}", lease::random_number()) })
    }

    pub(crate) fn port(&self) -> std::io::Result<u16> {
        Ok(self.listener.local_addr()?.port())
    }

    pub(crate) fn password(&self) -> &str {
        &self.password
    }

    /// A descriptor that is readable when there is a connection attempt.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// Accepts all pending connections and sends the password to them.
    pub(crate) fn answer(&self) {
        while let Ok((mut caller, _)) = self.listener.accept() {
            // Few enough bytes for any socket's buffer. It does not matter if the caller has already closed.
            let _ = caller.write_all(self.password.as_bytes());
        }
    }
}

/// The first address at which the password was received; all addresses are tried at the same time. The error describes
/// what happened at each address.
pub(crate) fn reach(addresses: &[IpAddr], port: u16, password: &str) -> Result<IpAddr, String> {
    if addresses.is_empty() {
        return Err("that host has no address; is its network interface up?".to_owned());
    }
    let outcomes: Vec<Result<(), String>> = std::thread::scope(|scope| {
        let tries: Vec<_> = addresses
            .iter()
            .map(|&address| scope.spawn(move || hear(SocketAddr::new(address, port), password)))
            .collect();
        let failed = || Err("the attempt failed".to_owned());
        tries.into_iter().map(|attempt| attempt.join().unwrap_or_else(|_| failed())).collect()
    });
    let mut why = Vec::new();
    for (address, outcome) in addresses.iter().zip(outcomes) {
        match outcome {
            Ok(()) => return Ok(*address),
            Err(e) => why.push(format!("{address}: {e}")),
        }
    }
    Err(why.join("; "))
}

fn hear(address: SocketAddr, password: &str) -> Result<(), String> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE).map_err(|e| e.to_string())?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(|e| e.to_string())?;
    let mut heard = vec![0; password.len()];
    stream.read_exact(&mut heard).map_err(|e| e.to_string())?;
    if heard == password.as_bytes() { Ok(()) } else { Err("another host answered".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_that_leads_there_is_found_and_a_stranger_is_not_taken_for_it() {
        let (listener, other) = (CallListener::open().unwrap(), CallListener::open().unwrap());
        let (port, strange) = (listener.port().unwrap(), other.port().unwrap());
        let here: IpAddr = "127.0.0.1".parse().unwrap();
        std::thread::scope(|scope| {
            for listener in [&listener, &other] {
                scope.spawn(move || {
                    crossway_sys::poll::any_readable(&[listener.fd()], None).unwrap();
                    listener.answer();
                });
            }
            assert_eq!(reach(&[here], port, listener.password()), Ok(here));
            let error = reach(&[here], strange, listener.password()).unwrap_err();
            assert_eq!(error, "127.0.0.1: another host answered");
        });
        drop(listener);
        assert!(reach(&[here], port, "x").unwrap_err().contains("refused"));
    }
}
