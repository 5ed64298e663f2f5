//! Anonymous pipes: two of them, one each way.

use crossway_sys::pipe::{PipeEnd, pipe};

use crate::building_blocks::byte_stream::{StreamRx, StreamTx};
use crate::building_blocks::complete::{self, Complete};
use crate::building_blocks::pipe_halves::{halves, pipe_caps, probe_pipe};
use crate::{Caps, Carrier, Family, Mechanism, Offer, OpenError, Probe, Spec, Transport};

/// The mechanism `pipe`, pipe(2): one write(2), one read(2) and two copies per message. The end of the peer shows as
/// EPIPE or as the end of the file.
#[derive(Debug)]
pub struct Pipe;

impl Mechanism for Pipe {
    const ID: &'static str = "pipe";
    const ABOUT: &'static str = "anonymous pipe, one each way (ipc-bench: pipe)";
    const CARRIER: Carrier = Carrier::new(Family::Pipe, Transport::Pipe);
    type Tx = StreamTx<PipeEnd>;
    type Rx = StreamRx<PipeEnd>;
    type Listener = Complete<Self::Tx, Self::Rx>;

    fn caps() -> Caps {
        pipe_caps()
    }

    fn probe() -> Probe {
        probe_pipe()
    }

    fn listen(spec: &Spec) -> Result<(Self::Listener, Offer), OpenError> {
        complete::listen(Self::ID, pipe()?, pipe()?, |write, read| halves(spec, write, read))
    }

    fn connect(spec: &Spec, offer: &mut Offer) -> Result<(Self::Tx, Self::Rx), OpenError> {
        complete::connect(Self::ID, offer, |write, read| halves(spec, write, read))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Listener;
    use crate::{Rx, Tx, Wait};

    /// Returns the number of read and write calls that this thread has made.
    fn calls() -> (u64, u64) {
        let text = std::fs::read_to_string("/proc/thread-self/io").unwrap();
        let number = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.trim().parse::<u64>().unwrap()
        };
        (number("syscr:"), number("syscw:"))
    }

    #[test]
    fn a_message_costs_one_call_at_each_end_however_the_ends_wait() {
        for wait in [Wait::Block, Wait::Spin, Wait::Hybrid { spin_us: 20 }] {
            let spec = Spec { wait, ..Spec::default() };
            let (mut listener, mut offer) = Pipe::listen(&spec).unwrap();
            let (mut tx, _rx) = Pipe::connect(&spec, &mut offer).unwrap();
            let (_tx, mut rx) = listener.accept(None).unwrap();
            let (before, again) = (calls(), calls());
            let looking = again.0 - before.0;
            let start = calls();
            for n in 0..100 {
                tx.send(&[n; 512], None).unwrap();
                rx.recv(&mut [0; 512], None).unwrap();
            }
            let end = calls();
            assert_eq!(end.0 - start.0 - looking, 100, "reads with {wait:?}");
            assert_eq!(end.1 - start.1, 100, "writes with {wait:?}");
        }
    }

    #[test]
    fn the_capacity_asked_for_holds_for_both_directions() {
        let spec = Spec { capacity_bytes: Some(200_000), ..Spec::default() };
        let (mut listener, mut offer) = Pipe::listen(&spec).unwrap();
        let (tx, rx) = Pipe::connect(&spec, &mut offer).unwrap();
        let (other_tx, other_rx) = listener.accept(None).unwrap();
        for facts in [tx.facts(), rx.facts(), other_tx.facts(), other_rx.facts()] {
            assert_eq!(facts["pipe_bytes"], 262_144);
        }
    }
}
