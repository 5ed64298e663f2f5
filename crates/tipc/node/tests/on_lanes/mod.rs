//! The beginning of a connection after which its data goes through lanes, of programs on a `tipcd` with `--lane-after 1`.

use std::time::{Duration, Instant};

use crossway_tipc_client::{Patience, Socket};

/// Long enough for a busy machine; reached only if lanes do not come.
const WATCHDOG: Duration = Duration::from_secs(120);

/// Whether data in both directions goes through lanes; a kernel's socket has none.
fn all_on(socket: &Socket) -> bool {
    match socket {
        Socket::Kernel(_) => true,
        Socket::Node(socket) => {
            socket.lane_sleeps_and_wakes().is_some() && socket.down_lane_bells().is_some()
        }
    }
}

/// Exchanges messages until all lanes of both ends are on. One end asks and the other answers.
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
