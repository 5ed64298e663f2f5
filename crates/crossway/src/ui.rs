//! What all subcommands share towards the person at the terminal: colours, JSON on standard output, exit codes.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use anyhow::Context;
use serde::Serialize;

/// It ran and the answer is no.
pub(crate) const EXIT_NO: u8 = 1;
/// It was asked for something that cannot be.
pub(crate) const EXIT_UNUSABLE: u8 = 2;
/// SIGINT or SIGTERM ended it cleanly.
pub(crate) const EXIT_INTERRUPTED: u8 = 130;

/// When to use colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Colour {
    /// On a terminal, unless NO_COLOR is set.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// How to talk to whoever reads standard output.
pub(crate) struct Ui {
    /// Colours on standard output.
    pub(crate) colour: bool,
    /// Colours on standard error.
    pub(crate) colour_stderr: bool,
}

impl Ui {
    /// Decides on colours once.
    pub(crate) fn new(colour: Colour) -> Self {
        let auto = |terminal: bool| match colour {
            Colour::Always => true,
            Colour::Never => false,
            Colour::Auto => terminal && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty()),
        };
        Ui {
            colour: auto(std::io::stdout().is_terminal()),
            colour_stderr: auto(std::io::stderr().is_terminal()),
        }
    }

    /// Prints a value as JSON for a program to read: one document, newline at its end.
    pub(crate) fn print_json(&self, value: &impl Serialize) -> anyhow::Result<()> {
        let mut out = std::io::stdout().lock();
        let mut write = || -> std::io::Result<()> {
            serde_json::to_writer_pretty(&mut out, value)?;
            writeln!(out)
        };
        write().map_err(output_failed)
    }

    /// Wraps `text` in an SGR code (`1` bold, `2` dim, `31` red, `32` green, `33` yellow) where colours are on.
    pub(crate) fn paint(&self, sgr: &str, text: &str) -> String {
        if self.colour { format!("\x1b[{sgr}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// The exit code for "it worked" or "the answer is no".
pub(crate) fn verdict(good: bool) -> ExitCode {
    if good { ExitCode::SUCCESS } else { ExitCode::from(EXIT_NO) }
}

/// An error with its causes, each told once: many of them name their cause themselves.
pub(crate) fn causes(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

/// What is to be said when standard output takes nothing; when its reader has left, nothing is.
pub(crate) fn output_failed(why: impl std::fmt::Display) -> anyhow::Error {
    let why = why.to_string();
    if why.contains("Broken pipe") {
        std::process::exit(0);
    }
    anyhow::anyhow!("cannot write to standard output: {why}; make room, or send it elsewhere")
}

/// `crossway ... | head` ends quietly; any other reason why standard output takes nothing, a full disk above all, is one error.
pub(crate) fn quiet_on_closed_pipe() {
    let default_hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let said = info.payload().downcast_ref::<String>();
        let Some(why) = said.and_then(|m| m.strip_prefix("failed printing to stdout: ")) else {
            return default_hook(info);
        };
        if why.starts_with("Broken pipe") {
            std::process::exit(0);
        }
        eprintln!(
            "crossway: cannot write to standard output: {why}; make room, or send it elsewhere"
        );
        std::process::exit(EXIT_UNUSABLE.into());
    }));
}

/// Diagnostics go to standard error.
pub(crate) fn start_tracing(verbose: u8, ui: &Ui) {
    let level = match verbose {
        0 => tracing::Level::WARN,
        1 => tracing::Level::INFO,
        _ => tracing::Level::TRACE,
    };
    tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr)
        .with_ansi(ui.colour_stderr)
        .without_time()
        .init();
}

/// SIGINT and SIGTERM, for a subcommand that ends by them and still has something to do then.
pub(crate) struct Interrupts(std::sync::Arc<std::sync::atomic::AtomicBool>);

impl Interrupts {
    /// Has the signals noted from now on instead of ending the process.
    pub(crate) fn catch() -> anyhow::Result<Self> {
        let flag = std::sync::Arc::default();
        for number in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            signal_hook::flag::register(number, std::sync::Arc::clone(&flag))
                .context("cannot catch signals")?;
        }
        Ok(Self(flag))
    }

    /// Whether one came.
    pub(crate) fn any(&self) -> bool {
        self.0.load(std::sync::atomic::Ordering::Relaxed)
    }
}
