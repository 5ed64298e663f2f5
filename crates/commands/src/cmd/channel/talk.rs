//! `crossway channel listen` and `crossway channel send`.

use std::io::{BufRead, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use crossway_channel::{Channel, Error, EventKind, Listener, RecvError};
use crossway_sys::poll::{Interest, wait_ready};

use super::Opening;
use crate::ui::{EXIT_INTERRUPTED, Interrupts};

/// Interval between checks whether the listener is interrupted, or another process wants to take over an idle channel.
const LOOK: Duration = Duration::from_millis(100);
/// Maximum time to wait for a peer to receive the messages sent to it before its channel is handed over; after that,
/// the hand-over fails.
const HAND_OVER: Duration = Duration::from_secs(10);

/// Maximum time to wait for the goodbye of a peer that has closed its channel.
const GOODBYE: Duration = Duration::from_secs(1);

/// Arguments of `listen`.
#[derive(clap::Args)]
pub(super) struct Listen {
    /// Name to listen on, e.g. camera/left
    name: String,
    /// Send each message back instead of printing it
    #[arg(long)]
    echo: bool,
    /// Accept a single channel, and exit when it closes
    #[arg(long)]
    once: bool,
    /// Take over the channels of the program that listens on this name, on this host or another; that program then
    /// exits
    #[arg(long, conflicts_with = "once")]
    take_over: bool,
    /// With --take-over: seconds to wait for the other listener
    #[arg(long, value_name = "SECONDS", default_value_t = 10, requires = "take_over")]
    wait_s: u64,
    #[command(flatten)]
    opening: Opening,
}

/// Arguments of `send`.
#[derive(clap::Args)]
pub(super) struct Send {
    /// Name to connect to, e.g. camera/left
    name: String,
    /// Seconds to wait for a listener
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    wait_s: u64,
    /// Wait for an answer to each message and print it
    #[arg(long)]
    answers: bool,
    #[command(flatten)]
    opening: Opening,
}

/// Prints the events of a channel so far, and starts a thread that prints the later ones until one of them ends
/// the channel.
pub(super) fn explain(channel: &Channel) -> JoinHandle<()> {
    let handle = channel.handle();
    let events = handle.events();
    for event in handle.log() {
        eprintln!("{event}");
    }
    std::thread::spawn(move || {
        for event in events.iter() {
            eprintln!("{event}");
            if event.what.is_end() {
                break;
            }
        }
    })
}

impl Listen {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let options = self.opening.options()?;
        // A listener that is interrupted removes its name.
        let interrupts = Interrupts::catch()?;
        let (listener, mut channels) = if self.take_over {
            let until = Instant::now().checked_add(Duration::from_secs(self.wait_s));
            let taken = options.take_over(&self.name, until)?;
            if let Some(error) = taken.incomplete {
                let count = taken.channels.len();
                eprintln!(
                    "crossway: took over {count} of the channels; any others are lost: {error}"
                );
            }
            (taken.listener, taken.channels)
        } else {
            (options.listen(&self.name)?, Vec::new())
        };
        if self.once {
            let channel = loop {
                match listener.accept(Some(Instant::now() + LOOK)) {
                    Err(Error::NobodyConnected { .. }) if !interrupts.any() => {}
                    Err(Error::NobodyConnected { .. }) => {
                        return Ok(ExitCode::from(EXIT_INTERRUPTED));
                    }
                    accepted => break accepted?,
                }
            };
            let asked = || interrupts.any() || listener.is_asked_to_hand_over();
            return match self.serve(channel, &asked)? {
                End::Asked(_) if interrupts.any() => Ok(ExitCode::from(EXIT_INTERRUPTED)),
                End::Closed => Ok(ExitCode::SUCCESS),
                End::Died => Ok(ExitCode::FAILURE),
                End::Asked(channel) => hand_over(listener, vec![*channel]),
            };
        }
        let (asked, this) = (Arc::new(AtomicBool::new(false)), Arc::new(self));
        let mut serving: Vec<JoinHandle<Option<Channel>>> = Vec::new();
        loop {
            for channel in channels.drain(..) {
                let (asked, this) = (Arc::clone(&asked), Arc::clone(&this));
                serving.push(std::thread::spawn(move || {
                    match this.serve(channel, &|| asked.load(Ordering::Relaxed)) {
                        Ok(End::Asked(channel)) => return Some(*channel),
                        Ok(End::Closed | End::Died) => {}
                        Err(error) => eprintln!("crossway: {error:#}"),
                    }
                    None
                }));
            }
            serving.retain(|thread| !thread.is_finished());
            if interrupts.any() {
                return Ok(ExitCode::from(EXIT_INTERRUPTED));
            }
            if listener.is_asked_to_hand_over() {
                asked.store(true, Ordering::Relaxed);
                let threads = serving.drain(..);
                return hand_over(listener, threads.filter_map(|t| t.join().ok()?).collect());
            }
            match listener.accept(Some(Instant::now())) {
                Ok(channel) => channels.push(channel),
                Err(Error::NobodyConnected { .. }) => {
                    wait_ready(&listener, Interest::Readable, Some(Instant::now() + LOOK))
                        .context("cannot wait for connections")?;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Receives until the channel closes or another process wants to take it over.
    fn serve(&self, mut channel: Channel, asked: &dyn Fn() -> bool) -> anyhow::Result<End> {
        let explaining = self.opening.explain.then(|| explain(&channel));
        loop {
            if asked() {
                return Ok(End::Asked(Box::new(channel)));
            }
            let until = Some(Instant::now() + LOOK);
            let received = if self.echo {
                channel.receiver().recv_in_place(until, <[u8]>::to_vec).map(|msg| {
                    // If the peer does not read answers, the next receive reports that it closed or died.
                    let _ = channel.sender().send(&msg, None);
                    Ok(())
                })
            } else {
                channel.receiver().recv_in_place(until, |msg| {
                    let mut out = std::io::stdout().lock();
                    out.write_all(msg)
                        .and_then(|()| out.write_all(b"\n"))
                        .and_then(|()| out.flush())
                })
            };
            match received {
                Ok(written) => written.context("cannot write to standard output")?,
                Err(RecvError::TimedOut) => {}
                Err(RecvError::Closed) => {
                    // The peer still says goodbye, which the log then contains.
                    let is_over = channel.handle().wait_until_over(Some(Instant::now() + GOODBYE));
                    if let Some(thread) = explaining.filter(|_| is_over) {
                        // A thread that printed can only have panicked because standard error is closed.
                        let _ = thread.join();
                    }
                    return Ok(End::Closed);
                }
                Err(RecvError::PeerDied) => {
                    eprintln!(
                        "crossway: the peer of channel '{}' died or its connection broke",
                        self.name
                    );
                    return Ok(End::Died);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// The reason why a listener no longer serves a channel.
enum End {
    Closed,
    Died,
    /// Another process wants to take the channel over.
    Asked(Box<Channel>),
}

fn hand_over(listener: Listener, channels: Vec<Channel>) -> anyhow::Result<ExitCode> {
    let count = listener.hand_over(channels, Some(Instant::now() + HAND_OVER))?;
    eprintln!("channels handed to another process: {count}");
    Ok(ExitCode::SUCCESS)
}

impl Send {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let until = Instant::now().checked_add(Duration::from_secs(self.wait_s));
        let options = self.opening.options()?;
        let channel = options.connect(&self.name, until)?;
        if self.opening.explain {
            explain(&channel);
        }
        let handle = channel.handle();
        let (mut sender, mut receiver) = channel.split();
        for line in std::io::stdin().lock().split(b'\n') {
            sender.send(&line.context("cannot read standard input")?, None)?;
            if self.answers {
                let answer = receiver.recv_in_place(None, <[u8]>::to_vec)?;
                println!("{}", String::from_utf8_lossy(&answer));
            }
        }
        sender.close(None)?;
        drop(receiver);
        handle.wait_until_over(None);
        let why = match handle.log().pop().map(|event| event.what) {
            Some(EventKind::PeerDied) => "it died, or its connection broke".to_owned(),
            Some(EventKind::Violated(why)) => format!("it violated the protocol: {why}"),
            _ => return Ok(ExitCode::SUCCESS),
        };
        bail!(
            "the listener of channel '{}' may not have received everything ({why}); start it again and repeat the command",
            self.name
        )
    }
}
