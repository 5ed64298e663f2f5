//! The list of all mechanisms, one line each.
//!
//! Code that works with any mechanism implements [`Visitor`] and is instantiated once per mechanism.

use crate::mechanisms;
use crate::{Caps, Carrier, Mechanism, Probe};

/// Code that works with any mechanism; the mechanism is chosen at run time.
pub trait Visitor {
    /// The result of the code.
    type Out;
    /// Runs the code with mechanism `M`.
    fn visit<M: Mechanism>(self) -> Self::Out;
}

/// The properties of a mechanism that are known without using it.
#[derive(Clone, Copy)]
pub struct Entry {
    /// The stable id, [`Mechanism::ID`], as in plans and records.
    pub id: &'static str,
    /// A one-line description for users.
    pub about: &'static str,
    /// What carries the mechanism's messages.
    pub carrier: Carrier,
    /// The capabilities of the mechanism.
    pub caps: fn() -> Caps,
    /// How to raise the limit of the mechanism's message size on this machine ([`Mechanism::remedy_for_size`]).
    pub remedy_for_size: fn(usize) -> Option<String>,
    /// Tests whether the mechanism works here.
    pub probe: fn() -> Probe,
}

macro_rules! registry {
    ($($module:ident :: $name:ident),* $(,)?) => {
        /// All mechanisms, in display order. Were it a constant, every crate that looks at it would compile all probes again.
        pub static ALL: &[Entry] = &[$(Entry {
            id: <mechanisms::$module::$name as Mechanism>::ID,
            about: <mechanisms::$module::$name as Mechanism>::ABOUT,
            carrier: <mechanisms::$module::$name as Mechanism>::CARRIER,
            caps: <mechanisms::$module::$name as Mechanism>::caps,
            remedy_for_size: <mechanisms::$module::$name as Mechanism>::remedy_for_size,
            probe: <mechanisms::$module::$name as Mechanism>::probe,
        }),*];

        /// Runs `visitor` with the mechanism `id`. Returns `None` if there is no such mechanism.
        pub fn dispatch<V: Visitor>(id: &str, visitor: V) -> Option<V::Out> {
            $(if id == <mechanisms::$module::$name as Mechanism>::ID {
                return Some(visitor.visit::<mechanisms::$module::$name>());
            })*
            None
        }
    };
}

/// Calls a macro with all mechanisms, as `module::Type`. A line here adds a mechanism everywhere, including the
/// conformance suite.
#[macro_export]
macro_rules! for_every_mechanism {
    ($then:ident) => {
        $then! {
            pipe::Pipe,
            fifo::Fifo,
            pty::Pty,
            uds_stream::UdsStream,
            uds_dgram::UdsDgram,
            uds_seqpacket::UdsSeqpacket,
            tcp::Tcp,
            tcp_nodelay::TcpNodelay,
            tcp_zerocopy::TcpZerocopy,
            mptcp::Mptcp,
            smc::Smc,
            udp::Udp,
            udp::UdpLite,
            sctp::Sctp,
            sctp::SctpNodelay,
            vsock::Vsock,
            netlink::Netlink,
            packet::Packet,
            af_xdp::AfXdp,
            tipc_kernel::TipcKernelStream,
            tipc_kernel::TipcKernelSeqpacket,
            tipc_kernel::TipcKernelRdm,
            tipc_kernel::TipcKernelDgram,
            tipc_kernel::TipcKernelMulticast,
            tipc_node::TipcNodeStream,
            tipc_node::TipcNodeSeqpacket,
            tipc_node::TipcNodeRdm,
            tipc_node::TipcNodeDgram,
            posix_mq::PosixMq,
            sysv_mq::SysvMq,
            signal::Signal,
            vmsplice::Vmsplice,
            splice::Splice,
            cma::Cma,
            userfaultfd::Userfaultfd,
            binder::Binder,
            memfd::Memfd,
            uring_pipe::UringPipe,
            uring_uds::UringUds,
            uring_tcp::UringTcp,
            uring_multishot::UringMultishot,
            uring_msg::UringMsg,
            shm_futex::ShmFutex,
            shm_futex::ShmHuge,
            shm_futex::ShmSecret,
            shm_waitv::ShmWaitv,
            shm_spin::ShmSpin,
            shm_eventfd::ShmEventfd,
            shm_pipe::ShmPipe,
            sysv_shm::SysvShm,
            posix_shm::PosixShm,
            linx::LinxUds,
            linx::LinxFifo,
            linx::LinxShm,
            linx_link::LinxTcp,
            linx_link::LinxTipc,
        }
    };
}

for_every_mechanism!(registry);

/// Finds a mechanism by its id; `None` if there is no such mechanism.
pub fn find(id: &str) -> Option<&'static Entry> {
    ALL.iter().find(|e| e.id == id)
}
