//! What the controller and its roles say to each other: JSON behind a 32-bit big-endian length, descriptors attached to
//! its first byte.
//!
//! A role reads orders from its standard input. If that is a socket, answers go back through it and offers may carry
//! descriptors; otherwise (a role behind a command prefix that only passes bytes, such as ssh) answers go to standard
//! output and offers are words only.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use crossway_mech::{Facts, Offer};
use crossway_sys::clock::Ticker;
use crossway_sys::{OsError, fdpass};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::inputs::Inputs;

/// Longest message in bytes; an exchange trial's stamps are the longest ones.
pub(crate) const LONGEST: usize = 64 << 20;

/// What goes wrong on the control channel.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The other side is gone.
    #[error("the other side closed the control channel")]
    Closed,
    /// It says what cannot be understood.
    #[error("the control channel carried nonsense: {0}")]
    Nonsense(String),
    /// Descriptors cannot go where only bytes go.
    #[error(
        "a role that is reached by bytes only cannot be given descriptors; use a mechanism that crosses hosts"
    )]
    NoDescriptors,
    /// A system call failed.
    #[error("control channel: {0}")]
    Os(#[from] OsError),
}

/// What a role is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// Sends one way.
    Sender,
    /// Receives one way.
    Receiver,
    /// Asks and waits for the answer.
    Client,
    /// Answers.
    Server,
}

impl Part {
    /// Its name in records.
    pub fn name(self) -> &'static str {
        match self {
            Part::Sender => "sender",
            Part::Receiver => "receiver",
            Part::Client => "client",
            Part::Server => "server",
        }
    }
}

/// All that a role is told of its case.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Task {
    /// The mechanism's id.
    pub mechanism: String,
    /// The case.
    pub inputs: Inputs,
    /// What it is.
    pub part: Part,
    /// Its number among those of the same part; senders put it into their sequence numbers.
    pub index: u16,
    /// The logical CPU to run on.
    pub cpu: Option<u32>,
    /// How many listeners it makes.
    pub listeners: u16,
    /// How many of the other part feed or drain it.
    pub peers: u16,
    /// The number of its first peer.
    pub first_peer: u16,
    /// The calibrated clock for timed loops; null: calibrate one (another host).
    pub ticker: Option<Ticker>,
    /// Bytes over which the sender rotates its messages.
    pub working_set_bytes: u64,
    /// The run's directory of leases; null on another host.
    pub leases: Option<PathBuf>,
    /// The address a listener binds to; null: loopback.
    pub bind_address: Option<std::net::IpAddr>,
}

/// An [`Offer`]'s words and the names of its descriptors, in the order in which they are attached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OfferText {
    /// Its words.
    pub words: BTreeMap<String, String>,
    /// Its descriptors' names.
    pub fds: Vec<String>,
}

/// From the controller to a role. Each is answered by one [`Answer`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "order")]
pub enum Order {
    /// Become this; answered by `Offers`.
    Begin {
        /// The task.
        task: Box<Task>,
    },
    /// Make the connecting ends; answered by `Opened`.
    Connect {
        /// One per channel.
        offers: Vec<OfferText>,
    },
    /// Complete the listening ends; answered by `Opened`.
    Accept,
    /// Prove one direction of one channel with random content; answered by `Verified`.
    Verify {
        /// The channel's number at this role.
        channel: u16,
        /// Whether this role sends.
        sends: bool,
        /// The sender's index, part of the content's seed.
        sender: u16,
    },
    /// Allocate and touch what the window needs; answered by `Ready`.
    Prepare {
        /// The window.
        window: Window,
    },
    /// Do it now; answered by `Done`.
    Go {
        /// On CLOCK_MONOTONIC: the first intended instant of paced windows, the end of timed ones.
        at_ns: u64,
    },
    /// Close everything; answered by `Closed`, then the role ends.
    Close,
}

/// One stretch of work, for warming up or measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// Number of the window within the trial.
    pub number: u32,
    /// Messages (round trips, exchanges) to do; 0 in timed windows.
    pub messages: u64,
    /// Messages per timed sample.
    pub batch: u32,
    /// Whether it counts.
    pub measured: bool,
}

/// From a role to the controller.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "answer")]
pub enum Answer {
    /// The offers of the listeners, descriptors attached in order.
    Offers {
        /// One per listener.
        offers: Vec<OfferText>,
        /// What a reader of the figures should know.
        warnings: Vec<String>,
    },
    /// All channels are open.
    Opened {
        /// Values read back.
        facts: Facts,
    },
    /// The direction was proved, as far as this end can tell.
    Verified {
        /// Messages that went over.
        messages: u32,
        /// CRC-32 over their CRC-32s.
        crc: u32,
    },
    /// Prepared.
    Ready,
    /// The window is over.
    Done {
        /// What came of it.
        outcome: Box<Outcome>,
    },
    /// Closed.
    Closed,
    /// It went wrong; the role ends.
    Failed {
        /// What, in one sentence.
        reason: String,
        /// The mechanism cannot do what the case asks: nothing broke.
        unsupported: bool,
    },
}

