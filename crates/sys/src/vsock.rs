//! Addresses of AF_VSOCK, vsock(7).

use std::os::fd::AsFd;

use rustix::net::SocketAddrAny;
use rustix::net::addr::{SocketAddrArg, SocketAddrLen, SocketAddrOpaque};

use crate::OsError;

/// The address family AF_VSOCK.
pub const FAMILY: u16 = libc::AF_VSOCK as u16;

/// A context id (machine) and a port on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VsockAddress {
    /// The context id of the machine.
    pub cid: u32,
    /// The port, 32 bits wide and independent of the ports of IP.
    pub port: u32,
}

impl VsockAddress {
    /// This machine; binding to this address lets the kernel choose the port.
    pub const LOCAL_ANY_PORT: Self =
        VsockAddress { cid: libc::VMADDR_CID_LOCAL, port: libc::VMADDR_PORT_ANY };

    /// The socket's own address.
    pub fn of(fd: impl AsFd) -> Result<Self, OsError> {
        let any = rustix::net::getsockname(fd).map_err(|e| OsError::new("getsockname", "", e))?;
        let len = any.addr_len() as usize;
        if any.address_family().as_raw() != FAMILY || len < size_of::<libc::sockaddr_vm>() {
            let why = std::io::Error::other("not an AF_VSOCK address");
            return Err(OsError::new("getsockname", "", why));
        }
        // SAFETY: the storage holds at least as many initialised bytes as the structure has, all values of which
        // are valid, and is aligned for any socket address.
        let raw = unsafe { any.as_ptr().cast::<libc::sockaddr_vm>().read_unaligned() };
        Ok(VsockAddress { cid: raw.svm_cid, port: raw.svm_port })
    }
}

// SAFETY: the closure gets a whole, initialised sockaddr_vm that lives until it returns.
unsafe impl SocketAddrArg for VsockAddress {
    unsafe fn with_sockaddr<R>(
        &self,
        f: impl FnOnce(*const SocketAddrOpaque, SocketAddrLen) -> R,
    ) -> R {
        // SAFETY: sockaddr_vm is plain data, and all zeros is a valid value.
        let mut raw: libc::sockaddr_vm = unsafe { std::mem::zeroed() };
        raw.svm_family = FAMILY;
        raw.svm_cid = self.cid;
        raw.svm_port = self.port;
        f((&raw const raw).cast(), size_of_val(&raw) as SocketAddrLen)
    }
}

impl From<VsockAddress> for SocketAddrAny {
    fn from(address: VsockAddress) -> Self {
        address.as_any()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_the_kernels_layout() {
        let any = SocketAddrAny::from(VsockAddress { cid: 1, port: 0x0102_0304 });
        assert_eq!(any.address_family().as_raw(), 40);
        assert_eq!(any.addr_len(), 16);
    }
}
