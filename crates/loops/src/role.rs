//! A role as those see it who give it orders.

use std::os::fd::BorrowedFd;

use crossway_mech::erased::{AnyRx, AnyTx};
use crossway_mech::registry::{self, Visitor};
use crossway_mech::{Caps, Facts, Mechanism, Offer};

use crate::ends::{Ends, EndsOf};
use crate::role_context::{OPEN_TIMEOUT, RoleContext};
use crate::task::{Task, Window};
use crate::{LoopError, Outcome, workload};

/// A role with its channels.
pub struct Loops {
    ends: Box<dyn Ends>,
    context: RoleContext,
}

struct Begin(Task);

impl Visitor for Begin {
    type Out = Result<(Loops, Vec<Offer>, Vec<String>), LoopError>;

    fn visit<M: Mechanism>(self) -> Self::Out {
        Loops::begin_with::<M>(self.0)
    }
}

impl Loops {
    /// Creates the role's listeners, and everything else that does not depend on its peers. Returns it with the listeners'
    /// offers and with warnings about the figures.
    ///
    /// # Errors
    /// There is no such mechanism, or a listener cannot be created.
    #[inline(never)]
    pub fn begin(task: Task) -> Result<(Loops, Vec<Offer>, Vec<String>), LoopError> {
        let mechanism = task.mechanism.clone();
        registry::dispatch(&mechanism, Begin(task)).unwrap_or_else(|| {
            Err(LoopError::Wrong(format!("there is no mechanism '{mechanism}'")))
        })
    }

    /// The same with a mechanism that is not in the registry, for tests: its loops are compiled where this is called.
    ///
    /// # Errors
    /// A listener cannot be created.
    pub fn begin_with<M: Mechanism>(
        task: Task,
    ) -> Result<(Loops, Vec<Offer>, Vec<String>), LoopError> {
        let mut ends: Box<dyn Ends> = Box::new(EndsOf::<M>::new());
        let (context, offers, warnings) = RoleContext::set(task, &mut *ends)?;
        Ok((Loops { ends, context }, offers, warnings))
    }

    /// Connects to the peers that made these offers, then waits for those that this role listens for: a role in the middle
    /// of others connects first.
    ///
    /// # Errors
    /// A channel cannot be opened.
    #[inline(never)]
    pub fn connect(&mut self, offers: Vec<Offer>) -> Result<(), LoopError> {
        self.context.connect(&mut *self.ends, offers)?;
        if self.context.task.listeners > 0 { self.accept() } else { Ok(()) }
    }

    /// Waits for one peer at each listener.
    ///
    /// # Errors
    /// A channel cannot be opened within [`OPEN_TIMEOUT`].
    #[inline(never)]
    pub fn accept(&mut self) -> Result<(), LoopError> {
        Ok(self.ends.accept(OPEN_TIMEOUT)?)
    }

    /// Values that the system reports about the first channel, and what else is known of the role.
    pub fn facts(&self) -> Facts {
        self.context.facts(&*self.ends)
    }

    /// Allocates and touches the memory that the window needs.
    #[inline(never)]
    pub fn prepare(&mut self, window: &Window) {
        self.context.prepare(window);
    }

    /// Runs this role's part of a window that was prepared. `at_ns` is when the first message is
    /// due or a timed window ends, CLOCK_MONOTONIC; `phases_ns` is how much later each peer's first
    /// message is due, if the peers have schedules of their own. An order on the controller's
    /// connection `line` ends an open-ended window, and the end marks of a sender whose messages
    /// may be lost.
    ///
    /// # Errors
    /// A channel failed, or the workload has no such part.
    #[inline(never)]
    pub fn run(
        &mut self,
        window: &Window,
        at_ns: u64,
        phases_ns: &[u64],
        line: BorrowedFd<'_>,
    ) -> Result<Outcome, LoopError> {
        let (ends, context) = (&mut *self.ends, &mut self.context);
        let mut outcome = workload::run(ends, context, window, at_ns, phases_ns, line)?;
        outcome.facts = self.facts();
        Ok(outcome)
    }

    /// Both halves of a channel, for what is not measured; `None` if there is no such channel.
    pub fn halves(&mut self, channel: usize) -> Option<(&mut dyn AnyTx, &mut dyn AnyRx)> {
        self.ends.halves(channel)
    }

    /// The role's task.
    pub fn task(&self) -> &Task {
        &self.context.task
    }

    /// The mechanism's capabilities.
    pub fn caps(&self) -> Caps {
        self.context.caps
    }

    /// Whether messages may be lost.
    pub fn lossy(&self) -> bool {
        self.context.lossy()
    }

