//! Imports of captures, output of perf and NetPerfMeter traces: what becomes of them, and that damaged ones never panic.

use std::path::Path;

use crossway_observe::import::{Assembly, Format};
use crossway_observe::recording::{Direction, Head, Lost, Method, Operation, Recorder, Recording};
use etherparse::PacketBuilder;

fn import(folder: &Path, file: &[u8]) -> (Recording, Lost) {
    let format = Format::of(file).expect("a known format");
    let head = Head::new(
        "test",
        1,
        Method {
            name: format.name().to_owned(),
            cost_ns_per_call: None,
            cost_note: format.cost_note().to_owned(),
            blind_to: format.blind_to().to_owned(),
        },
    );
    let mut assembly = Assembly::new(Recorder::create(folder, head, false).unwrap());
    format.read(file, &mut assembly, || true).unwrap();
    let totals = assembly.finish().unwrap();
    let recording = Recording::read(folder).unwrap();
    assert!(recording.defects.is_empty(), "{:?}", recording.defects);
    (recording, totals.lost)
}

/// A TCP packet on the loopback interface.
fn tcp(ports: (u16, u16), sequence: u32, flags: &str, payload: usize) -> Vec<u8> {
    let mut builder = PacketBuilder::ethernet2([0; 6], [0; 6])
        .ipv4([127, 0, 0, 1], [127, 0, 0, 1], 64)
        .tcp(ports.0, ports.1, sequence, 1000);
    if flags.contains('S') {
        builder = builder.syn();
    }
    if flags.contains('A') {
        builder = builder.ack(1);
    }
    let mut packet = Vec::new();
    builder.write(&mut packet, &vec![b'x'; payload]).unwrap();
    packet
}

/// A pcap file with a packet every 100 us, of which at most `captured` bytes are kept.
fn pcap(packets: &[Vec<u8>], captured: usize) -> Vec<u8> {
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4_u32, 2 | 4 << 16, 0, 0, 65535, 1] {
        file.extend(word.to_le_bytes());
    }
    for (number, packet) in packets.iter().enumerate() {
        let kept = &packet[..packet.len().min(captured)];
        for word in [1000, number as u32 * 100, kept.len() as u32, packet.len() as u32] {
            file.extend(word.to_le_bytes());
        }
        file.extend(kept);
    }
    file
}

fn connection() -> Vec<Vec<u8>> {
    let (there, back) = ((5000, 80), (80, 5000));
    let mut udp = Vec::new();
    PacketBuilder::ethernet2([0; 6], [0; 6])
        .ipv6([0; 16], [0; 16], 64)
        .udp(40000, 53)
        .write(&mut udp, &[0; 77])
        .unwrap();
    vec![
        tcp(there, 0, "S", 0),
        tcp(back, 0, "SA", 0),
        tcp(there, 1, "A", 0),
        tcp(there, 1, "A", 64),
        tcp(back, 1, "A", 1000),
        // Sent again: no new bytes.
        tcp(back, 1, "A", 1000),
        tcp(there, 65, "A", 64),
        udp,
        vec![0; 30],
    ]
}

#[test]
fn a_capture_becomes_both_ends_of_its_connections_also_if_packets_are_cut() {
    let dir = tempfile::tempdir().unwrap();
    for captured in [65535, 68] {
        let file = pcap(&connection(), captured);
        let (recording, lost) = import(&dir.path().join(captured.to_string()), &file);
        let events: Vec<_> = recording
            .events
            .iter()
            .map(|e| (e.channel, e.operation, e.direction, e.size_bytes))
            .collect();
        let (send, receive) = (Operation::Send, Operation::Receive);
        let (there, back) = (Direction::Forward, Direction::Backward);
        let expected = [
            (Some(0), send, there, 64),
            (Some(0), receive, there, 64),
            (Some(0), send, back, 1000),
            (Some(0), receive, back, 1000),
            (Some(0), send, there, 64),
            (Some(0), receive, there, 64),
            (Some(1), send, there, 77),
            (Some(1), receive, there, 77),
        ];
        assert_eq!(events, expected, "{captured}");
        // The answer waited for the request, and the second request for the answer.
        assert_eq!(recording.events[2].after, Some(1));
        assert_eq!(recording.events[4].after, Some(1));
        assert_eq!(recording.events[2].at_ns - recording.events[0].at_ns, 100_000);
        assert_eq!(lost.not_a_channel, 1, "neither TCP nor UDP");
        let server = recording.head.processes.iter().find(|p| p.name == "server at 127.0.0.1:80");
        assert!(server.is_some(), "{:?}", recording.head.processes);
        assert_eq!(recording.head.channels[0].carrier, "tcp-local");
    }
}

