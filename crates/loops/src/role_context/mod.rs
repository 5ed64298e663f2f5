//! The state of a role while it works, apart from its ends: its messages, its counters.

mod samples;

use std::num::NonZeroU64;
use std::time::Duration;

use crossway_mech::{Access, Boundaries, Caps, Facts, Offer, Reliability, Spec, Wait};
use crossway_sys::clock::Ticker;
use crossway_sys::{clock, proc};

pub use samples::Distribution;
pub(crate) use samples::Samples;

use crate::LoopError;
use crate::ends::Ends;
use crate::line_buffer::LineBuffer;
use crate::payload::{Checker, Source};
use crate::workload::replay::Player;
use crate::{Part, Task, Window};
use crossway_records::inputs::{Extent, Workload};

/// Time limit for the ends to connect.
pub const OPEN_TIMEOUT: Duration = Duration::from_secs(30);

/// Duration of calibration on a host other than the controller's.
const CALIBRATION: Duration = Duration::from_millis(50);

/// Extra room in the scratch buffer for end marks, which are longer than very small messages.
pub(crate) const MARK_BYTES: usize = 16;

pub(crate) struct RoleContext {
    pub(crate) task: Task,
    pub(crate) spec: Spec,
    pub(crate) caps: Caps,
    pub(crate) ticker: Ticker,
    /// The offers to which this role connected, without descriptors, for workloads that reconnect.
    pub(crate) offers: Vec<Offer>,
    pub(crate) source: Source,
    /// The next sequence number of each channel, if one sender feeds several.
    pub(crate) sequences: Vec<u64>,
    /// One checker per sender that sends to this role.
    pub(crate) checkers: Vec<Checker>,
    pub(crate) scratch: LineBuffer,
    pub(crate) samples: Samples,
    /// What this role does, and its messages, if the workload is a recording.
    pub(crate) player: Option<Player>,
}

impl RoleContext {
    /// Creates the listeners and everything else that does not depend on the peers. Returns it with the listeners'
    /// offers and with warnings.
    pub(crate) fn set(
        mut task: Task,
        ends: &mut dyn Ends,
    ) -> Result<(Self, Vec<Offer>, Vec<String>), LoopError> {
        let caps = ends.caps();
        let mut warnings = Vec::new();
        if let Err(e) = proc::lock_memory() {
            warnings.push(format!(
                "the memory could not be locked ({e}); raise 'ulimit -l' to avoid page faults"
            ));
        }
        if sends_at_instants(&task) {
            // Otherwise every sleep of the sender would end up to 50 us late, which would count as the mechanism's
            // latency.
            if let Err(e) = clock::set_timer_slack_ns(NonZeroU64::MIN) {
                warnings.push(format!(
                    "the sender's timer slack could not be reduced ({e}), so it sends paced messages up to 50 µs late"
                ));
            }
        }
        let spec = spec_of(&task, caps.max_message);
        let (sent, received) = (sent_bytes(&task), received_bytes(&task));
        let offers =
            (0..task.listeners).map(|_| ends.listen(&spec)).collect::<Result<Vec<_>, _>>()?;
        let working_set = task.working_set_bytes as usize;
        let seed = task.inputs.seed;
        let player = task.script.take().map(|script| Player::new(*script, seed, working_set));
        let context = RoleContext {
            player,
            caps,
            ticker: task.ticker.unwrap_or_else(|| Ticker::calibrate(CALIBRATION)),
            source: match task.inputs.workload {
                Workload::FanOut { .. } | Workload::Clients { .. } => {
                    Source::new(sent, task.index, seed, working_set).without_lead()
                }
                _ => Source::new(sent, task.index, seed, working_set),
            },
            checkers: (0..task.peers.max(1))
                .map(|peer| {
                    Checker::new(received, task.inputs.access, task.first_peer + peer, seed)
                })
                .collect(),
            // Filled with a value other than zero, so that its pages are allocated.
            scratch: LineBuffer::new(sent.max(received).max(MARK_BYTES), 1),
            samples: Samples::default(),
            sequences: Vec::new(),
            offers: Vec::new(),
            spec,
            task,
        };
        Ok((context, offers, warnings))
    }

