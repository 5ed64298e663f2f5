//! A server whose channel may be handed to another process at any time.

use std::time::{Duration, Instant};

use crossway_channel::{Channel, Listener, RecvError, SendError};

use super::stream::{Stream, check, fill};

/// Sends and receives until the client has closed (returns false) or another process asks for the channel (returns
/// true), but not before `least` messages have passed each way. An error means that the channel did not end normally.
pub(crate) fn serve(
    listener: &Listener,
    channel: &mut Channel,
    least: u64,
) -> Result<bool, RecvError> {
    // The counts are the positions of both streams when this process took over.
    let mut from_client = Stream::after(1, channel.receiver().sequence());
    let mut to_client = Stream::after(2, channel.sender().sequence());
    let mut waiting: Option<Vec<u8>> = None;
    let mut msg = [0; 4096];
    loop {
        let enough = from_client.count().min(to_client.count()) >= least;
        // Not while there is a message that has not been sent, because the other process would create it again.
        if waiting.is_none() && enough && listener.is_asked_to_hand_over() {
            return Ok(true);
        }
        let ready = waiting.take().unwrap_or_else(|| {
            let len = fill(&mut to_client, &mut msg);
            msg[..len].to_vec()
        });
        match channel.sender().try_send(&ready) {
            Ok(()) => {}
            Err(SendError::Full) => waiting = Some(ready),
            // What arrived before the end must still be received.
            Err(SendError::PeerClosed) => {}
            Err(error) => panic!("{error}"),
        }
        for _ in 0..16 {
            let now = Some(Instant::now() + Duration::from_micros(200));
            match channel.receiver().recv_in_place(now, |msg| check(&mut from_client, msg)) {
                Ok(()) => {}
                Err(RecvError::TimedOut) => break,
                Err(RecvError::Closed) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
    }
}
