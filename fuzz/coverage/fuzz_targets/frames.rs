//! Fuzz target for frames from the network: a frame that is accepted is unchanged after it was encoded and decoded
//! again.
#![no_main]

use crossway_tipc_proto::wire::{Frame, Message};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(frame) = Frame::decode(bytes) else { return };
    if let Frame::Sequenced(_, Message::Bundle(bundle)) = &frame {
        for item in bundle.items().flatten() {
            let _ = Message::decode(&item);
        }
    }
    let mut out = Vec::new();
    frame.encode(&mut out);
    assert_eq!(Frame::decode(&out).as_ref(), Ok(&frame));
});
