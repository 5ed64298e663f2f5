//! Opens and closes bearers outside the event loop, because these system calls take a long time.
//!
//! Attaching a packet socket to a device, or closing it, waits for an RCU grace period (tens of milliseconds), and
//! joining a multicast group waits for other changes to devices. If the node waited, it would receive nothing in the
//! meantime, and links with a short tolerance would fail. So a thread opens or closes one bearer at a time, in the
//! order of the requests, and the operator gets the answer when that is done. If the node ends in the meantime, the
//! thread closes whatever it has opened.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, TryRecvError};

use crossway_sys::eventfd::EventFd;
use crossway_sys::{Errno, OsError};
use crossway_tipc_client::admin::{Outcome, Settings};
use crossway_tipc_proto::addr::{BearerId, NetworkId};

use super::{answer, bearers, find, settings};
use crate::bearer::{Bearer, BearerOpenError};
use crate::outbox::Attached;
use crate::runner::{Runner, RunnerError};
use crate::service::Place;
use crate::spec::BearerSpec;

type Opened = Result<Bearer, BearerOpenError>;
type Open = dyn Fn(&BearerSpec, NetworkId, usize) -> Opened + Send + Sync;
type Close = dyn Fn(Retired) + Send + Sync;

/// A bearer no longer in use.
#[derive(Debug)]
#[expect(dead_code, reason = "they are only dropped")]
enum Retired {
    Used(Attached),
    Unused(Bearer),
}

/// A request that changes bearers.
#[derive(Debug)]
enum Change {
    Enable { bearer: String, name: Option<String>, with: Settings },
    Disable { name: String },
}

/// A bearer that is to be opened.
#[derive(Debug)]
struct Plan {
    spec: BearerSpec,
    name: String,
    with: Settings,
}

/// What a thread is working on.
#[derive(Debug)]
enum Task {
    Opening(Box<Plan>, Receiver<Opened>),
    /// Closes a bearer; the outcome is reported when that is done.
    Closing(Result<Outcome, String>, Receiver<()>),
}

/// The result of a task.
enum Finished {
    Opened(Box<Plan>, Box<Opened>),
    Closed(Result<Outcome, String>),
}

/// How a request continues after a task.
enum Next {
    Wait(Task),
    Over(Result<Outcome, String>),
}

impl Task {
    /// Returns the result of the task, or the task itself if the thread is still working on it.
    fn finished(self) -> Result<Finished, Self> {
        match self {
            Self::Opening(plan, opened) => match opened.try_recv() {
                Ok(opened) => Ok(Finished::Opened(plan, Box::new(opened))),
                Err(TryRecvError::Empty) => Err(Self::Opening(plan, opened)),
                Err(TryRecvError::Disconnected) => Ok(Finished::Closed(Err(format!(
                    "cannot enable bearer {}: opening it failed unexpectedly; see the standard error of tipcd",
                    plan.spec
                )))),
            },
            Self::Closing(outcome, closed) => match closed.try_recv() {
                Err(TryRecvError::Empty) => Err(Self::Closing(outcome, closed)),
                Ok(()) | Err(TryRecvError::Disconnected) => Ok(Finished::Closed(outcome)),
            },
        }
    }
}

/// The queue of requests that change bearers, including the one in progress.
pub(crate) struct BearerJobs {
    /// The function that opens a bearer. It runs in a thread, because it takes long.
    open: Arc<Open>,
    close: Arc<Close>,
    /// An eventfd that becomes readable when a thread has finished a task.
    bell: Arc<EventFd>,
    at_work: Option<(Place, Task)>,
    waiting: VecDeque<(Place, Change)>,
}

impl std::fmt::Debug for BearerJobs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { at_work, waiting, .. } = self;
        f.debug_struct("BearerJobs")
            .field("at_work", at_work)
            .field("waiting", waiting)
            .finish_non_exhaustive()
    }
}

impl BearerJobs {
    /// Creates an empty queue.
    ///
    /// # Errors
    /// [`OsError`] if the eventfd cannot be created.
    pub(crate) fn new() -> Result<Self, OsError> {
        let bell = Arc::new(EventFd::new()?);
        let (open, close) = (Arc::new(Bearer::open), Arc::new(drop));
        Ok(Self { open, close, bell, at_work: None, waiting: VecDeque::new() })
    }

    /// Returns a descriptor that becomes readable when [`BearerJobs::advance`] has something to do.
    pub(crate) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// Makes the descriptor of [`BearerJobs::bell`] unreadable again.
    pub(crate) fn hear(&self) {
        let _ = self.bell.clear();
    }

    /// Queues a request to enable a bearer.
    pub(super) fn enable(
        &mut self,
        place: Place,
        bearer: String,
        name: Option<String>,
        with: Settings,
    ) {
        self.waiting.push_back((place, Change::Enable { bearer, name, with }));
    }

    /// Queues a request to disable a bearer.
    pub(super) fn disable(&mut self, place: Place, name: String) {
        self.waiting.push_back((place, Change::Disable { name }));
    }

