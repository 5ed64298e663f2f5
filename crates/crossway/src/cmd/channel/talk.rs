//! `crossway channel listen` and `crossway channel send`.

use std::io::{BufRead, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use crossway_channel::{Channel, Options, RecvError};

use super::Allowed;

/// Arguments of `listen`.
#[derive(clap::Args)]
pub(super) struct Listen {
    /// Name to listen on, e.g. camera/left
    name: String,
    /// Send each message back instead of printing it
    #[arg(long)]
    echo: bool,
    /// Exit when the first channel closes
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    allowed: Allowed,
}

/// Arguments of `send`.
#[derive(clap::Args)]
pub(super) struct Send {
    /// Name to connect to, e.g. camera/left
    name: String,
    /// How many seconds to wait for a listener
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    wait_s: u64,
    /// Wait for an answer to each message and print it
    #[arg(long)]
    answers: bool,
    #[command(flatten)]
    allowed: Allowed,
}

/// Prints the events of a channel, from a separate thread.
fn explain(channel: &Channel) {
    let handle = channel.handle();
    let events = handle.events();
    for event in handle.log() {
        eprintln!("{event}");
    }
    std::thread::spawn(move || events.iter().for_each(|event| eprintln!("{event}")));
}

impl Listen {
    pub(super) fn run(self, options: Options) -> anyhow::Result<ExitCode> {
        let listener = Options { policy: self.allowed.policy()?, ..options }.listen(&self.name)?;
        loop {
            let channel = listener.accept(None)?;
            if self.allowed.explain {
                explain(&channel);
            }
            let echo = self.echo;
            if self.once {
                return Ok(if serve(channel, echo)? {
                    ExitCode::SUCCESS
                } else {
                    ExitCode::FAILURE
                });
            }
            std::thread::spawn(move || {
                if let Err(error) = serve(channel, echo) {
                    eprintln!("crossway: {error:#}");
                }
            });
        }
    }
}

/// Receives until the channel closes; returns false if the peer died.
fn serve(channel: Channel, echo: bool) -> anyhow::Result<bool> {
    let name = channel.handle().name().to_owned();
    let (mut sender, mut receiver) = channel.split();
    loop {
        let received = if echo {
            receiver.recv_in_place(None, <[u8]>::to_vec).map(|msg| {
                // If the peer does not read answers, the next receive reports that it closed or died.
                let _ = sender.send(&msg, None);
                Ok(())
            })
        } else {
            receiver.recv_in_place(None, |msg| {
                let mut out = std::io::stdout().lock();
                out.write_all(msg).and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush())
            })
        };
        match received {
            Ok(written) => written.context("cannot write to standard output")?,
            Err(RecvError::Closed) => return Ok(true),
            Err(RecvError::PeerDied) => {
                eprintln!("crossway: the peer of channel '{name}' died");
                return Ok(false);
            }
            Err(error) => return Err(error.into()),
        }
    }
}

impl Send {
    pub(super) fn run(self, options: Options) -> anyhow::Result<ExitCode> {
        let until = Instant::now() + Duration::from_secs(self.wait_s);
        let options = Options { policy: self.allowed.policy()?, ..options };
        let channel = options.connect(&self.name, Some(until))?;
        if self.allowed.explain {
            explain(&channel);
        }
        let (mut sender, mut receiver) = channel.split();
        for line in std::io::stdin().lock().split(b'\n') {
            sender.send(&line.context("cannot read standard input")?, None)?;
            if self.answers {
                let answer = receiver.recv_in_place(None, <[u8]>::to_vec)?;
                println!("{}", String::from_utf8_lossy(&answer));
            }
        }
        sender.close(None)?;
        Ok(ExitCode::SUCCESS)
    }
}