const TRACE: &str = "\
     0.000 ( 0.029 ms): cat/7 read(fd: 3</lib/x.so>, buf: 0x7, count: 832)       = 832
         ? (         ): cat/8  ... [continued]: clone())                         = 
     1.000 ( 0.010 ms): cat/7 write(fd: 1<pipe:[94]>, buf: 0x7, count: 6)        = 6
     1.005 (         ): sh/8 read(fd: 4<pipe:[94]>, buf: 0x7, count: 6)       ...
     1.005 ( 0.020 ms): sh/8  ... [continued]: read())                           = 6
     1.100 ( 0.030 ms): sh/8 epoll_wait(epfd: 5, events: 0x1, maxevents: 8)      = 1
     1.200 ( 0.030 ms): sh/8 read(buf: 0x1, count: 8)                            = -1 EAGAIN (Resource temporarily unavailable)
";

const SCRIPT: &str = "\
             cat     7 [000]  3334.001000:  syscalls:sys_enter_write: fd: 0x00000001, buf: 0x5, count: 0x00000006
             cat     7 [000]  3334.001010:   syscalls:sys_exit_write: 0x6
              sh     8 [001]  3334.001020:   syscalls:sys_exit_read: 0x9
              sh     8 [001]  3334.002000:   syscalls:sys_enter_futex: uaddr: 0x7, op: 0x00000080, val: 0x0
              sh     8 [001]  3334.003000:   syscalls:sys_exit_futex: 0x0
";

#[test]
fn output_of_perf_becomes_calls_with_what_it_knows_of_their_descriptors() {
    let dir = tempfile::tempdir().unwrap();
    let (recording, lost) = import(&dir.path().join("trace"), TRACE.as_bytes());
    let calls: Vec<_> =
        recording.events.iter().map(|e| (e.operation, e.size_bytes, e.call_ns)).collect();
    let (send, receive, wait) = (Operation::Send, Operation::Receive, Operation::Wait);
    assert_eq!(calls, [(send, 6, 10_000), (receive, 6, 20_000), (wait, 0, 30_000)]);
    assert_eq!(recording.head.channels.len(), 1, "both ends of the pipe");
    assert_eq!((lost.not_a_channel, lost.not_understood), (1, 0));

    let (recording, lost) = import(&dir.path().join("script"), SCRIPT.as_bytes());
    let calls: Vec<_> =
        recording.events.iter().map(|e| (e.operation, e.size_bytes, e.call_ns)).collect();
    assert_eq!(calls, [(send, 6, 10_000), (wait, 0, 1_000_000)]);
    assert_eq!(recording.head.channels[0].name, "descriptor 1 of cat");
    assert_eq!(lost.not_understood, 1, "a return without its begin");
}

#[test]
fn a_netperfmeter_trace_becomes_sends_at_its_times() {
    let dir = tempfile::tempdir().unwrap();
    let trace = b"# delay size stream\n0.0 1000 0\n0.04 1500 1\n0.04 700\nnonsense\n";
    let (recording, lost) = import(&dir.path().join("r"), trace);
    let sends: Vec<_> =
        recording.events.iter().map(|e| (e.at_ns, e.size_bytes, e.channel)).collect();
    let expected = [(0, 1000, Some(0)), (40_000_000, 1500, Some(1)), (80_000_000, 700, Some(0))];
    assert_eq!(sends, expected);
    assert_eq!(lost.not_understood, 1);
}

#[test]
fn damaged_files_never_panic_and_unknown_ones_are_not_guessed() {
    let dir = tempfile::tempdir().unwrap();
    let capture = pcap(&connection(), 65535);
    let mut number = 0;
    for (whole, step) in [(capture.as_slice(), 97), (TRACE.as_bytes(), 31), (SCRIPT.as_bytes(), 29)]
    {
        for cut in (24..whole.len()).step_by(step) {
            number += 1;
            // A part is missing in the middle.
            let file = [&whole[..cut], whole.get(cut + 11..).unwrap_or_default()].concat();
            if Format::of(&file).is_some() {
                import(&dir.path().join(number.to_string()), &file);
            }
        }
    }
    for unknown in ["", "hello world\n", "{\"a\": 1}", "PAR1"] {
        assert_eq!(Format::of(unknown.as_bytes()), None, "{unknown}");
    }
}
