//! One file per mechanism, and the plumbing that some share.

mod arrival;
pub mod byte_stream;
pub mod cma;
mod complete;
pub mod connection;
pub mod datagram;
pub mod fifo;
pub mod memfd;
pub mod message_socket;
pub mod mptcp;
pub mod parcel;
pub mod pipe;
pub mod posix_mq;
mod queue_wait;
pub mod sctp;
pub mod shm_eventfd;
pub mod shm_futex;
pub mod shm_pipe;
pub mod shm_spin;
pub mod stream_socket;
pub mod sysv_mq;
pub mod sysv_shm;
pub mod tcp;
pub mod tcp_nodelay;
pub mod tipc_kernel;
pub mod tipc_kernel_connection;
pub mod tipc_kernel_message;
pub mod tipc_kernel_multicast;
pub mod tipc_node;
pub mod tipc_node_connection;
pub mod tipc_node_message;
pub mod tipc_port;
pub mod udp;
pub mod uds_dgram;
pub mod uds_seqpacket;
pub mod uds_stream;
pub mod uring_pipe;
pub mod uring_stream;
pub mod uring_tcp;
pub mod uring_uds;
pub mod vmsplice;
pub mod vsock;
mod waiting;

use crate::OpenError;

/// The version of what provides the kernel's own mechanisms.
fn kernel_version() -> String {
    format!("linux {}", crossway_sys::kernel::release())
}

/// The answer to a second accept where one offer makes one channel.
fn no_second_channel(mechanism: &'static str) -> OpenError {
    OpenError::Unsupported {
        mechanism,
        why: "one offer makes one channel; listen again for another".to_owned(),
    }
}