/// What one role saw in one window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// First act on CLOCK_MONOTONIC, nanoseconds.
    pub start_ns: u64,
    /// The first receipt; null where it was not taken.
    pub first_receipt_ns: Option<u64>,
    /// Last act.
    pub end_ns: u64,
    /// Messages sent (round trips, exchanges).
    pub sent: u64,
    /// Messages received.
    pub received: u64,
    /// Payload bytes received.
    pub bytes: u64,
    /// Messages out of order.
    pub out_of_order: u64,
    /// Messages with wrong content.
    pub corrupt: u64,
    /// Messages that never came.
    pub missing: u64,
    /// User CPU time, nanoseconds.
    pub user_ns: u64,
    /// System CPU time, nanoseconds.
    pub system_ns: u64,
    /// Voluntary context switches.
    pub switches_voluntary: u64,
    /// Involuntary context switches.
    pub switches_involuntary: u64,
    /// Minor faults.
    pub faults_minor: u64,
    /// Major faults.
    pub faults_major: u64,
    /// Hardware counters.
    pub counters: Counters,
    /// The third process that works for the channel, where there is one.
    #[serde(default)]
    pub server: Option<ServerUse>,
    /// Histograms by span: HDR V2, base64, nanoseconds.
    pub histograms: Vec<(crate::record::Span, String)>,
    /// Instants on CLOCK_MONOTONIC that the controller pairs with the peer's: begin of closing at the client, end of
    /// closing at the server.
    pub stamps: Vec<u64>,
    /// Open-loop pacing.
    pub pacing: Option<PaceSeen>,
    /// Longest time between two messages, nanoseconds.
    pub longest_wait_ns: Option<u64>,
    /// Messages received per sender.
    pub shares: Vec<u64>,
    /// What the ends know once messages have gone through them.
    #[serde(default)]
    pub facts: crossway_mech::Facts,
}

/// What a process that works for both ends used during a role's window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerUse {
    /// The process.
    pub pid: u32,
    /// Its CPU time, nanoseconds; null where it could not be read.
    pub cpu_ns: Option<u64>,
}

/// Hardware counters of a role; null where there are none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// CPU cycles.
    pub cycles: Option<u64>,
    /// Instructions.
    pub instructions: Option<u64>,
    /// Cache misses.
    pub cache_misses: Option<u64>,
    /// Why they are null.
    pub missing: Option<String>,
}

/// A paced sender's account.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PaceSeen {
    /// Bursts intended.
    pub bursts: u64,
    /// Bursts begun late.
    pub late_bursts: u64,
    /// End of the last burst minus its intended start.
    pub drift_ns: i64,
}

/// One end of a control channel.
#[derive(Debug)]
pub struct Wire {
    from: OwnedFd,
    to: OwnedFd,
    passes_fds: bool,
}

impl Wire {
    /// Over a UNIX socket: descriptors go too.
    pub fn socket(socket: OwnedFd) -> Result<Wire, ControlError> {
        let to = socket.try_clone().map_err(|e| OsError::new("dup", "control socket", e))?;
        Ok(Wire { from: socket, to, passes_fds: true })
    }

    /// Over a pair of byte streams: words only.
    pub fn bytes(from: OwnedFd, to: OwnedFd) -> Wire {
        Wire { from, to, passes_fds: false }
    }

