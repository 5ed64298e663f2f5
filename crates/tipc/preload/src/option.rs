//! Socket options, and the two ioctl requests of TIPC.

use std::ffi::c_int;
use std::sync::atomic::Ordering;

use crossway_sys::Errno;
use crossway_tipc_client::protocol::control::{RECEIVE_BYTES, Reader, Request};
use crossway_tipc_client::protocol::slot::Phase;
use crossway_tipc_client::{SocketKind, SocketOption};

use crate::control;
use crate::socket::Handle;
use crate::traffic;

const SOL_TIPC: c_int = 271;

/// The options SO_PASSPIDFD and SO_PASSSEC: they request control data that TIPC never provides.
const PASS_PIDFD: c_int = 76;
const PASS_SECURITY: c_int = 34;
/// Size of the send buffer, in bytes, if the program has not set SO_SNDBUF: the usual value of net.core.wmem_default.
/// `BUFFER_MIN` is the smallest value of SO_SNDBUF and SO_RCVBUF, in bytes (socket(7)).
const SEND_BUFFER_DEFAULT: u64 = 212_992;
const BUFFER_MIN: u32 = 4_608;

/// Credentials of the peer (SO_PEERCRED), which are unknown for a TIPC socket: process ID 0, user and group ID -1.
const NOBODY: [u8; 12] = [0, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255];

/// Value of an option.
pub(crate) enum Value {
    Integer(u32),
    Bytes([u8; 12]),
    /// An option without a value; the program gets a length of 0.
    None,
}

fn integer(value: Option<&[u8]>) -> Result<u32, Errno> {
    let bytes = value.and_then(<[u8]>::first_chunk).ok_or(Errno::INVAL)?;
    Ok(u32::from_ne_bytes(*bytes))
}

impl Handle {
    fn set_by_request(&self, name: u32, value: u32) -> Result<(), Errno> {
        control::ask(&Request::SetOption { token: self.token, name, value }, &[]).map(drop)
    }

    fn get_by_request(&self, name: u32) -> Result<u32, Errno> {
        let answer = control::ask(&Request::GetOption { token: self.token, name }, &[])?;
        Reader::new(answer.bytes()).u32().ok_or(Errno::PROTO)
    }

    /// Sets an option; `value` is `None` for NULL. Returns false if the option belongs to the underlying descriptor;
    /// the caller must then set it there.
    pub(crate) fn set_option(
        &self,
        level: c_int,
        name: c_int,
        value: Option<&[u8]>,
        len: usize,
    ) -> Result<bool, Errno> {
        match level {
            libc::SOL_SOCKET => return self.set_socket_option(name, value),
            libc::IPPROTO_TCP if self.kind == SocketKind::Stream => return Ok(true),
            SOL_TIPC => {}
            _ => return Err(Errno::NOPROTOOPT),
        }
        let option = SocketOption::from_number(name.cast_unsigned()).ok_or(Errno::INVAL)?;
        if option.takes_number() {
            self.set_by_request(option.number(), integer(value)?)?;
            return Ok(true);
        }
        if option == SocketOption::GroupJoin {
            let bytes = value.and_then(<[u8]>::first_chunk::<16>).ok_or(Errno::INVAL)?;
            let mut reader = Reader::new(bytes);
            let mut word = || reader.u32().unwrap_or(0);
            let group = [word(), word(), word(), word()];
            control::ask(&Request::Join { token: self.token, group }, &[])?;
            self.set_group(group[0]);
            return Ok(true);
        }
        if !option.is_order() || value.is_some() || len != 0 {
            return Err(Errno::INVAL);
        }
        if option == SocketOption::GroupLeave {
            control::ask(&Request::Leave { token: self.token }, &[])?;
            self.set_group(0);
        } else {
            self.set_by_request(option.number(), 0)?;
        }
        Ok(true)
    }

    fn set_socket_option(&self, name: c_int, value: Option<&[u8]>) -> Result<bool, Errno> {
        match name {
            libc::SO_RCVBUF | libc::SO_RCVBUFFORCE => {
                let bytes = integer(value)?.saturating_mul(2).max(BUFFER_MIN);
                self.set_by_request(RECEIVE_BYTES, bytes)?;
            }
            // The size of the descriptor's own buffer determines when it polls writable, so it must not change.
            libc::SO_SNDBUF | libc::SO_SNDBUFFORCE => {
                let bytes = integer(value)?.saturating_mul(2).max(BUFFER_MIN);
                self.send_buffer().store(bytes.into(), Ordering::Release);
            }
            libc::SO_PASSCRED | PASS_SECURITY | PASS_PIDFD => {
                integer(value)?;
            }
            libc::SO_PEEK_OFF => return Err(Errno::OPNOTSUPP),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Reads an option. Returns `None` if the option belongs to the underlying descriptor; the caller must then read it
    /// there.
    pub(crate) fn option(&self, level: c_int, name: c_int) -> Result<Option<Value>, Errno> {
        let value = match level {
            libc::SOL_SOCKET => match name {
                libc::SO_TYPE => self.kind as u32,
                libc::SO_DOMAIN => libc::AF_TIPC.unsigned_abs(),
                libc::SO_PROTOCOL | libc::SO_PASSCRED | PASS_SECURITY | PASS_PIDFD => 0,
                libc::SO_ACCEPTCONN => u32::from(self.state().phase == Phase::Listening),
                libc::SO_ERROR => {
                    traffic::settle_changes();
                    self.take_error().map_or(0, |errno| errno.raw_os_error().unsigned_abs())
                }
                libc::SO_RCVBUF => self.get_by_request(RECEIVE_BYTES)?,
                libc::SO_SNDBUF => match self.send_buffer().load(Ordering::Acquire) {
                    0 => SEND_BUFFER_DEFAULT as u32,
                    set => set as u32,
                },
                libc::SO_PEERCRED => return Ok(Some(Value::Bytes(NOBODY))),
                libc::SO_PEEK_OFF => return Err(Errno::OPNOTSUPP),
                _ => return Ok(None),
            },
            libc::IPPROTO_TCP if self.kind == SocketKind::Stream => return Ok(Some(Value::None)),
            SOL_TIPC if name.cast_unsigned() == SocketOption::GroupJoin.number() => self.group(),
            SOL_TIPC => self.get_by_request(name.cast_unsigned())?,
            _ => return Err(Errno::NOPROTOOPT),
        };
        Ok(Some(Value::Integer(value)))
    }
}

/// Returns the 16-byte identity of a node (SIOCGETNODEID).
pub(crate) fn identity(node: u32) -> Result<[u8; 16], Errno> {
    let answer = control::ask(&Request::Identity { node }, &[])?;
    answer.bytes().first_chunk().copied().ok_or(Errno::PROTO)
}

/// Length of a link's name in bytes, including its terminating NUL.
pub(crate) const LINK_NAME_LEN: usize = 68;

/// Returns the name of a link, padded with NULs (SIOCGETLINKNAME).
pub(crate) fn link_name(node: u32, bearer: u32) -> Result<[u8; LINK_NAME_LEN], Errno> {
    let bearer = bearer & 0xffff;
    let answer = control::ask(&Request::LinkName { node, bearer }, &[])?;
    let mut name = [0; LINK_NAME_LEN];
    for (place, byte) in name[..LINK_NAME_LEN - 1].iter_mut().zip(answer.bytes()) {
        *place = *byte;
    }
    Ok(name)
}
