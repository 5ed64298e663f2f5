//! One trial: the listening program moves to the other node and back while messages flow.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crossway_channel::check::Checked;
use crossway_netlab::Host;
use crossway_sys::proc;

/// The name of the channel.
const NAME: &str = "c9";
/// Duration of the message flow before, between and after the moves.
const STAY: Duration = Duration::from_millis(1500);
/// Time limit for a program to exit; one that takes longer counts as stuck.
const STUCK: Duration = Duration::from_secs(30);
/// Interval between checks whether a program has exited.
const LOOK: Duration = Duration::from_millis(2);

/// Where the programs of a trial run.
pub(super) struct Places<'a> {
    pub(super) program: &'a Path,
    /// The client's node, then the other node.
    pub(super) hosts: &'a [Host],
    /// The sockets of the two nodes' tipcds.
    pub(super) sockets: [PathBuf; 2],
    /// The directory in which each node has its directory of channel names.
    pub(super) room: PathBuf,
}

impl Places<'_> {
    /// The command `crossway channel` on a node. The arguments are the same on every node; environment variables state
    /// the node's socket and directory.
    fn channel(&self, node: usize, words: &[&str]) -> Command {
        let mut command = self.hosts[node].command(self.program);
        command.arg("channel").args(words);
        command.env("CROSSWAY_CHANNEL_DIR", self.room.join(format!("{node}")));
        command.env("CROSSWAY_CHANNEL_TIPC", &self.sockets[node]);
        command.env("CROSSWAY_CHANNEL_PLAIN", "1");
        for unset in ["KEY", "HOSTS", "PROFILE"] {
            command.env_remove(format!("CROSSWAY_CHANNEL_{unset}"));
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        proc::die_with_parent(&mut command);
        command
    }

    fn listen(&self, node: usize, more: &[&str]) -> Result<Program, String> {
        Program::start(self.channel(node, &[&["listen", NAME, "--echo"][..], more].concat()))
    }
}

/// A program, which is killed when this value is dropped.
struct Program(Child);

impl Program {
    fn start(mut command: Command) -> Result<Program, String> {
        command
            .spawn()
            .map(Program)
            .map_err(|error| format!("cannot start `crossway channel`: {error}"))
    }

    /// Waits until the program exits; returns an error unless it succeeded. `which` names the program in the error.
    fn end(&mut self, which: &str) -> Result<(), String> {
        let until = Instant::now() + STUCK;
        loop {
            match self.0.try_wait() {
                Ok(Some(status)) if status.success() => return Ok(()),
                Ok(Some(status)) => {
                    let mut said = String::new();
                    if let Some(stderr) = &mut self.0.stderr {
                        let _ = stderr.read_to_string(&mut said);
                    }
                    return Err(format!("{which} ended with {status}: {}", said.trim()));
                }
                Ok(None) if Instant::now() < until => std::thread::sleep(LOOK),
                Ok(None) => return Err(format!("{which} did not end within {STUCK:?}")),
                Err(error) => return Err(format!("{which}: {error}")),
            }
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs the trial; returns what the client counted, or why the trial failed.
pub(super) fn run(places: &Places<'_>) -> Result<Checked, String> {
    let mut server = places.listen(0, &[])?;
    let mut client = Program::start(places.channel(0, &["check", NAME, "--json"]))?;
    for node in [1, 0] {
        std::thread::sleep(STAY);
        let next = places.listen(node, &["--take-over"])?;
        server.end("the listening program that was replaced")?;
        server = next;
    }
    std::thread::sleep(STAY);
    let output = client.0.stdout.take();
    drop(client.0.stdin.take());
    // A small document, which fits into the pipe.
    let ended = client.end("the client");
    let mut text = String::new();
    if let Some(mut output) = output {
        output.read_to_string(&mut text).map_err(|error| error.to_string())?;
    }
    // If messages were lost, the client says so by its exit status, too; the counts are what matters.
    serde_json::from_slice(text.as_bytes()).map_err(|error| match ended {
        Err(why) => why,
        Ok(()) => format!("the client printed no counts: {error}"),
    })
}
