//! Records running processes with the program strace.
//!
//! strace attaches to the processes; when it ends, in whichever way, the kernel detaches it and the processes go on. It
//! writes no contents of buffers (`-s 0`).

use std::io::{BufReader, Read};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use crossway_sys::proc;
use crossway_sys::processes::ProcessFiles;

use crate::import::TRACED_CALLS;

/// How long strace may take to attach, or say why it cannot.
const ATTACH_LIMIT: Duration = Duration::from_secs(20);
/// Calls with which the cost of a traced call is measured; dd makes two for each block.
const CALIBRATION_BLOCKS: u64 = 2000;

/// Why processes cannot be recorded.
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    /// There is no strace.
    #[error(
        "cannot record: the program strace is missing; sudo apt-get install strace, or import a log from elsewhere with \
         --import"
    )]
    NoStrace,
    /// It did not attach.
    #[error("strace cannot attach: {0}; {1}")]
    Refused(String, &'static str),
    /// A program could not be started.
    #[error("cannot start {0}: {1}")]
    Start(&'static str, std::io::Error),
}

/// strace, attached to processes.
pub struct Tracer {
    child: Child,
}

impl Tracer {
    /// Attaches to all threads of these processes, and to what they start later. Must be called by a thread that lives
    /// as long as the recording: strace ends with it.
    ///
    /// # Errors
    /// strace is missing, or may not attach to any of them.
    pub fn attach(pids: &[u32]) -> Result<(Tracer, BufReader<ChildStdout>), LiveError> {
        let mut command = Command::new("strace");
        command.args(options()).args(["-o", "/dev/stdout"]);
        for pid in pids {
            command.args(["-p", &pid.to_string()]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // Ctrl-C is for the recorder, which then ends strace and reads its log to the end.
        proc::own_session(&mut command);
        proc::terminate_with_parent(&mut command);
        let mut child = command.spawn().map_err(start)?;
        let log = BufReader::new(child.stdout.take().expect("its output is a pipe"));
        let mut tracer = Tracer { child };
        let files = ProcessFiles::new();
        let until = Instant::now() + ATTACH_LIMIT;
        loop {
            if pids.iter().any(|pid| files.is_traced(*pid)) {
                return Ok((tracer, log));
            }
            let ended = tracer.child.try_wait().ok().flatten().is_some();
            if ended || Instant::now() > until {
                return Err(tracer.refusal());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The number of strace's process, to end it from another thread while its log is read.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    fn refusal(&mut self) -> LiveError {
        let _ = self.child.kill();
        let mut said = String::new();
        if let Some(mut errors) = self.child.stderr.take() {
            let _ = errors.read_to_string(&mut said);
        }
        let why = said.lines().next_back().unwrap_or("it did not say why").trim();
        let why = why.trim_start_matches("strace: ").to_owned();
        let remedy = if why.contains("not permitted") {
            "run as root, or allow it: sudo sysctl kernel.yama.ptrace_scope=0 (in a container: --cap-add SYS_PTRACE); \
             another debugger may also be attached"
        } else {
            "check that the processes still run"
        };
        LiveError::Refused(why, remedy)
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        proc::terminate(self.child.id());
        let _ = self.child.wait();
    }
}

fn options() -> [String; 8] {
    let trace = format!("trace={TRACED_CALLS}");
    ["-f", "-ttt", "-T", "-yy", "-s0", "-esignal=none", "-e", &trace].map(str::to_owned)
}

fn start(error: std::io::Error) -> LiveError {
    match error.kind() {
        std::io::ErrorKind::NotFound => LiveError::NoStrace,
        _ => LiveError::Start("strace", error),
    }
}

/// Measures what strace adds to a call of a traced program: dd copies single bytes with and without it. Nanoseconds per
/// call.
///
/// # Errors
/// strace or dd is missing, or may not trace its own child.
pub fn measured_cost_ns() -> Result<u64, LiveError> {
    let count = format!("count={CALIBRATION_BLOCKS}");
    let dd = ["dd", "if=/dev/zero", "of=/dev/null", "bs=1", &count];
    let time = |mut command: Command| -> Result<Duration, LiveError> {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let began = Instant::now();
        let status = command.status().map_err(start)?;
        if status.success() {
            return Ok(began.elapsed());
        }
        let why = "strace or dd failed in the calibration".to_owned();
        Err(LiveError::Refused(why, "run `strace true` to see why"))
    };
    let mut plain = Command::new(dd[0]);
    plain.args(&dd[1..]);
    let mut traced = Command::new("strace");
    traced.args(options()).args(["-o", "/dev/null"]).args(dd);
    let (traced, plain) = (time(traced)?, time(plain)?);
    let calls = 2 * CALIBRATION_BLOCKS;
    Ok(traced.saturating_sub(plain).as_nanos() as u64 / calls)
}