    /// Whether messages are written and read in the mechanism's own memory.
    pub fn in_place(&self) -> bool {
        self.context.in_place()
    }

    /// Size of the messages that this role sends, bytes.
    pub fn sent_bytes(&self) -> usize {
        self.context.sent_bytes()
    }

    /// Size of the messages that this role receives, bytes.
    pub fn received_bytes(&self) -> usize {
        self.context.received_bytes()
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;
    use std::time::Instant;

    use crossway_mech::mechanisms::pipe::Pipe;
    use crossway_mech::mechanisms::udp::Udp;
    use crossway_mech::{Bind, Wait};
    use crossway_records::inputs::{Inputs, Workload};
    use crossway_sys::clock::{Ticker, monotonic_ns};

    use super::*;
    use crate::Part;

    fn task<M: Mechanism>(workload: Workload, part: Part) -> Task {
        Task {
            mechanism: M::ID.to_owned(),
            script: None,
            inputs: Inputs { seed: 5, ..Inputs::of(workload, 64, Wait::Block) },
            part,
            index: 0,
            cpu: None,
            listeners: 0,
            peers: 1,
            first_peer: 0,
            ticker: Some(Ticker::Monotonic),
            working_set_bytes: 1 << 16,
            leases: None,
            bind: Bind::default(),
        }
    }

    /// What a role says to an order for a workload that no plan gives to its mechanism.
    fn refusal<M: Mechanism>(workload: Workload, part: Part) -> String {
        let (mut role, ..) = Loops::begin_with::<M>(task::<M>(workload, part)).expect("a role");
        let (line, _controller) = UnixStream::pair().expect("a line");
        let window = Window { number: 1, messages: 1, batch: 1, measured: true, open: false };
        let outcome = role.run(&window, 0, &[], line.as_fd());
        outcome.expect_err("there is no such loop").to_string()
    }

    #[test]
    fn a_client_at_a_rate_sends_while_fewer_requests_than_it_may_have_are_under_way() {
        // All are due at once, and the server answers none before it has as many as may be under
        // way.
        const MOST: usize = 3;
        let workload = Workload::Clients { clients: 1, in_flight: MOST as u32, period_ns: 1 };
        let listening = Task { listeners: 1, ..task::<Pipe>(workload, Part::Server) };
        let (mut server, offers, _) = Loops::begin_with::<Pipe>(listening).expect("a server");
        let client = std::thread::spawn(move || {
            let task = task::<Pipe>(workload, Part::Client);
            let (mut client, ..) = Loops::begin_with::<Pipe>(task).expect("a client");
            client.connect(offers).expect("a channel");
            let (line, _controller) = UnixStream::pair().expect("a line");
            let messages = 4 * MOST as u64;
            let window = Window { number: 1, messages, batch: 1, measured: true, open: false };
            client.run(&window, monotonic_ns(), &[], line.as_fd()).expect("replies")
        });
        server.accept().expect("a client");
        let (tx, rx) = server.halves(0).expect("a channel");
        let until = || Some(Instant::now() + OPEN_TIMEOUT);
        let mut requests = vec![[0; 64]; MOST];
        for _ in 0..4 {
            for request in &mut requests {
                assert_eq!(rx.recv(request, until()).expect("a request"), 64);
            }
            // Both number their messages alike, so a request is the reply that is expected.
            requests.iter().for_each(|reply| tx.send(reply, until()).expect("room"));
        }
        let mark = &mut requests[0];
        rx.recv(mark, until()).expect("the mark");
        tx.send(mark, until()).expect("room");
        let outcome = client.join().expect("no panic");
        assert_eq!((outcome.sent, outcome.received, outcome.corrupt), (12, 12, 0));
        assert_eq!(outcome.pacing.expect("a schedule").bursts, 12);
    }

    #[test]
    fn a_loop_that_does_not_exist_for_a_mechanism_is_an_error() {
        for part in [Part::Client, Part::Server] {
            let said = refusal::<Pipe>(Workload::Exchange, part);
            assert!(said.contains("cannot open its channel again"), "{said}");
        }
        let timed = [
            (Workload::Pairs { pairs: 2 }, Part::Sender),
            (Workload::Pairs { pairs: 2 }, Part::Receiver),
            (Workload::Clients { clients: 2, in_flight: 1, period_ns: 0 }, Part::Client),
            (Workload::Clients { clients: 2, in_flight: 1, period_ns: 0 }, Part::Server),
            (Workload::FanIn { senders: 2, receiver_us: 0, period_us: 100 }, Part::Receiver),
        ];
        for (workload, part) in timed {
            let said = refusal::<Udp>(workload, part);
            assert!(said.contains("may lose the message that ends"), "{said}");
        }
    }
}
