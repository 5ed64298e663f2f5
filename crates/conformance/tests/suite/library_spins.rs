//! Tests that a receiver needs hardly any notifications while its client library spins. strace counts the
//! notifications.
//!
//! The test runs itself under strace twice, with few and with many round trips. The difference between the two counts
//! is the number of notifications in the additional round trips.

use std::process::Command;
use std::time::Duration;

use crossway_mech::mechanisms::tipc_node::{TipcNodeSeqpacket, TipcNodeStream};
use crossway_mech::{Mechanism, Probe, Rx, Spec, Tx, Wait};

use super::bench::{check, join, open, probe, start};
use super::peer::this_program;

/// Environment variable with the number of round trips that the program under strace makes.
const ROUND_TRIPS: &str = "CROSSWAY_SPINNING_ROUND_TRIPS";

/// Number of round trips after which both ends have their rings from the tipcd.
const FEW: u32 = 30;
const MANY: u32 = FEW + 120;

/// Pause before each message, long enough for the other end to begin to spin, even on a busy machine. Without it, an
/// answer often arrives before the end that waits for it has begun to spin.
const PAUSE: Duration = Duration::from_millis(10);

/// The calls by which the tipcd's client library notifies a receiver that does not spin.
const CALLS: &str = "trace=sendto,sendmsg";

/// Makes round trips in which both ends spin for longer than a round trip takes, even under strace.
fn ping_pong<M: Mechanism>(round_trips: u32) {
    let spec = Spec { wait: Wait::Hybrid { spin_us: 10_000_000 }, ..Spec::default() };
    let (mut near, mut far) = open::<M>(&spec);
    let echo = start("echo", move || {
        let mut buf = [0; 4];
        for _ in 0..round_trips {
            assert_eq!(far.rx.recv(&mut buf, None).unwrap(), 4);
            std::thread::sleep(PAUSE);
            far.tx.send(&buf, None).unwrap();
        }
        far
    });
    let mut buf = [0; 4];
    for n in 0..round_trips {
        std::thread::sleep(PAUSE);
        near.tx.send(&n.to_ne_bytes(), None).unwrap();
        assert_eq!(near.rx.recv(&mut buf, None).unwrap(), 4);
        assert_eq!(u32::from_ne_bytes(buf), n);
    }
    drop(join(echo));
}

/// Number of notifications that the calling test sends in `round_trips` round trips; an error if strace does not work
/// here.
fn calls_made(test: &str, round_trips: u32) -> Result<u64, String> {
    let table = tempfile::NamedTempFile::new().unwrap();
    let output = Command::new("strace")
        .args(["-f", "-c", "-U", "calls,name", "-e", CALLS, "-o"])
        .arg(table.path())
        .arg(std::fs::read_link(this_program()).unwrap())
        .args([test, "--exact"])
        .env(ROUND_TRIPS, round_trips.to_string())
        .output()
        .map_err(|error| format!("strace: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    let text = std::fs::read_to_string(table.path()).unwrap();
    if text.is_empty() {
        return Err(said.into_owned());
    }
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stdout));
    let total =
        text.lines().find_map(|line| line.trim().strip_suffix("total")?.trim().parse().ok());
    total.ok_or_else(|| format!("strace printed no total: {text}"))
}

/// Checks that messages usually need no notification while both ends wait in the hybrid way.
fn needs_no_notifications<M: Mechanism>() {
    if let Ok(round_trips) = std::env::var(ROUND_TRIPS) {
        let round_trips = round_trips.parse().unwrap();
        return check::<M>(move || ping_pong::<M>(round_trips));
    }
    if let Probe::Missing(missing) = probe::<M>() {
        eprintln!("SKIP {}: {missing}", M::ID);
        return;
    }
    let test = std::thread::current().name().expect("a test's thread has its name").to_owned();
    let both = calls_made(&test, FEW).and_then(|few| Ok((few, calls_made(&test, MANY)?)));
    let (few, many) = match both {
        Ok(both) => both,
        Err(why) => {
            eprintln!("SKIP {}: {why}; install strace, and allow processes to be traced", M::ID);
            return;
        }
    };
    // A round trip of two messages needs two notifications if no library spins. On a busy machine an end may begin to
    // spin too late.
    let more = many.saturating_sub(few);
    assert!(more < u64::from(MANY - FEW), "{}: {few} notifications, then {many}", M::ID);
}

#[test]
fn a_hybrid_round_trip_over_a_nodes_messages_needs_no_notification() {
    needs_no_notifications::<TipcNodeSeqpacket>();
}

#[test]
fn a_hybrid_round_trip_over_a_nodes_stream_needs_no_notification() {
    needs_no_notifications::<TipcNodeStream>();
}
