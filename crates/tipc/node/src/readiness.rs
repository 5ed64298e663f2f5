//! Notifies the process that started a tipcd that it is ready, like sd_notify: with a datagram to the socket in
//! `$NOTIFY_SOCKET`.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Sends the state if `$NOTIFY_SOCKET` is set. Errors are ignored, because the tipcd also works without a listener.
pub(crate) fn tell(state: &str) {
    if let Some(to) = std::env::var_os("NOTIFY_SOCKET").filter(|to| !to.is_empty()) {
        let _ = send(&to, state);
    }
}

fn send(to: &OsStr, state: &str) -> io::Result<usize> {
    let socket = UnixDatagram::unbound()?;
    let address = match to.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        path => SocketAddr::from_pathname(OsStr::from_bytes(path))?,
    };
    socket.set_nonblocking(true)?;
    socket.send_to_addr(state.as_bytes(), &address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_names_are_reached() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let name = format!("crossway-notify-{}", std::process::id());
        let hidden = SocketAddr::from_abstract_name(&name).unwrap();
        for (listener, to) in [
            (UnixDatagram::bind(&path).unwrap(), path.as_os_str().to_owned()),
            (UnixDatagram::bind_addr(&hidden).unwrap(), format!("@{name}").into()),
        ] {
            send(&to, "READY=1").unwrap();
            let mut bytes = [0; 32];
            let len = listener.recv(&mut bytes).unwrap();
            assert_eq!(&bytes[..len], b"READY=1");
        }
        assert!(send(OsStr::new("/nowhere/notify"), "READY=1").is_err());
    }
}
