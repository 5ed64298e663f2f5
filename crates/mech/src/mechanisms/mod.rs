//! One file per mechanism, or per group of closely related ones. What several of them share is in
//! [`building_blocks`](crate::building_blocks).

pub mod cma;
pub mod fifo;
pub mod linx;
pub mod linx_link;
pub mod memfd;
pub mod mptcp;
pub mod pipe;
pub mod posix_mq;
pub mod posix_shm;
pub mod sctp;
pub mod shm_eventfd;
pub mod shm_futex;
pub mod shm_pipe;
pub mod shm_spin;
pub mod signal;
pub mod smc;
pub mod splice;
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

// For crossway-channel, which takes over the halves of a connection.
pub use crate::building_blocks::connection;