    /// Advances the requests without waiting until one is finished, and returns the connection to answer, with the
    /// answer; call it until it returns `None`. Then either a thread is at work, or no request is left.
    pub(crate) fn advance(
        &mut self,
        runner: &mut Runner,
    ) -> Option<(Place, Result<Vec<OwnedFd>, Errno>)> {
        loop {
            let (place, next) = match self.at_work.take() {
                Some((place, task)) => match task.finished() {
                    Ok(Finished::Opened(plan, opened)) => {
                        (place, self.opened(runner, *plan, *opened))
                    }
                    Ok(Finished::Closed(outcome)) => (place, Next::Over(outcome)),
                    Err(task) => {
                        self.at_work = Some((place, task));
                        return None;
                    }
                },
                None => {
                    let (place, change) = self.waiting.pop_front()?;
                    let begun = match change {
                        Change::Enable { bearer, name, with } => {
                            self.begin_opening(runner, &bearer, name, with)
                        }
                        Change::Disable { name } => find(runner, &name)
                            .map(|id| self.withdraw(runner, id, Ok(Outcome::Done))),
                    };
                    (place, begun.unwrap_or_else(|why| Next::Over(Err(why))))
                }
            };
            match next {
                Next::Wait(task) => self.at_work = Some((place, task)),
                Next::Over(outcome) => return Some((place, answer(outcome, None))),
            }
        }
    }

    fn begin_opening(
        &self,
        runner: &mut Runner,
        bearer: &str,
        name: Option<String>,
        with: Settings,
    ) -> Result<Next, String> {
        let spec: BearerSpec = bearer.parse().map_err(|e| format!("{e}"))?;
        let name = free_name(runner, &spec, name)?;
        let (network, socket_bytes) = runner.opening();
        let (open, wanted) = (self.open.clone(), spec.clone());
        let opened = self
            .start(move || open(&wanted, network, socket_bytes))
            .map_err(|e| format!("cannot enable bearer {spec}: no thread to open it could be started ({e}); end some processes, or raise the limit of this user's processes (ulimit -u)"))?;
        Ok(Next::Wait(Task::Opening(Box::new(Plan { spec, name, with }), opened)))
    }

    /// Handles the result of opening a bearer.
    fn opened(&self, runner: &mut Runner, plan: Plan, opened: Opened) -> Next {
        let Plan { spec, name, with } = plan;
        let bearer = match opened {
            Ok(bearer) => bearer,
            Err(source) => {
                let error = RunnerError::Open { spec: spec.to_string(), source };
                return Next::Over(Err(error.to_string()));
            }
        };
        let id = match runner.attach(&spec, &name, bearer) {
            Ok(id) => id,
            Err(refused) => {
                let (error, bearer) = *refused;
                return self.close(Retired::Unused(bearer), Err(error.to_string()));
            }
        };
        match runner.node().set_bearer(id, settings(with)) {
            Ok(()) => Next::Over(Ok(Outcome::Done)),
            Err(error) => self.withdraw(runner, id, Err(error.to_string())),
        }
    }

    /// Detaches the node from a bearer and starts to close the bearer.
    fn withdraw(
        &self,
        runner: &mut Runner,
        id: BearerId,
        outcome: Result<Outcome, String>,
    ) -> Next {
        match runner.detach(id) {
            Ok(attached) => self.close(Retired::Used(attached), outcome),
            Err(error) => Next::Over(outcome.and(Err(error.to_string()))),
        }
    }

    fn close(&self, retired: Retired, outcome: Result<Outcome, String>) -> Next {
        let close = self.close.clone();
        match self.start(move || close(retired)) {
            Ok(closed) => Next::Wait(Task::Closing(outcome, closed)),
            // Without a thread, it was closed here when the task was dropped.
            Err(_) => Next::Over(outcome),
        }
    }

    /// Starts a thread that runs `work`. Once it has signalled the eventfd, the result can be received from the
    /// returned channel.
    fn start<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> std::io::Result<Receiver<T>> {
        let (done, outcome) = mpsc::sync_channel(1);
        let bell = self.bell.clone();
        std::thread::Builder::new().name("bearer".into()).spawn(move || {
            // If the result is no longer needed, it is closed here.
            let _ = done.send(work());
            drop(done);
            // Signalling an eventfd cannot fail here.
            let _ = bell.signal();
        })?;
        Ok(outcome)
    }
}

/// Returns the name for a new bearer: `name`, or a default if that is `None`. Fails if the name has a wrong length or
/// another bearer has it.
fn free_name(
    runner: &mut Runner,
    spec: &BearerSpec,
    name: Option<String>,
) -> Result<String, String> {
    let taken = bearers::bearer_names(runner);
    let is_free = |name: &str| {
        taken.iter().all(|(_, full)| full.split_once(':').is_none_or(|(_, n)| n != name))
    };
    let name = match (name, spec) {
        (Some(name), _) => name,
        (None, BearerSpec::Ethernet { device }) => device.clone(),
        (None, BearerSpec::Udp { .. }) => {
            (0..).map(|n| format!("udp{n}")).find(|name| is_free(name)).unwrap_or_default()
        }
    };
    if name.is_empty() || name.len() > 15 || !is_free(&name) {
        return Err(format!(
            "bearer name {name:?}: use 1 to 15 bytes, and a name that no other bearer has"
        ));
    }
    Ok(name)
}

#[cfg(test)]
mod tests;
