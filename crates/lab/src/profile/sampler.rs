//! Runs perf alongside a trial: attaches it to the roles' processes, enables it during the measured window, and reads
//! its data afterwards.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crossway_sys::{Obstacle, family, lease, poll, proc};

use super::Sampling;
use super::samples::{Sampled, enter, look_up};
use super::script::{self};
use crate::launcher::LaunchError;
use crate::trial::Onlooker;

/// The name under which a process between the roles is reported, in place of a role's name.
pub(super) const BROKER: &str = "broker";
/// Samples per second; not a multiple of the kernel's tick rate.
const RATE_HZ: u32 = 3999;
/// Size of perf's buffers in pages: large, so that perf need not wake up during the window. Used only by root, for whom
/// this memory is not limited.
const BUFFER_PAGES: &str = "2048";
/// The step that finds out why sampling does not work.
const DOCTOR: &str = "crossway doctor";
/// Time limit for perf to attach itself, or to exit.
const PERF_LIMIT: Duration = Duration::from_secs(20);
/// Number of samples below which fractions are unreliable.
const FEW: u64 = 200;
/// How many lines of perf's output are quoted.
const QUOTED_LINES: usize = 3;

/// A running perf process.
#[derive(Debug)]
struct Recording {
    child: Child,
    dir: PathBuf,
    control: File,
    answers: File,
    /// Role name by process id.
    names: HashMap<u32, String>,
    _leases: [lease::Lease; 2],
}

impl Drop for Recording {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// Samples the processes during the measured window. An error is stored as the reason why there are no samples, and the
/// trial continues.
#[derive(Debug)]
pub(super) struct Sampler<'a> {
    interrupt: Option<BorrowedFd<'a>>,
    state: RefCell<Result<Option<Recording>, Obstacle>>,
}

impl Onlooker for Sampler<'_> {
    fn begin(&self, roles: &[(String, u32)], servers: &[u32]) -> Result<(), LaunchError> {
        let mut state = self.state.borrow_mut();
        // Discard the samples of a window that was too short.
        if state.is_ok() {
            *state = Ok(None);
            *state = self.start(roles, servers).map(Some);
        }
        Ok(())
    }

    fn end(&self) -> Result<(), LaunchError> {
        let mut state = self.state.borrow_mut();
        if let Ok(Some(recording)) = &mut *state
            && let Err(why) = self.command(recording, "disable")
        {
            *state = Err(Obstacle::new(why, DOCTOR));
        }
        Ok(())
    }
}