    pub(crate) fn connect(
        &mut self,
        ends: &mut dyn Ends,
        offers: Vec<Offer>,
    ) -> Result<(), LoopError> {
        for mut offer in offers {
            let words = offer.words.clone();
            ends.connect(&self.spec, &mut offer)?;
            self.offers.push(Offer { words, fds: Vec::new() });
        }
        Ok(())
    }

    /// Values that the system reports about the first channel, the size of the working set, and the timer slack of a
    /// role that sends at fixed times.
    pub(crate) fn facts(&self, ends: &dyn Ends) -> Facts {
        let mut facts = ends.facts();
        if self.task.part != Part::Receiver {
            let bytes = self.source.working_set_bytes() as i64;
            facts.insert("payload_working_set_bytes".to_owned(), bytes);
        }
        if sends_at_instants(&self.task)
            && let Ok(ns) = clock::timer_slack_ns()
        {
            facts.insert("timer_slack_ns".to_owned(), ns as i64);
        }
        facts
    }

    /// Whether messages may be lost, so that the receiver cannot wait for a known number of them.
    pub(crate) fn lossy(&self) -> bool {
        self.caps.reliability == Reliability::Lossy
    }

    /// How many bytes of the scratch buffer to receive into. For byte streams, this is exactly one message; otherwise
    /// the whole buffer, with room for marks.
    pub(crate) fn receive_len(&self) -> usize {
        match self.caps.boundaries {
            Boundaries::Stream => self.received_bytes(),
            Boundaries::Message => self.scratch.len(),
        }
    }

    /// Size of the messages that this role sends, in bytes.
    pub(crate) fn sent_bytes(&self) -> usize {
        sent_bytes(&self.task)
    }

    /// Size of the messages that this role receives, in bytes.
    pub(crate) fn received_bytes(&self) -> usize {
        received_bytes(&self.task)
    }

    pub(crate) fn in_place(&self) -> bool {
        self.task.inputs.access == Access::InPlace
    }

    /// Prepares for a window: allocates and touches the memory for its samples, and resets the checkers' counters.
    pub(crate) fn prepare(&mut self, window: &Window) {
        let timed =
            self.task.part == Part::Client && self.task.inputs.workload == Workload::PingPong;
        if timed {
            self.samples.prepare((window.messages / u64::from(window.batch.max(1))) as usize);
        }
        if let Some(player) = &mut self.player {
            player.prepare(window.messages);
        }
        self.checkers.iter_mut().for_each(Checker::restart);
    }
}

/// Whether this role sends at fixed times.
fn sends_at_instants(task: &Task) -> bool {
    let facts = task.inputs.workload.facts();
    match facts.extent {
        Extent::Instants { .. } => matches!(task.part, Part::Sender | Part::Client),
        // Both ends pause before they send.
        Extent::Recorded => true,
        Extent::Messages | Extent::Time => false,
    }
}

fn sent_bytes(task: &Task) -> usize {
    let inputs = &task.inputs;
    let reply = inputs.reply_bytes.filter(|_| task.part == Part::Server);
    reply.unwrap_or(inputs.size_bytes) as usize
}

fn received_bytes(task: &Task) -> usize {
    let inputs = &task.inputs;
    let reply = inputs.reply_bytes.filter(|_| task.part == Part::Client);
    reply.unwrap_or(inputs.size_bytes) as usize
}

fn spec_of(task: &Task, most: Option<usize>) -> Spec {
    let inputs = &task.inputs;
    // Marks are sent only by mechanisms that drop messages; none of these is limited to fewer bytes.
    let largest = (inputs.largest_bytes() as usize).max(MARK_BYTES);
    Spec {
        max_message: most
            .map_or(largest, |most| largest.min(most.max(inputs.largest_bytes() as usize))),
        wait: inputs.wait,
        capacity_bytes: inputs.capacity_bytes.map(|b| b as usize),
        socket_buffer_bytes: inputs.socket_buffer_bytes.map(|b| b as usize),
        bind: task.bind,
        open_timeout: OPEN_TIMEOUT,
        ..Spec::default()
    }
}

/// Whether an end that waits in this way may sleep.
pub(crate) fn sleeps(wait: Wait) -> bool {
    !matches!(wait, Wait::Spin)
}
