//! A role: one end of a measured channel, in a separate process that knows nothing but its task.

mod contender;

use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;

use crossway_mech::Mechanism;
use crossway_mech::registry::{self, Visitor};
use crossway_sys::{affinity, lease, proc};

use crate::control::{
    Answer, ControlError, Order, Task, Window, Wire, offers_from_text, offers_to_text,
};
use crate::ends::{Ends, EndsOf};
use crate::role_context::{OPEN_TIMEOUT, RoleContext, RoleError};
use crate::{faults, meters, verify, workload};

/// The entry point of the hidden subcommand: executes orders from standard input, up to the order to close.
pub fn main() -> ExitCode {
    let Ok(mut wire) = own_wire() else { return ExitCode::from(2) };
    match serve(&mut wire) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            if let Some(answer) = error.answer() {
                let _ = wire.say(&answer, &[]);
            }
            ExitCode::FAILURE
        }
    }
}

fn own_wire() -> Result<Wire, ControlError> {
    let dup = |fd: std::os::fd::BorrowedFd<'_>| {
        fd.try_clone_to_owned().map_err(|e| crossway_sys::OsError::new("dup", "stdin", e))
    };
    let input: OwnedFd = dup(std::io::stdin().as_fd())?;
    if proc::is_unix_socket(&input) {
        Wire::socket(input)
    } else {
        Ok(Wire::bytes(input, dup(std::io::stdout().as_fd())?))
    }
}

fn serve(wire: &mut Wire) -> Result<(), RoleError> {
    let (order, _) = wire.hear::<Order>()?;
    let Order::Begin { task } = order else {
        return Err(RoleError::Wrong("the first order must be a task".to_owned()));
    };
    if let Some(dir) = &task.leases {
        lease::join(dir);
    }
    if let Some(launch) = task.contender.clone() {
        return contender::live(*task, &launch, wire);
    }
    if let Some(cpu) = task.cpu {
        affinity::pin(cpu)?;
    }
    meters::open_counters();
    let mechanism = task.mechanism.clone();
    registry::dispatch(&mechanism, Life { task: *task, wire })
        .unwrap_or_else(|| Err(RoleError::Wrong(format!("there is no mechanism '{mechanism}'"))))
}

struct Life<'a> {
    task: Task,
    wire: &'a mut Wire,
}

impl Visitor for Life<'_> {
    type Out = Result<(), RoleError>;

    fn visit<M: Mechanism>(self) -> Self::Out {
        live(Box::new(EndsOf::<M>::new()), self.task, self.wire)
    }
}

/// Executes orders. Visible in the crate so that tests can run it with a mechanism of their own.
pub(crate) fn live(mut ends: Box<dyn Ends>, task: Task, wire: &mut Wire) -> Result<(), RoleError> {
    let (mut context, offers, warnings) = RoleContext::set(task, &mut *ends)?;
    let (offers, fds) = offers_to_text(offers);
    let borrowed: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
    wire.say(&Answer::Offers { offers, warnings }, &borrowed)?;
    // The peer's descriptors must not stay open here, or its death would never be noticed.
    drop(fds);
    let mut window = None;
    loop {
        let (order, fds) = wire.hear::<Order>()?;
        let answer = match order {
            Order::Begin { .. } => return Err(RoleError::Wrong("a second task".to_owned())),
            Order::Connect { offers } => {
                context.connect(&mut *ends, offers_from_text(offers, fds)?)?;
                // A role in the middle of others connects first.
                if context.task.listeners > 0 {
                    ends.accept(OPEN_TIMEOUT)?;
                }
                Answer::Opened { facts: context.facts(&*ends) }
            }
            Order::Accept => {
                ends.accept(OPEN_TIMEOUT)?;
                Answer::Opened { facts: context.facts(&*ends) }
            }
            Order::Verify { channel, sends, sender } => {
                let (messages, crc) = verify::run(&mut *ends, &context, channel, sends, sender)?;
                Answer::Verified { messages, crc }
            }
            Order::Prepare { window: next } => {
                context.prepare(&next);
                window = Some(next);
                Answer::Ready
            }
            Order::Go { at_ns } => {
                let window: Window = window.take().ok_or_else(|| {
                    RoleError::Wrong("the order 'go' came before 'prepare'".into())
                })?;
                let mut outcome =
                    workload::run(&mut *ends, &mut context, &window, at_ns, wire.fd())?;
                outcome.facts = context.facts(&*ends);
                Answer::Done { outcome: Box::new(outcome) }
            }
            // The window ended because of this order, or on its own right before.
            Order::Stop => continue,
            Order::Act { act } => {
                let seen = faults::perform(&mut *ends, &context, act, fds)?;
                Answer::Acted { seen: Box::new(seen) }
            }
            Order::Close => {
                drop(ends);
                wire.say(&Answer::Closed, &[])?;
                return Ok(());
            }
        };
        wire.say(&answer, &[])?;
    }
}

#[cfg(test)]
mod tests;