impl<'a> Sampler<'a> {
    pub(super) fn new(interrupt: Option<BorrowedFd<'a>>) -> Sampler<'a> {
        Sampler { interrupt, state: RefCell::new(Ok(None)) }
    }

    fn start(&self, roles: &[(String, u32)], servers: &[u32]) -> Result<Recording, Obstacle> {
        let here = |e: String| Obstacle::new(e, DOCTOR);
        let dir = lease::fresh_path("perf").map_err(|e| here(e.to_string()))?;
        let directory = lease::hold(lease::Resource::Directory { path: dir.clone() })
            .map_err(|e| here(e.to_string()))?;
        fs::create_dir(&dir).map_err(|e| here(format!("{}: {e}", dir.display())))?;
        // perf opens the read end of one FIFO and the write end of the other; both are held open for reading and
        // writing here, so that opening never blocks.
        let fifo = |name: &str| {
            let path = dir.join(name);
            let made = crossway_sys::pipe::make_fifo(&path).map_err(|e| e.to_string());
            made.and_then(|()| {
                let open = OpenOptions::new().read(true).write(true).open(&path);
                open.map_err(|e| format!("{}: {e}", path.display()))
            })
        };
        let control = fifo("control").map_err(here)?;
        let answers = fifo("answers").map_err(here)?;
        let mut names = HashMap::new();
        for (name, pid) in roles {
            names.insert(*pid, name.clone());
            names.extend(family::descendants(*pid).into_iter().map(|pid| (pid, name.clone())));
        }
        for server in servers {
            names.insert(*server, BROKER.to_owned());
            names.extend(family::descendants(*server).into_iter().map(|p| (p, BROKER.to_owned())));
        }
        let pids: Vec<String> = names.keys().map(u32::to_string).collect();
        let log = File::create(dir.join("log")).map_err(|e| here(e.to_string()))?;
        let mut command = Command::new("perf");
        command.args(["record", "-q", "--delay", "-1", "--call-graph", "fp", "-F"]);
        command.arg(RATE_HZ.to_string());
        if proc::is_root() {
            command.args(["-m", BUFFER_PAGES]);
        }
        let fifos =
            format!("fifo:{},{}", dir.join("control").display(), dir.join("answers").display());
        command.args(["--control", &fifos, "-p", &pids.join(",")]);
        command.arg("-o").arg(dir.join("data")).current_dir(&dir).env("LC_ALL", "C");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        proc::die_with_parent(&mut command);
        let child = command.spawn().map_err(|e| {
            let why = format!("perf cannot be started: {e}");
            Obstacle::new(why, "sudo apt-get install linux-perf")
        })?;
        let pid = child.id();
        let started_ticks = proc::started_ticks(pid).unwrap_or(0);
        let process = lease::hold(lease::Resource::Process { pid, started_ticks })
            .map_err(|e| here(e.to_string()))?;
        let leases = [process, directory];
        let mut recording = Recording { child, dir, control, answers, names, _leases: leases };
        self.command(&mut recording, "enable").map_err(|why| Obstacle::new(why, remedy()))?;
        Ok(recording)
    }

    /// Sends a command to perf and waits until perf has acknowledged it.
    fn command(&self, recording: &mut Recording, word: &str) -> Result<(), String> {
        let sent = writeln!(recording.control, "{word}");
        sent.map_err(|e| format!("cannot send perf a command: {e}"))?;
        let until = Instant::now() + PERF_LIMIT;
        loop {
            // perf may exit instead of answering.
            let soon = Some(until.min(Instant::now() + Duration::from_millis(50)));
            let mut watched = vec![recording.answers.as_fd()];
            watched.extend(self.interrupt);
            let ready = poll::any_readable(&watched, soon).map_err(|e| format!("poll: {e}"))?;
            if ready.get(1) == Some(&true) {
                return Err("interrupted".to_owned());
            }
            if ready[0] {
                let mut answer = [0; 16];
                let n = recording.answers.read(&mut answer).unwrap_or(0);
                if answer[..n].starts_with(b"ack") {
                    return Ok(());
                }
            }
            if let Ok(Some(status)) = recording.child.try_wait() {
                let wrote = quoted(&recording.dir.join("log"));
                return Err(format!("perf exited ({status}): {wrote}"));
            }
            if Instant::now() >= until {
                let wrote = quoted(&recording.dir.join("log"));
                return Err(format!("perf did not answer '{word}' within {PERF_LIMIT:?}: {wrote}"));
            }
        }
    }

    /// Returns how the samples were taken (or why there are none), and the samples by role.
    pub(super) fn finish(self) -> (Sampling, BTreeMap<String, Sampled>) {
        let missing = |Obstacle { why, remedy }| {
            let sampling =
                Sampling { missing: Some(why), remedy: Some(remedy), ..Sampling::default() };
            (sampling, BTreeMap::new())
        };
        let recording = match self.state.into_inner() {
            Ok(Some(recording)) => recording,
            Ok(None) => {
                return missing(Obstacle::new("the measured window never began", ""));
            }
            Err(obstacle) => return missing(obstacle),
        };
        match collect(recording) {
            Ok(found) => found,
            Err(why) => missing(Obstacle::new(why, DOCTOR)),
        }
    }
}

/// The step that would permit sampling.
fn remedy() -> String {
    let level = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
    match level.trim().parse::<i32>() {
        Ok(level) if level > 1 && !proc::is_root() => {
            format!("sudo sysctl kernel.perf_event_paranoid=1 (it is {level}), or run as root")
        }
        _ => DOCTOR.to_owned(),
    }
}

/// The last lines of perf's output, which name the error, joined into one line.
fn quoted(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
    if lines.is_empty() {
        return "no output".to_owned();
    }
    lines[lines.len().saturating_sub(QUOTED_LINES)..].join(" ")
}

/// Stops perf and reads its data.
fn collect(mut recording: Recording) -> Result<(Sampling, BTreeMap<String, Sampled>), String> {
    proc::terminate(recording.child.id());
    let started = proc::started_ticks(recording.child.id()).unwrap_or(0);
    let until = Instant::now() + PERF_LIMIT;
    while recording.child.try_wait().is_ok_and(|ended| ended.is_none()) {
        if Instant::now() > until {
            proc::kill_exactly(recording.child.id(), started);
            return Err(format!("perf did not exit within {PERF_LIMIT:?}"));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let output = Command::new("perf")
        .args(["script", "-F", "pid,event,ip,sym,dso", "-i"])
        .arg(recording.dir.join("data"))
        .current_dir(&recording.dir)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output()
        .map_err(|e| format!("perf cannot be started: {e}"))?;
    let samples = script::read(&String::from_utf8_lossy(&output.stdout));
    if samples.is_empty() {
        let wrote = String::from_utf8_lossy(&output.stderr);
        let last = wrote.lines().last().unwrap_or("no output");
        return Err(format!("perf took no samples: {last}"));
    }
    let places = look_up(&samples);
    let mut sampled: BTreeMap<String, Sampled> = BTreeMap::new();
    let mut kernel_names = false;
    for sample in &samples {
        let Some(name) = recording.names.get(&sample.pid) else { continue };
        kernel_names |= sample.frames.iter().any(|f| f.is_kernel() && !f.symbol.is_empty());
        enter(sampled.entry(name.clone()).or_default(), name, sample, &places);
    }
    let event = samples[0].event.clone();
    let sampling = Sampling {
        notes: notes(&event, kernel_names, places.is_empty(), &sampled),
        event: Some(event),
        rate_hz: RATE_HZ,
        kernel_names,
        lines: !places.is_empty(),
        missing: None,
        remedy: None,
    };
    Ok((sampling, sampled))
}

fn notes(
    event: &str,
    kernel_names: bool,
    no_lines: bool,
    sampled: &BTreeMap<String, Sampled>,
) -> Vec<String> {
    let mut notes = Vec::new();
    if event.contains("clock") {
        notes.push(
            "This machine has no hardware counter for sampling: perf's software clock was used. It does not fire while the kernel has \
             interrupts disabled; that time is attributed to the place where they are enabled again."
                .to_owned(),
        );
    }
    if !kernel_names {
        notes.push(
            "Names of kernel functions are not available (kernel.kptr_restrict, kernel.perf_event_paranoid): the \
             kernel's time counts as \"other\"."
                .to_owned(),
        );
    }
    if no_lines {
        notes.push(
            "Source lines of programs are not available (addr2line of binutils, or debug information, is missing), \
             so samples of the kinds 'payload', 'spinning' and 'harness' may be confused with each other."
                .to_owned(),
        );
    }
    let few: Vec<String> = sampled
        .iter()
        .filter(|(_, s)| s.samples < FEW)
        .map(|(name, s)| format!("{name}: {}", s.samples))
        .collect();
    if !few.is_empty() {
        notes.push(format!(
            "Few samples ({}), so the shares of time are inaccurate; measure longer (--measure-ms).",
            few.join(", ")
        ));
    }
    notes
}
