//! Exhausted resources: descriptors, locked memory, space in file systems.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use crossway_records::sorting::CollectTree;
use crossway_sys::clock::monotonic_ns;
use crossway_sys::proc::{self, Limited};

use super::bench::{Actor, Bench, Heard};
use super::cells::Cell;
use super::observation::{Ended, NoObservation, Observation};
use super::places::{self, Filled};
use super::{Act, Detection, Fault, Outcome, Side, State};
use crate::launcher::Launcher;

/// Number of messages exchanged to show that a channel works in spite of the fault.
const MESSAGES: u64 = 50;

/// More descriptors than a role ever needs.
const ENOUGH: u64 = 256;

impl Bench<'_> {
    pub(super) fn resource(&self, cell: &Cell) -> Result<Observation, NoObservation> {
        if matches!(cell.fault, Fault::FullDisk | Fault::FullShm) {
            places::to_fill(self.not_private.as_ref())?;
        }
        if cell.state == State::Receiving {
            return self.no_descriptor_in_traffic(cell);
        }
        let without_lock = self.launcher_without_lock(cell.fault);
        let launcher = |side| if side == cell.affected { &without_lock } else { self.launcher };
        let mut listener = self.start_by(launcher(Side::Listener), Side::Listener)?;
        let mut connector = self.start_by(launcher(Side::Connector), Side::Connector)?;
        // By now both roles have what they need to start.
        for actor in [&listener, &connector] {
            wait_until_up(actor);
        }
        let affected = if cell.affected == Side::Listener { &listener } else { &connector };
        let filled = starve(cell.fault, affected.pid())?;
        let begin_ns = monotonic_ns();
        let opened = self.join(&mut listener, &mut connector, self.watch);
        let after_ns = monotonic_ns() - begin_ns;
        let mut seen = Observation::default();
        match opened {
            Ok(()) => {
                let (mut affected, mut other) = match cell.affected {
                    Side::Listener => (listener, connector),
                    Side::Connector => (connector, listener),
                };
                if cell.fault == Fault::FullDescriptorTable {
                    // The order to act has a descriptor attached.
                    proc::set_limit(affected.pid(), Limited::Descriptors, ENOUGH)?;
                }
                self.exchange(&mut affected, &mut other, begin_ns, &mut seen, |_| Ok(()))?;
            }
            Err((side, heard)) => refused(&mut seen, cell, side, &heard, after_ns),
        }
        drop(filled);
        Ok(seen)
    }

    fn no_descriptor_in_traffic(&self, cell: &Cell) -> Result<Observation, NoObservation> {
        let (mut affected, mut other) = self.open(cell.affected)?;
        let mut seen = Observation::default();
        self.exchange(&mut affected, &mut other, monotonic_ns(), &mut seen, no_descriptors)?;
        Ok(seen)
    }

    /// Sends messages to the affected end and records whether they arrive. `then` is called when that end waits for the
    /// messages.
    fn exchange(
        &self,
        affected: &mut Actor,
        other: &mut Actor,
        begin_ns: u64,
        seen: &mut Observation,
        then: impl FnOnce(&Actor) -> Result<(), NoObservation>,
    ) -> Result<(), NoObservation> {
        affected.act(Act::Receive { messages: Some(MESSAGES), buffer_bytes: None })?;
        affected.wait_until_waiting()?;
        then(affected)?;
        other.act(Act::Send { messages: Some(MESSAGES), gap_us: 20 })?;
        let (ended, _) = affected.act_ended(self.watch);
        let _ = other.act_ended(Duration::from_millis(100));
        seen.count(other.progress(), affected.progress(), false);
        seen.end(&ended, begin_ns);
        if matches!(ended, Ended::Silent { .. }) && seen.sent_lost.is_some_and(|lost| lost > 0) {
            seen.outcome = Some(Outcome::Unnoticed);
        }
        Ok(())
    }

    /// A launcher for the role that `fault` affects. For [`Fault::LockedMemory`], root's capability to lock memory is
    /// dropped before the role starts.
    fn launcher_without_lock(&self, fault: Fault) -> Launcher {
        let plain = Launcher {
            program: self.launcher.program.clone(),
            args: self.launcher.args.clone(),
            interrupt: None,
        };
        if fault != Fault::LockedMemory || !proc::is_root() {
            return plain;
        }
        let mut args = vec!["--bounding-set=-ipc_lock".to_owned()];
        args.push(plain.program.display().to_string());
        args.extend(plain.args);
        Launcher { program: PathBuf::from("setpriv"), args, interrupt: None }
    }
}

