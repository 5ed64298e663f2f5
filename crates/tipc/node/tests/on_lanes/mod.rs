//! Starts a connection so that its data passes through lanes, for programs on a `tipcd` with `--lane-after 1`.

use std::time::{Duration, Instant};

use crossway_tipc_client::{Patience, Socket};

/// Time limit, long enough for a busy machine. It is only reached if there are no lanes.
const WATCHDOG: Duration = Duration::from_secs(120);

/// Whether data passes through lanes in both directions. A kernel's socket has no lanes, and counts as if it did.
fn all_on(socket: &Socket) -> bool {
    match socket {
        Socket::Kernel(_) => true,
        Socket::Node(socket) => {
            socket.lane_sleeps_and_wakes().is_some() && socket.down_lane_bells().is_some()
        }
    }
}

/// Exchanges messages until all lanes of both ends are in use. One end asks, and the other answers.
pub(crate) fn begin(socket: &Socket, asks: bool) {
    let end = Instant::now() + WATCHDOG;
    let send = |on: bool| {
        assert_eq!(socket.send(&[on.into()], None, Patience::Until(end)), Ok(1), "no lanes come");
    };
    let receive = || {
        let mut theirs = [0];
        assert_eq!(socket.recv(&mut theirs, Patience::Until(end)), Ok(1), "no lanes come");
        theirs[0] != 0
    };
    loop {
        let here = all_on(socket);
        let there = if asks {
            send(here);
            receive()
        } else {
            let there = receive();
            send(here);
            there
        };
        if here && there {
            return;
        }
    }
}
