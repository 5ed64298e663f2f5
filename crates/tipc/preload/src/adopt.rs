//! Registers sockets that this process did not open: inherited across exec, or received through SCM_RIGHTS.

use std::ffi::c_int;

use crossway_sys::proc::is_unix_socket;
use crossway_sys::socket::peer_credentials;
use crossway_tipc_client::protocol::control::{Adopted, Reader, Request};

use crate::socket::Handle;
use crate::{control, ffi, table};

/// Registers every descriptor of the process that is a TIPC socket of the running tipcd.
pub(crate) fn inherited() {
    let Ok(entries) = std::fs::read_dir("/proc/self/fd") else { return };
    let numbers = entries.flatten().filter_map(|e| e.file_name().to_str()?.parse().ok());
    let all: Vec<c_int> = numbers.collect();
    for fd in all {
        adopt(fd);
    }
}

/// Registers a descriptor if it is a TIPC socket of the running tipcd.
pub(crate) fn adopt(fd: c_int) {
    let Some(borrowed) = ffi::borrow(fd) else { return };
    // tipcd created the socket pairs of TIPC sockets. Few processes have a UNIX socket created by another process.
    let Some(maker) = is_unix_socket(borrowed).then(|| peer_credentials(borrowed).ok()).flatten()
    else {
        return;
    };
    if maker.pid == std::process::id() || control::is_hidden(fd) {
        return;
    }
    if control::tipcd() != Some(maker.pid) {
        return;
    }
    let Ok(mut answer) = control::show(&Request::Adopt, borrowed) else { return };
    let adopted = Adopted::decode(&mut Reader::new(answer.bytes()));
    let (Some(adopted), Some(region)) = (adopted, answer.fds.pop()) else { return };
    let Some(region) = control::map_region(region, adopted.slots) else { return };
    let Adopted { opened, kind, .. } = adopted;
    if control::has_slot(region, opened.slot) {
        let handle = Handle { fd, kind, region, slot: opened.slot, token: opened.token };
        ffi::without_signals(|| table::put(&handle));
    }
}
