//! Tests that a mechanism that damages messages never gets a figure, and that the end of a stream does not depend on an
//! answer that could be lost.

use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use crossway_mech::mechanisms::udp::Udp;
use crossway_mech::mechanisms::uds_seqpacket::UdsSeqpacket;
use crossway_mech::{
    Bind, Caps, Carrier, Deadline, Listener, Mechanism, OpenError, Probe, RecvError, Rx, Spec, Wait,
};

use super::*;
use crate::control::{OfferText, Outcome, Part, Task};
use crossway_records::inputs::{Inputs, Workload};

/// Number of messages that all damaging ends in this process have received. `DAMAGED` is the number, counted from 1, of
/// the message to damage.
static RECEIVED: AtomicU64 = AtomicU64::new(0);
static DAMAGED: AtomicU64 = AtomicU64::new(u64::MAX);

/// A correct mechanism whose receiving end flips one bit of one message.
struct Damaging;

struct DamagingRx(<UdsSeqpacket as Mechanism>::Rx);

struct DamagingListener(<UdsSeqpacket as Mechanism>::Listener);

impl Mechanism for Damaging {
    const ID: &'static str = "damaging";
    const ABOUT: &'static str = "flips a bit";
    const CARRIER: Carrier = UdsSeqpacket::CARRIER;
    type Tx = <UdsSeqpacket as Mechanism>::Tx;
    type Rx = DamagingRx;
    type Listener = DamagingListener;

    fn caps() -> Caps {
        UdsSeqpacket::caps()
    }

    fn probe() -> Probe {
        UdsSeqpacket::probe()
    }

    fn listen(spec: &Spec) -> Result<(Self::Listener, Offer), OpenError> {
        let (listener, offer) = UdsSeqpacket::listen(spec)?;
        Ok((DamagingListener(listener), offer))
    }

    fn connect(spec: &Spec, offer: &mut Offer) -> Result<(Self::Tx, Self::Rx), OpenError> {
        let (tx, rx) = UdsSeqpacket::connect(spec, offer)?;
        Ok((tx, DamagingRx(rx)))
    }
}

impl Listener for DamagingListener {
    type Tx = <Damaging as Mechanism>::Tx;
    type Rx = DamagingRx;

    fn accept(&mut self, until: Deadline) -> Result<(Self::Tx, Self::Rx), OpenError> {
        let (tx, rx) = self.0.accept(until)?;
        Ok((tx, DamagingRx(rx)))
    }
}

impl Rx for DamagingRx {
    fn try_recv(&mut self, buf: &mut [u8]) -> Result<usize, RecvError> {
        self.0.try_recv(buf)
    }

    fn recv(&mut self, buf: &mut [u8], until: Deadline) -> Result<usize, RecvError> {
        let n = self.0.recv(buf, until)?;
        if RECEIVED.fetch_add(1, Ordering::Relaxed) + 1 == DAMAGED.load(Ordering::Relaxed) {
            buf[n - 1] ^= 0x10;
        }
        Ok(n)
    }
}

fn task(part: Part) -> Task {
    let inputs = Inputs {
        messages: Some(100),
        warmup_ms: 1,
        measure_ms: 1,
        seed: 5,
        ..Inputs::of(Workload::Throughput, 64, Wait::Block)
    };
    Task {
        mechanism: "damaging".to_owned(),
        script: None,
        inputs,
        part,
        index: 0,
        cpu: None,
        listeners: u16::from(part == Part::Receiver),
        peers: 1,
        first_peer: 0,
        ticker: Some(crossway_sys::clock::Ticker::Monotonic),
        working_set_bytes: 1 << 16,
        leases: None,
        bind: Bind::default(),
    }
}

/// A role that runs in a thread, and the controller's connection to it.
struct Actor {
    wire: Wire,
    life: thread::JoinHandle<Result<(), RoleError>>,
}

impl Actor {
    fn start<M: Mechanism>(part: Part) -> Actor {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut wire = Wire::socket(theirs.into()).unwrap();
        let life = thread::spawn(move || live(Loops::begin_with::<M>(task(part))?, &mut wire));
        Actor { wire: Wire::socket(ours.into()).unwrap(), life }
    }

    fn order(&mut self, order: Order) {
        self.wire.say(&order, &[]).unwrap();
    }

    fn prepare(&mut self) {
        let window = Window { number: 1, messages: 100, batch: 1, measured: true, open: false };
        self.order(Order::Prepare { window });
        assert!(matches!(self.answer(), Answer::Ready));
    }

    fn answer(&mut self) -> Answer {
        self.wire.hear::<Answer>().unwrap().0
    }
}

/// Opens a channel between a sender and a receiver.
fn open<M: Mechanism>() -> (Actor, Actor) {
    let (mut sender, mut receiver) =
        (Actor::start::<M>(Part::Sender), Actor::start::<M>(Part::Receiver));
    let Answer::Offers { offers, .. } = receiver.answer() else { panic!("no offers") };
    assert!(matches!(sender.answer(), Answer::Offers { .. }));
    let offers: Vec<OfferText> = offers;
    sender.order(Order::Connect { offers });
    receiver.order(Order::Accept);
    assert!(matches!(sender.answer(), Answer::Opened { .. }));
    assert!(matches!(receiver.answer(), Answer::Opened { .. }));
    (sender, receiver)
}

fn measure(sender: &mut Actor, receiver: &mut Actor) -> Outcome {
    for actor in [&mut *receiver, &mut *sender] {
        actor.prepare();
    }
    for actor in [&mut *receiver, &mut *sender] {
        actor.order(Order::Go { at_ns: 0, phases_ns: Vec::new() });
    }
    assert!(matches!(sender.answer(), Answer::Done { .. }));
    let Answer::Done { outcome } = receiver.answer() else { panic!("not done") };
    *outcome
}

/// Verification and measuring are tested in one function, because all damaging ends of a process share a counter.
#[test]
fn one_flipped_bit_is_noticed_in_verification_and_in_measuring() {
    let (mut sender, mut receiver) = open::<Damaging>();
    DAMAGED.store(RECEIVED.load(Ordering::Relaxed) + 3, Ordering::Relaxed);
    receiver.order(Order::Verify { channel: 0, sends: false, sender: 0 });
    sender.order(Order::Verify { channel: 0, sends: true, sender: 0 });
    let error = receiver.life.join().unwrap().unwrap_err().to_string();
    assert!(error.contains("verification: message 2 ("), "{error}");
    assert!(error.contains("has wrong content from offset"), "{error}");
    drop(sender.wire);
    let _ = sender.life.join();

    let (mut sender, mut receiver) = open::<Damaging>();
    DAMAGED.store(u64::MAX, Ordering::Relaxed);
    let clean = measure(&mut sender, &mut receiver);
    assert_eq!((clean.received, clean.corrupt, clean.out_of_order), (100, 0, 0));
    DAMAGED.store(RECEIVED.load(Ordering::Relaxed) + 50, Ordering::Relaxed);
    let damaged = measure(&mut sender, &mut receiver);
    assert_eq!((damaged.received, damaged.corrupt), (100, 1));
}

#[test]
fn a_sender_whose_messages_may_be_lost_ends_by_order_and_not_by_an_answer() {
    let (mut sender, _receiver) = open::<Udp>();
    sender.prepare();
    sender.order(Order::Go { at_ns: 0, phases_ns: Vec::new() });
    sender.order(Order::Stop);
    let Answer::Done { outcome } = sender.answer() else { panic!("not done") };
    assert_eq!(outcome.sent, 100);
}
