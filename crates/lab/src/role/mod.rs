//! A role: one end of a measured channel, in a separate process that knows nothing but its task.

mod contender;
mod error;

use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;

use crossway_loops::Loops;
use crossway_mech::Offer;
use crossway_sys::{affinity, lease, proc};

use crate::control::{Answer, ControlError, Order, Window, Wire, offers_from_text, offers_to_text};
use crate::{faults, verify};
pub(crate) use error::RoleError;

/// The entry point of the hidden subcommand: executes orders from standard input, up to the order to close.
pub fn main() -> ExitCode {
    // The controller, which writes the records, goes on.
    proc::end_first_without_memory();
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
    let Order::Begin { task, contender } = order else {
        return Err(RoleError::Wrong("the first order must be a task".to_owned()));
    };
    if let Some(dir) = &task.leases {
        lease::join(dir);
    }
    if let Some(launch) = contender {
        return contender::live(*task, &launch, wire);
    }
    if let Some(cpu) = task.cpu {
        affinity::pin(cpu)?;
    }
    crossway_loops::open_counters();
    live(Loops::begin(*task)?, wire)
}

/// Executes orders.
fn live(
    (mut role, offers, warnings): (Loops, Vec<Offer>, Vec<String>),
    wire: &mut Wire,
) -> Result<(), RoleError> {
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
                role.connect(offers_from_text(offers, fds)?)?;
                Answer::Opened { facts: role.facts() }
            }
            Order::Accept => {
                role.accept()?;
                Answer::Opened { facts: role.facts() }
            }
            Order::Verify { channel, sends, sender } => {
                let (messages, crc) = verify::run(&mut role, channel, sends, sender)?;
                Answer::Verified { messages, crc }
            }
            Order::Prepare { window: next } => {
                role.prepare(&next);
                window = Some(next);
                Answer::Ready
            }
            Order::Go { at_ns, phases_ns } => {
                let window: Window = window.take().ok_or_else(|| {
                    RoleError::Wrong("the order 'go' came before 'prepare'".into())
                })?;
                let outcome = role.run(&window, at_ns, &phases_ns, wire.fd())?;
                Answer::Done { outcome: Box::new(outcome) }
            }
            // The window ended because of this order, or on its own right before.
            Order::Stop => continue,
            Order::Act { act } => {
                let seen = faults::perform(&mut role, act, fds)?;
                Answer::Acted { seen: Box::new(seen) }
            }
            Order::Close => {
                drop(role);
                wire.say(&Answer::Closed, &[])?;
                return Ok(());
            }
        };
        wire.say(&answer, &[])?;
    }
}

#[cfg(test)]
mod tests;
