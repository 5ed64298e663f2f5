//! The system calls that are recorded, by their numbers on this processor.

/// What a call does: `enum kind` of `bpf/recorder.bpf.c`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Kind {
    Send = 1,
    Receive = 2,
    SendMany = 3,
    ReceiveMany = 4,
    Sendfile = 5,
    Splice = 6,
    QueueSend = 7,
    SysvSend = 8,
    SysvReceive = 9,
    Wait = 10,
    Futex = 11,
    SendTo = 12,
    ReceiveFrom = 13,
    SendMessage = 14,
    ReceiveMessage = 15,
}

/// The calls; all others are ignored.
pub(super) const KINDS: &[(libc::c_long, Kind)] = &[
    (libc::SYS_read, Kind::Receive),
    (libc::SYS_readv, Kind::Receive),
    (libc::SYS_write, Kind::Send),
    (libc::SYS_writev, Kind::Send),
    (libc::SYS_vmsplice, Kind::Send),
    (libc::SYS_sendto, Kind::SendTo),
    (libc::SYS_recvfrom, Kind::ReceiveFrom),
    (libc::SYS_sendmsg, Kind::SendMessage),
    (libc::SYS_recvmsg, Kind::ReceiveMessage),
    (libc::SYS_sendmmsg, Kind::SendMany),
    (libc::SYS_recvmmsg, Kind::ReceiveMany),
    (libc::SYS_sendfile, Kind::Sendfile),
    (libc::SYS_splice, Kind::Splice),
    (libc::SYS_mq_timedsend, Kind::QueueSend),
    (libc::SYS_mq_timedreceive, Kind::Receive),
    (libc::SYS_msgsnd, Kind::SysvSend),
    (libc::SYS_msgrcv, Kind::SysvReceive),
    (libc::SYS_ppoll, Kind::Wait),
    (libc::SYS_pselect6, Kind::Wait),
    (libc::SYS_epoll_pwait, Kind::Wait),
    (libc::SYS_epoll_pwait2, Kind::Wait),
    (libc::SYS_io_uring_enter, Kind::Wait),
    (libc::SYS_futex, Kind::Futex),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_poll, Kind::Wait),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_select, Kind::Wait),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_epoll_wait, Kind::Wait),
];
