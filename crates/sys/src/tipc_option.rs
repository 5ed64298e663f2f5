//! The socket options of level SOL_TIPC (linux/tipc.h, tipc(7)).

macro_rules! options {
    ($($(#[$doc:meta])* $name:ident = $number:literal,)*) => {
        /// A socket option of TIPC. All values are 32-bit numbers.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u32)]
        pub enum SocketOption {
            $($(#[$doc])* $name = $number,)*
        }

        impl SocketOption {
            /// All options, by their number.
            pub const ALL: [SocketOption; [$($number,)*].len()] = [$(SocketOption::$name,)*];
        }
    };
}

options! {
    /// The importance of the messages sent, 0 (low, the default) to 3 (critical): a full receiver or link refuses less
    /// important messages first.
    Importance = 127,
    /// 1: a message may be dropped if the link is congested; 0: the sender waits. The default is 1 for datagrams
    /// (`SOCK_DGRAM`), otherwise 0; streams do not have this option.
    SourceDroppable = 128,
    /// 1: a message that cannot be delivered is dropped; 0: it is returned to the sender. The default is 1 for
    /// `SOCK_DGRAM` and `SOCK_RDM`, otherwise 0.
    DestinationDroppable = 129,
    /// How long `connect` waits for an answer, in milliseconds; 8000 by default.
    ConnectTimeout = 130,
    /// Always 0, read only; Linux keeps it for old programs.
    NodeReceiveQueueDepth = 131,
    /// Number of messages in the receive queue, read only.
    ReceiveQueueDepth = 132,
    /// Multicasts are broadcast; has no value, write only.
    MulticastBroadcast = 133,
    /// Multicasts are sent as one copy to each node; has no value, write only.
    MulticastReplicast = 134,
    /// The group that the socket is in, 0 for none. It is set by joining.
    GroupJoin = 135,
    /// Leaves the group; has no value, write only.
    GroupLeave = 136,
    /// Number of bytes in the receive queue, read only.
    ReceiveQueueUsed = 137,
    /// 1: small writes to a stream are not merged. The default is 0.
    NoDelay = 138,
}

impl SocketOption {
    /// The option with this number; `None` if there is none.
    pub fn from_number(number: u32) -> Option<SocketOption> {
        Self::ALL.into_iter().find(|option| option.number() == number)
    }

    /// The option's number for setsockopt(2).
    pub const fn number(self) -> u32 {
        self as u32
    }

    /// Whether setting this option takes a number. The other options take no value, cannot be set, or, for
    /// [`GroupJoin`](SocketOption::GroupJoin), take a request.
    pub const fn takes_number(self) -> bool {
        match self {
            SocketOption::Importance
            | SocketOption::SourceDroppable
            | SocketOption::DestinationDroppable
            | SocketOption::ConnectTimeout
            | SocketOption::NoDelay => true,
            SocketOption::NodeReceiveQueueDepth
            | SocketOption::ReceiveQueueDepth
            | SocketOption::ReceiveQueueUsed
            | SocketOption::MulticastBroadcast
            | SocketOption::MulticastReplicast
            | SocketOption::GroupJoin
            | SocketOption::GroupLeave => false,
        }
    }

    /// Whether setting this option is a command without a value.
    pub const fn is_order(self) -> bool {
        matches!(
            self,
            SocketOption::MulticastBroadcast
                | SocketOption::MulticastReplicast
                | SocketOption::GroupLeave
        )
    }
}

#[cfg(test)]
mod tests {
    use super::SocketOption;

    #[test]
    fn the_numbers_are_those_of_linux() {
        let numbers: Vec<u32> = SocketOption::ALL.iter().map(|option| option.number()).collect();
        assert_eq!(numbers, (127..).take(numbers.len()).collect::<Vec<u32>>());
        assert_eq!(numbers[..12].last(), Some(&138), "up to TIPC_NODELAY");
        for option in SocketOption::ALL {
            assert_eq!(SocketOption::from_number(option.number()), Some(option));
            assert!(!(option.takes_number() && option.is_order()), "{option:?}");
        }
        assert_eq!(SocketOption::from_number(126), None);
        assert_eq!(SocketOption::from_number(127 + numbers.len() as u32), None);
    }
}
