//! A role as those see it who give it orders.

use std::os::fd::BorrowedFd;

use crossway_mech::registry::{self, Visitor};
use crossway_mech::{Caps, Facts, Mechanism, Offer};

use crate::ends::{AnyRx, AnyTx, Ends, EndsOf};
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

    /// Runs this role's part of a window that was prepared. `at_ns` is when the first message is due or a timed window
    /// ends, CLOCK_MONOTONIC. An order on the controller's connection `line` ends an open-ended window, and the end marks
    /// of a sender whose messages may be lost.
    ///
    /// # Errors
    /// A channel failed, or the workload has no such part.
    #[inline(never)]
    pub fn run(
        &mut self,
        window: &Window,
        at_ns: u64,
        line: BorrowedFd<'_>,
    ) -> Result<Outcome, LoopError> {
        let mut outcome = workload::run(&mut *self.ends, &mut self.context, window, at_ns, line)?;
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
