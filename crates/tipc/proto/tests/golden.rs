//! Tests with frames captured from kernels: each frame can be decoded, and encoding the result reproduces the same
//! bytes.

use crossway_tipc_proto::wire::{Frame, Message, View};

const FRAMES: &str = include_str!("golden/linux-6.1.hex");

fn frames() -> impl Iterator<Item = (&'static str, Vec<u8>)> {
    FRAMES.lines().filter(|line| !line.starts_with('#')).map(|line| {
        let (label, hex) =
            line.rsplit_once(' ').expect("a line contains a label and the bytes of a frame");
        let bytes = hex.as_bytes().chunks(2);
        (
            label,
            bytes
                .map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap())
                .collect(),
        )
    })
}

/// Returns the significant bytes of a frame: sets the bytes after the interface name's NUL in RESET and ACTIVATE, which
/// kernels do not initialise, to a fixed value.
fn content(bytes: &[u8]) -> Vec<u8> {
    let mut content = bytes.to_vec();
    let view = View::parse(bytes).unwrap();
    if matches!(Frame::decode(bytes), Ok(Frame::Link(_))) && view.msg_type() != 0 {
        let name = &mut content[view.header_len()..][..16];
        let end = name.iter().position(|&b| b == 0).unwrap();
        name[end..].fill(0);
    }
    content
}

#[test]
fn every_kernel_frame_is_decoded_and_encoded_bit_for_bit() {
    let mut count = 0;
    for (label, bytes) in frames() {
        let frame = Frame::decode(&bytes).unwrap_or_else(|e| panic!("{label}: {e}"));
        let mut out = Vec::new();
        frame.encode(&mut out);
        assert_eq!(out, content(&bytes), "{label}: {frame:x?}");
        count += 1;
    }
    assert!(count >= 60, "the fixture contains only {count} frames");
}

#[test]
fn messages_inside_kernel_bundles_and_name_lists_are_legal() {
    let (mut bundled, mut names) = (0, 0);
    for (label, bytes) in frames() {
        match Frame::decode(&bytes) {
            Ok(Frame::Sequenced(_, Message::Bundle(bundle))) => {
                let items: Vec<_> = bundle.items().collect();
                assert_eq!(items.len(), usize::from(bundle.count), "{label}");
                for item in items {
                    let view = item.unwrap_or_else(|e| panic!("{label}: {e}"));
                    Message::decode(&view).unwrap_or_else(|e| panic!("{label}: inner {e}"));
                    bundled += 1;
                }
            }
            Ok(Frame::Sequenced(_, Message::Names(message))) => {
                for item in message.items() {
                    assert!(item.range.is_valid(), "{label}: {item:?}");
                    names += 1;
                }
            }
            _ => {}
        }
    }
    assert!(
        bundled > 1 && names > 5,
        "the fixture contains only {bundled} bundled messages and {names} bindings"
    );
}

#[test]
fn a_frame_cut_short_anywhere_is_refused_or_still_legal_but_never_a_panic() {
    for (_, bytes) in frames() {
        for len in 0..bytes.len().min(128) {
            assert!(Frame::decode(&bytes[..len]).is_err());
        }
        // Miri is several hundred times slower; every tenth bit exercises the same code.
        let step = if cfg!(miri) { 10 } else { 1 };
        for bit in (0..bytes.len().min(64) * 8).step_by(step) {
            let mut bent = bytes.clone();
            bent[bit / 8] ^= 1 << (bit % 8);
            if let Ok(frame) = Frame::decode(&bent) {
                let mut out = Vec::new();
                frame.encode(&mut out);
                assert_eq!(Frame::decode(&out).as_ref(), Ok(&frame));
            }
        }
    }
}
