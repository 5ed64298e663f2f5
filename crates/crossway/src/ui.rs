//! What all subcommands share: colours, width, JSON on standard output, exit codes.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use anyhow::Context;
use serde::Serialize;

/// It ran and the answer is no.
pub(crate) const EXIT_NO: u8 = 1;
/// The request cannot be met: bad arguments, a bad plan, an unreadable file.
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

/// How output is presented.
pub(crate) struct Ui {
    /// Colours on standard output.
    pub(crate) colour: bool,
    /// Colours on standard error.
    pub(crate) colour_stderr: bool,
    /// Columns of standard output.
    pub(crate) width: u16,
    /// How much detail is asked for: how often `-v` was given.
    pub(crate) verbose: u8,
}

/// The width of what is no terminal, and of one that does not tell its own.
const WIDTH_USUAL: u16 = 80;
/// No table is legible in less.
const WIDTH_LEAST: u16 = 40;

impl Ui {
    /// Decides on colours and the width once.
    pub(crate) fn new(colour: Colour, verbose: u8) -> Self {
        let auto = |terminal: bool| match colour {
            Colour::Always => true,
            Colour::Never => false,
            Colour::Auto => terminal && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty()),
        };
        Ui {
            colour: auto(std::io::stdout().is_terminal()),
            colour_stderr: auto(std::io::stderr().is_terminal()),
            width: width(),
            verbose,
        }
    }

    /// Without colours, 80 columns wide.
    #[cfg(test)]
    pub(crate) fn plain() -> Self {
        Ui { colour: false, colour_stderr: false, width: WIDTH_USUAL, verbose: 0 }
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

    /// Prints a painted word and text after it, broken at spaces to keep within the width.
    pub(crate) fn print_noted(&self, sgr: &str, word: &str, text: &str) {
        let mut line = String::new();
        let mut column = word.chars().count();
        for part in text.split_whitespace() {
            let len = part.chars().count();
            if column + 1 + len > usize::from(self.width) && !line.is_empty() {
                line.push_str("\n ");
                column = 1;
            }
            line.push(' ');
            line.push_str(part);
            column += 1 + len;
        }
        println!("{}{line}", self.paint(sgr, word));
    }

    /// Wraps `text` in an SGR code (`1` bold, `2` dim, `31` red, `32` green, `33` yellow) where colours are on.
    pub(crate) fn paint(&self, sgr: &str, text: &str) -> String {
        if self.colour { format!("\x1b[{sgr}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// COLUMNS where it is set, as a shell's user may; else the terminal's own width.
fn width() -> u16 {
    let asked = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let own = || console::Term::stdout().size_checked().map(|(_, columns)| columns);
    asked.or_else(own).unwrap_or(WIDTH_USUAL).max(WIDTH_LEAST)
}

/// The exit code for "it worked" or "the answer is no".
pub(crate) fn verdict(good: bool) -> ExitCode {
    if good { ExitCode::SUCCESS } else { ExitCode::from(EXIT_NO) }
}

/// An error with its causes, each stated once: many of them name their cause themselves.
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

/// The error for standard output that cannot be written; ends the program quietly when the reader has closed it.
pub(crate) fn output_failed(why: impl std::fmt::Display) -> anyhow::Error {
    let why = why.to_string();
    if why.contains("Broken pipe") {
        std::process::exit(0);
    }
    anyhow::anyhow!("cannot write to standard output: {why}; make room, or redirect it elsewhere")
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
            "crossway: cannot write to standard output: {why}; make room, or redirect it elsewhere"
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

/// SIGINT and SIGTERM, for a subcommand that has something left to do when they end it.
pub(crate) struct Interrupts(std::sync::Arc<std::sync::atomic::AtomicBool>);

impl Interrupts {
    /// Catches the signals from now on instead of ending the process.
    pub(crate) fn catch() -> anyhow::Result<Self> {
        let flag = std::sync::Arc::default();
        for number in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            signal_hook::flag::register(number, std::sync::Arc::clone(&flag))
                .context("cannot catch signals")?;
        }
        Ok(Self(flag))
    }

    /// Whether one was caught.
    pub(crate) fn any(&self) -> bool {
        self.0.load(std::sync::atomic::Ordering::Relaxed)
    }
}
