//! Options and the two requests of ioctl.

use std::ffi::c_int;
use std::sync::atomic::Ordering;

use crossway_sys::Errno;
use crossway_tipc_client::Kind;
use crossway_tipc_client::protocol::control::{RECEIVE_OCTETS, Reader, Request};
use crossway_tipc_client::protocol::slot::Phase;

use crate::control;
use crate::socket::Handle;

const SOL_TIPC: c_int = 271;
const MCAST_BROADCAST: u32 = 133;
const MCAST_REPLICAST: u32 = 134;
const GROUP_JOIN: u32 = 135;
const GROUP_LEAVE: u32 = 136;
/// Options that are set to an integer: importance, source and destination droppable, connection time-out, no delay.
const WITH_INTEGER: [u32; 5] = [127, 128, 129, 130, 138];

/// SO_PASSPIDFD, SO_PASSSEC: control data that TIPC never has.
const PASS_PIDFD: c_int = 76;
const PASS_SECURITY: c_int = 34;
/// SO_SNDBUF and SO_RCVBUF begin with net.core.wmem_default and are at least this (socket(7)).
const SEND_BUFFER_DEFAULT: u64 = 212_992;
const BUFFER_MIN: u32 = 4_608;

/// Who is at the other end: of a TIPC socket nobody is known.
const NOBODY: [u8; 12] = [0, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255];

/// The value of an option.
pub(crate) enum Value {
    Integer(u32),
    Octets([u8; 12]),
    /// Nothing, and the length says so.
    None,
}

fn integer(value: Option<&[u8]>) -> Result<u32, Errno> {
    let octets = value.and_then(<[u8]>::first_chunk).ok_or(Errno::INVAL)?;
    Ok(u32::from_ne_bytes(*octets))
}

impl Handle {
    fn set_by_request(&self, name: u32, value: u32) -> Result<(), Errno> {
        control::ask(&Request::SetOption { token: self.token, name, value }, &[]).map(drop)
    }

    fn get_by_request(&self, name: u32) -> Result<u32, Errno> {
        let answer = control::ask(&Request::GetOption { token: self.token, name }, &[])?;
        Reader::new(answer.octets()).u32().ok_or(Errno::PROTO)
    }

    /// Sets an option. False for one that is the descriptor's own. `value` is `None` for NULL.
    pub(crate) fn set_option(
        &self,
        level: c_int,
        name: c_int,
        value: Option<&[u8]>,
        len: usize,
    ) -> Result<bool, Errno> {
        match level {
            libc::SOL_SOCKET => return self.set_socket_option(name, value),
            libc::IPPROTO_TCP if self.kind == Kind::Stream => return Ok(true),
            SOL_TIPC => {}
            _ => return Err(Errno::NOPROTOOPT),
        }
        let name = name.cast_unsigned();
        if WITH_INTEGER.contains(&name) {
            self.set_by_request(name, integer(value)?)?;
        } else if name == GROUP_JOIN {
            let octets = value.and_then(<[u8]>::first_chunk::<16>).ok_or(Errno::INVAL)?;
            let mut reader = Reader::new(octets);
            let mut word = || reader.u32().unwrap_or(0);
            let group = [word(), word(), word(), word()];
            control::ask(&Request::Join { token: self.token, group }, &[])?;
            self.set_group(group[0]);
        } else if value.is_some() || len != 0 {
            return Err(Errno::INVAL);
        } else if name == GROUP_LEAVE {
            control::ask(&Request::Leave { token: self.token }, &[])?;
            self.set_group(0);
        } else if matches!(name, MCAST_BROADCAST | MCAST_REPLICAST) {
            self.set_by_request(name, 0)?;
        } else {
            return Err(Errno::INVAL);
        }
        Ok(true)
    }

    fn set_socket_option(&self, name: c_int, value: Option<&[u8]>) -> Result<bool, Errno> {
        match name {
            libc::SO_RCVBUF | libc::SO_RCVBUFFORCE => {
                let octets = integer(value)?.saturating_mul(2).max(BUFFER_MIN);
                self.set_by_request(RECEIVE_OCTETS, octets)?;
            }
            // Of the descriptor's buffer depends when it polls writable.
            libc::SO_SNDBUF | libc::SO_SNDBUFFORCE => {
                let octets = integer(value)?.saturating_mul(2).max(BUFFER_MIN);
                self.send_buffer().store(octets.into(), Ordering::Release);
            }
            libc::SO_PASSCRED | PASS_SECURITY | PASS_PIDFD => {
                integer(value)?;
            }
            libc::SO_PEEK_OFF => return Err(Errno::OPNOTSUPP),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Reads an option. `None` for one that is the descriptor's own.
    pub(crate) fn option(&self, level: c_int, name: c_int) -> Result<Option<Value>, Errno> {
        let value = match level {
            libc::SOL_SOCKET => match name {
                libc::SO_TYPE => self.kind as u32,
                libc::SO_DOMAIN => libc::AF_TIPC.unsigned_abs(),
                libc::SO_PROTOCOL | libc::SO_PASSCRED | PASS_SECURITY | PASS_PIDFD => 0,
                libc::SO_ACCEPTCONN => u32::from(self.state().phase == Phase::Listening),
                libc::SO_ERROR => {
                    self.take_error().map_or(0, |errno| errno.raw_os_error().unsigned_abs())
                }
                libc::SO_RCVBUF => self.get_by_request(RECEIVE_OCTETS)?,
                libc::SO_SNDBUF => match self.send_buffer().load(Ordering::Acquire) {
                    0 => SEND_BUFFER_DEFAULT as u32,
                    set => set as u32,
                },
                libc::SO_PEERCRED => return Ok(Some(Value::Octets(NOBODY))),
                libc::SO_PEEK_OFF => return Err(Errno::OPNOTSUPP),
                _ => return Ok(None),
            },
            libc::IPPROTO_TCP if self.kind == Kind::Stream => return Ok(Some(Value::None)),
            SOL_TIPC if name.cast_unsigned() == GROUP_JOIN => self.group(),
            SOL_TIPC => self.get_by_request(name.cast_unsigned())?,
            _ => return Err(Errno::NOPROTOOPT),
        };
        Ok(Some(Value::Integer(value)))
    }
}

/// The 16 octets that name a node (SIOCGETNODEID).
pub(crate) fn identity(node: u32) -> Result<[u8; 16], Errno> {
    let answer = control::ask(&Request::Identity { node }, &[])?;
    answer.octets().first_chunk().copied().ok_or(Errno::PROTO)
}

/// Octets of a link's name, with its end.
pub(crate) const LINK_NAME_LEN: usize = 68;

/// The name of a link (SIOCGETLINKNAME).
pub(crate) fn link_name(node: u32, bearer: u32) -> Result<[u8; LINK_NAME_LEN], Errno> {
    let bearer = bearer & 0xffff;
    let answer = control::ask(&Request::LinkName { node, bearer }, &[])?;
    let mut name = [0; LINK_NAME_LEN];
    for (place, octet) in name[..LINK_NAME_LEN - 1].iter_mut().zip(answer.octets()) {
        *place = *octet;
    }
    Ok(name)
}