/// Waits until the role's program has started and is waiting for orders.
fn wait_until_up(actor: &Actor) {
    let path = format!("/proc/{}/syscall", actor.pid());
    let begin = std::time::Instant::now();
    let stat = format!("/proc/{}/stat", actor.pid());
    while begin.elapsed() < Duration::from_secs(5) {
        let text = fs::read_to_string(&stat).unwrap_or_default();
        let asleep = text.rfind(')').is_some_and(|at| text[at..].starts_with(") S"));
        let exec = fs::read_to_string(&path).is_ok();
        if asleep && exec && !text.contains("(setpriv)") {
            return;
        }
        std::thread::sleep(Duration::from_micros(500));
    }
}

/// Takes from a process the resource that a fault names. A filled file system is emptied when the returned value is
/// dropped.
pub(super) fn starve(fault: Fault, pid: u32) -> Result<Option<Filled>, NoObservation> {
    match fault {
        Fault::FullDescriptorTable => leave_no_descriptor(pid)?,
        Fault::LockedMemory => proc::set_limit(pid, Limited::LockedMemory, 0)?,
        Fault::FullDisk => return Ok(Some(Filled::disk())),
        Fault::FullShm => return Ok(Some(Filled::shm())),
        _ => {}
    }
    Ok(None)
}

/// Prevents a role from opening further descriptors.
fn no_descriptors(actor: &Actor) -> Result<(), NoObservation> {
    leave_no_descriptor(actor.pid())
}

/// Like [`no_descriptors`], for a process id.
fn leave_no_descriptor(pid: u32) -> Result<(), NoObservation> {
    let dir = format!("/proc/{pid}/fd");
    let entries = fs::read_dir(&dir).map_err(|e| NoObservation::Failed(format!("{dir}: {e}")))?;
    let numbers =
        entries.filter_map(Result::ok).filter_map(|e| e.file_name().to_str()?.parse::<u64>().ok());
    let taken: BTreeSet<u64> = numbers.collect_tree();
    // A new descriptor would get the lowest free number, which this limit excludes.
    let free = (0..).find(|number| !taken.contains(number)).unwrap_or(0);
    Ok(proc::set_limit(pid, Limited::Descriptors, free)?)
}

/// Records that an end did not open the channel: it answered with an error, did not answer in time, or died.
fn refused(seen: &mut Observation, cell: &Cell, side: Side, heard: &Heard, after_ns: u64) {
    seen.outcome = Some(match heard {
        Heard::Dead(_) => Outcome::Died,
        Heard::Silence => {
            seen.hung = true;
            Outcome::Hung
        }
        Heard::Answer(..) => {
            seen.detected_after_ns = Some(after_ns);
            Outcome::Detected
        }
    });
    if seen.outcome == Some(Outcome::Detected) {
        let error = heard.words();
        seen.detected_by = Some(Detection { call: "open".to_owned(), error, peer_closed: false });
    } else {
        seen.warnings.push(heard.words());
    }
    if side != cell.affected {
        seen.warnings.push(format!(
            "the end that failed, the {}, is not the end into which the fault was injected",
            name(side)
        ));
    }
}

pub(super) fn name(side: Side) -> &'static str {
    match side {
        Side::Listener => "listener",
        Side::Connector => "connector",
    }
}