    /// What polls readable when the other side said something or is gone.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.from.as_fd()
    }

    /// Says something, with descriptors.
    pub fn say(
        &mut self,
        what: &impl Serialize,
        fds: &[BorrowedFd<'_>],
    ) -> Result<(), ControlError> {
        let body = serde_json::to_vec(what).map_err(|e| ControlError::Nonsense(e.to_string()))?;
        let mut frame = (body.len() as u32).to_be_bytes().to_vec();
        frame.extend(body);
        if !self.passes_fds {
            if !fds.is_empty() {
                return Err(ControlError::NoDescriptors);
            }
            let fd = self.to.try_clone().map_err(|e| OsError::new("dup", "control stream", e))?;
            return std::fs::File::from(fd)
                .write_all(&frame)
                .map_err(|e| OsError::new("write", "control stream", e).into());
        }
        let mut sent = fdpass::send(&self.to, &frame, fds).map_err(gone)?;
        while sent < frame.len() {
            sent += fdpass::send(&self.to, &frame[sent..], &[]).map_err(gone)?;
        }
        Ok(())
    }

    /// Hears what the other side says, and the descriptors that came along; waits for ever.
    pub fn hear<T: DeserializeOwned>(&mut self) -> Result<(T, Vec<OwnedFd>), ControlError> {
        let mut fds = Vec::new();
        let mut length = [0; 4];
        self.read_exactly(&mut length, &mut fds)?;
        let length = u32::from_be_bytes(length) as usize;
        if length > LONGEST {
            return Err(ControlError::Nonsense(format!("a message of {length} bytes")));
        }
        let mut body = vec![0; length];
        self.read_exactly(&mut body, &mut fds)?;
        let what =
            serde_json::from_slice(&body).map_err(|e| ControlError::Nonsense(e.to_string()))?;
        Ok((what, fds))
    }

    fn read_exactly(
        &mut self,
        bytes: &mut [u8],
        fds: &mut Vec<OwnedFd>,
    ) -> Result<(), ControlError> {
        let mut have = 0;
        while have < bytes.len() {
            let n = if self.passes_fds {
                fdpass::recv(&self.from, &mut bytes[have..], fds).map_err(gone)?
            } else {
                let fd = self.from.try_clone().map_err(|e| OsError::new("dup", "", e))?;
                std::fs::File::from(fd)
                    .read(&mut bytes[have..])
                    .map_err(|e| OsError::new("read", "control stream", e))?
            };
            if n == 0 {
                return Err(ControlError::Closed);
            }
            have += n;
        }
        Ok(())
    }
}

fn gone(error: OsError) -> ControlError {
    use std::io::ErrorKind::{BrokenPipe, ConnectionReset};
    match error.source.kind() {
        BrokenPipe | ConnectionReset => ControlError::Closed,
        _ => ControlError::Os(error),
    }
}

/// Splits offers into text and descriptors.
pub fn offers_to_text(offers: Vec<Offer>) -> (Vec<OfferText>, Vec<OwnedFd>) {
    let mut all = Vec::new();
    let texts = offers
        .into_iter()
        .map(|offer| {
            let mut names = Vec::new();
            for (name, fd) in offer.fds {
                names.push(name);
                all.push(fd);
            }
            OfferText { words: offer.words, fds: names }
        })
        .collect();
    (texts, all)
}

/// Joins text and descriptors to offers.
pub fn offers_from_text(
    texts: Vec<OfferText>,
    fds: Vec<OwnedFd>,
) -> Result<Vec<Offer>, ControlError> {
    let mut fds = fds.into_iter();
    texts
        .into_iter()
        .map(|text| {
            let mut offer = Offer { words: text.words, fds: Vec::new() };
            for name in text.fds {
                let fd = fds.next().ok_or_else(|| {
                    ControlError::Nonsense(format!("the descriptor '{name}' did not arrive"))
                })?;
                offer.fds.push((name, fd));
            }
            Ok(offer)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn offers_cross_with_their_descriptors_in_order() {
        let (a, b) = UnixStream::pair().unwrap();
        let (mut a, mut b) = (Wire::socket(a.into()).unwrap(), Wire::socket(b.into()).unwrap());
        let (x, y) = UnixStream::pair().unwrap();
        let offers = vec![
            Offer::new().with_word("path", "/x").with_fd("ring", x.into()),
            Offer::new().with_fd("bell", y.into()),
        ];
        let (texts, fds) = offers_to_text(offers);
        let borrowed: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
        a.say(&Order::Connect { offers: texts }, &borrowed).unwrap();
        let (order, fds) = b.hear::<Order>().unwrap();
        let Order::Connect { offers } = order else { panic!("{order:?}") };
        let offers = offers_from_text(offers, fds).unwrap();
        assert_eq!(offers[0].words["path"], "/x");
        assert_eq!(offers[0].fds[0].0, "ring");
        assert_eq!(offers[1].fds[0].0, "bell");
    }

    #[test]
    fn a_closed_or_talking_nonsense_side_is_an_error_and_no_hang() {
        let (a, b) = UnixStream::pair().unwrap();
        let mut wire = Wire::socket(b.into()).unwrap();
        (&a).write_all(&[0, 0, 0, 2, b'{', b']']).unwrap();
        assert!(matches!(wire.hear::<Order>(), Err(ControlError::Nonsense(_))));
        (&a).write_all(&[0xff; 4]).unwrap();
        assert!(matches!(wire.hear::<Order>(), Err(ControlError::Nonsense(_))));
        drop(a);
        assert!(matches!(wire.hear::<Order>(), Err(ControlError::Closed)));
    }

    #[test]
    fn descriptors_are_refused_where_only_bytes_go() {
        let (a, b) = UnixStream::pair().unwrap();
        let spare = a.try_clone().unwrap();
        let mut wire = Wire::bytes(a.into(), b.into());
        let said = wire.say(&Order::Accept, &[spare.as_fd()]);
        assert!(matches!(said, Err(ControlError::NoDescriptors)));
    }
}
