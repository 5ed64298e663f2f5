//! Sends signals through a pair of sockets as bytes that the test writes in chunks of arbitrary sizes.

use std::io::Write;
use std::os::unix::net::UnixStream;

use crate::channel::frame::{FIRST, HEADER, Header, OUT_OF_BAND};
use crate::channel::{Assembly, Broken, Came, Filled, Pipe, StreamChannel};
use crate::{Signal, Spid};

fn sender() -> Spid {
    Spid::new(7).unwrap()
}

fn ends() -> (UnixStream, StreamChannel) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    (ours, StreamChannel::new(Pipe::Socket(theirs.into()), 1, false, None))
}

/// Returns the bytes of signal `number` on the channel. The signal has `size` bytes, and its payload depends on its
/// number.
fn frame(number: u32, size: usize, flags: u8) -> Vec<u8> {
    let size_field = size as u32;
    let header =
        Header { piece: size_field, size: size_field, from: sender(), to: 9, flags: FIRST | flags };
    let mut bytes = header.encode().to_vec();
    bytes.extend_from_slice(&number.to_ne_bytes());
    bytes.extend((4..size).map(|at| (at as u32 * 31 + number * 7) as u8));
    bytes
}

fn check(signal: &Signal, number: u32, size: usize) {
    assert_eq!((signal.number(), signal.size(), signal.sender()), (number, size, Some(sender())));
    assert_eq!(signal.as_bytes()[4..], frame(number, size, 0)[HEADER + 4..], "signal {number}");
}

/// Receives all signals that have arrived.
fn receive(channel: &mut StreamChannel, assembly: &mut Assembly) -> Vec<Signal> {
    let mut signals = Vec::new();
    loop {
        while let Some(Came::Signal(signal)) = channel.next(assembly).unwrap() {
            signals.push(signal);
        }
        if channel.fill(assembly, false).unwrap() == Filled::Nothing {
            return signals;
        }
    }
}

#[test]
fn signals_of_any_sizes_arrive_whole_in_order_however_they_are_chopped() {
    let (mut writer, mut channel) = ends();
    let mut assembly = Assembly::default();
    let mut state = 1_u32;
    let mut random = |below: usize| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as usize % below
    };
    let (mut sent, mut bytes, mut received, mut sizes) = (1, Vec::new(), 1, vec![0]);
    for _ in 0..400 {
        // Runs of signals of one size, some of which end with an exception.
        let size = [4, 600, 1024, 1500, 4100, 20_000, 65_536, 70_000][random(8)];
        for _ in 0..1 + random(6) {
            let size = if random(10) == 0 { size + random(5) } else { size };
            let flags = if random(10) == 0 { OUT_OF_BAND } else { 0 };
            bytes.extend(frame(sent, size, flags));
            sizes.push(size);
            sent += 1;
        }
        while !bytes.is_empty() && (bytes.len() > 150_000 || random(3) > 0) {
            let rest = bytes.split_off((1 + random(90_000)).min(bytes.len()));
            writer.write_all(&bytes).unwrap();
            bytes = rest;
            for signal in receive(&mut channel, &mut assembly) {
                check(&signal, received, sizes[received as usize]);
                received += 1;
                if random(3) > 0 {
                    assembly.give_back(signal.into_bytes());
                }
            }
        }
    }
    for chunk in bytes.chunks(50_000) {
        writer.write_all(chunk).unwrap();
        for signal in receive(&mut channel, &mut assembly) {
            check(&signal, received, sizes[received as usize]);
            received += 1;
        }
    }
    assert_eq!(received, sent);
    drop(writer);
    assert!(matches!(channel.fill(&mut assembly, false), Err(Broken::Ended)));
}

#[test]
fn signals_of_one_size_are_read_to_where_they_stay() {
    let (mut writer, mut channel) = ends();
    let mut assembly = Assembly::default();
    for number in 1..=2 {
        writer.write_all(&frame(number, 5000, 0)).unwrap();
        assert_eq!(receive(&mut channel, &mut assembly).len(), 1);
    }
    for number in 3..=40 {
        writer.write_all(&frame(number, 5000, 0)).unwrap();
        assert_eq!(channel.fill(&mut assembly, false).unwrap(), Filled::Something);
        assert_eq!(channel.buffered(), 0, "signal {number} is in the common buffer");
        let Some(Came::Signal(signal)) = channel.next(&mut assembly).unwrap() else {
            panic!("signal {number} has not arrived")
        };
        check(&signal, number, 5000);
        assembly.give_back(signal.into_bytes());
    }
}

#[test]
fn damage_behind_signals_of_one_size_is_noticed() {
    let (mut writer, mut channel) = ends();
    let mut assembly = Assembly::default();
    for number in 1..=3 {
        writer.write_all(&frame(number, 2000, 0)).unwrap();
        assert_eq!(receive(&mut channel, &mut assembly).len(), 1);
    }
    writer.write_all(&[0xFF; 3000]).unwrap();
    assert_eq!(channel.fill(&mut assembly, false).unwrap(), Filled::Something);
    assert!(matches!(channel.next(&mut assembly), Err(Broken::Damaged(_))));
    // Signal number 0.
    let (mut writer, mut channel) = ends();
    for number in [1, 2, 3, 0] {
        writer.write_all(&frame(number, 2000, 0)).unwrap();
        assert_eq!(channel.fill(&mut assembly, false).unwrap(), Filled::Something);
        assert_eq!(channel.next(&mut assembly).is_err(), number == 0);
    }
}
