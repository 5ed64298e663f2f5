//! Parts shared by all subcommands: colours, width, JSON on standard output, exit codes.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU8, Ordering};

use anyhow::Context;
use console::Term;
use crossway_report::terminal::wrap_indented;
use serde::Serialize;

/// Exit code: the command ran, but the answer is negative.
pub(crate) const EXIT_NO: u8 = 1;
/// Exit code: the request cannot be met because of bad arguments, a bad plan or an unreadable file.
pub(crate) const EXIT_UNUSABLE: u8 = 2;
/// Exit code: SIGINT or SIGTERM stopped the command cleanly.
pub(crate) const EXIT_INTERRUPTED: u8 = 130;

/// When to use colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Colour {
    /// On a terminal, unless NO_COLOR is set.
    Auto,
    /// Even if the output is not a terminal.
    Always,
    /// Not even on a terminal.
    Never,
}

/// Settings for the presentation of output.
pub(crate) struct Ui {
    /// Whether standard output is coloured.
    pub(crate) colour: bool,
    /// Whether standard error is coloured.
    pub(crate) colour_stderr: bool,
    /// Width of standard output in columns.
    pub(crate) width: u16,
    /// Width of standard error in columns. If standard error is not a terminal and COLUMNS is not set, lines are not
    /// wrapped, so that each line of a log file is complete.
    pub(crate) width_stderr: u16,
    /// Level of detail: the number of `-v` options.
    pub(crate) verbose: u8,
}

/// Width in columns of a terminal that does not report it, and of standard output if it is not a terminal.
const WIDTH_USUAL: u16 = 80;
/// Minimum width in columns; tables are illegible below it.
const WIDTH_LEAST: u16 = 40;

impl Ui {
    /// Determines colours and width.
    pub(crate) fn new(colour: Colour, verbose: u8) -> Self {
        let auto = |terminal: bool| match colour {
            Colour::Always => true,
            Colour::Never => false,
            Colour::Auto => terminal && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty()),
        };
        let terminal = std::io::stderr().is_terminal();
        Ui {
            colour: auto(std::io::stdout().is_terminal()),
            colour_stderr: auto(terminal),
            width: width(&Term::stdout(), WIDTH_USUAL),
            width_stderr: width(&Term::stderr(), if terminal { WIDTH_USUAL } else { u16::MAX }),
            verbose,
        }
    }

    /// Returns a value for tests: without colours, 80 columns wide.
    #[cfg(test)]
    pub(crate) fn plain() -> Self {
        Ui {
            colour: false,
            colour_stderr: false,
            width: WIDTH_USUAL,
            width_stderr: WIDTH_USUAL,
            verbose: 0,
        }
    }

    /// Prints a value as one JSON document with a newline at its end.
    pub(crate) fn print_json(&self, value: &impl Serialize) -> anyhow::Result<()> {
        let mut out = std::io::stdout().lock();
        let mut write = || -> std::io::Result<()> {
            serde_json::to_writer_pretty(&mut out, value)?;
            writeln!(out)
        };
        write().map_err(output_failed)
    }

    /// Prints a coloured word and the text after it, wrapped at spaces to the width.
    pub(crate) fn print_noted(&self, sgr: &str, word: &str, text: &str) {
        let line = wrap_indented(text, self.width, word.chars().count() + 1, 1);
        println!("{} {line}", self.paint(sgr, word));
    }

    /// Prints a paragraph that begins in column `indent`, wrapped at spaces to the width; its further lines begin two
    /// columns later.
    pub(crate) fn print_wrapped(&self, indent: usize, text: &str) {
        let text = wrap_indented(text, self.width, indent, indent + 2);
        println!("{}{text}", " ".repeat(indent));
    }

    /// Prints a paragraph to standard error, wrapped at spaces to its width.
    pub(crate) fn tell(&self, text: &str) {
        eprintln!("{}", wrap_indented(text, self.width_stderr, 0, 2));
    }

    /// Prints a note to standard error.
    pub(crate) fn note(&self, text: &str) {
        self.tell(&format!("note: {text}"));
    }

    /// Wraps `text` in an SGR code (`1` bold, `2` dim, `31` red, `32` green, `33` yellow) if standard output is
    /// coloured.
    pub(crate) fn paint(&self, sgr: &str, text: &str) -> String {
        if self.colour { format!("\x1b[{sgr}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// Returns the width in columns: COLUMNS if it is a number, else the width that the terminal reports, else `unknown`;
/// at least [`WIDTH_LEAST`].
fn width(of: &Term, unknown: u16) -> u16 {
    let asked = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let own = || of.size_checked().map(|(_, columns)| columns);
    asked.or_else(own).unwrap_or(unknown).max(WIDTH_LEAST)
}

/// Returns the exit code for success if `good` is true, otherwise that for a negative answer.
pub(crate) fn verdict(good: bool) -> ExitCode {
    if good { ExitCode::SUCCESS } else { ExitCode::from(EXIT_NO) }
}

/// Formats an error and its causes in one line. A cause that the text already contains is not
/// repeated, because many errors include their cause. Control characters, which may come from a
/// stranger's file, are left out.
pub(crate) fn causes(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text.replace(|c: char| c.is_control() && c != '\n', " ")
}

/// The exit code of the program if the reader of its output closes the pipe.
static IF_CLOSED: AtomicU8 = AtomicU8::new(0);

/// Records the exit code for the answer `good` before the output is printed, so that `crossway compare ... | head`
/// exits with the same code as `crossway compare`.
pub(crate) fn decide(good: bool) {
    IF_CLOSED.store(if good { 0 } else { EXIT_NO }, Ordering::Relaxed);
}

/// Ends the program without a message, because its output is no longer read.
fn end_on_closed_pipe() -> ! {
    crossway_mech::mechanisms::tipc_node::end();
    std::process::exit(IF_CLOSED.load(Ordering::Relaxed).into())
}

/// Returns the error for a failed write to standard output. If the reader closed the pipe, exits without a message.
pub(crate) fn output_failed(why: impl std::fmt::Display) -> anyhow::Error {
    let why = why.to_string();
    if why.contains("Broken pipe") {
        end_on_closed_pipe();
    }
    anyhow::anyhow!(
        "cannot write to standard output: {why}; free some space, or redirect it elsewhere"
    )
}

/// Turns what the standard library panics at into one error: a failure to write to standard output, such as a full disk, and
/// a thread that cannot be started. Makes `crossway ... | head` end without a message.
pub(crate) fn report_what_the_library_panics_at() {
    let default_hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let said = info.payload().downcast_ref::<String>();
        if said.is_some_and(|said| said.starts_with("failed to spawn thread: ")) {
            eprintln!("crossway: cannot start a thread: {}", crossway_sys::error::RAISE_PROCESSES);
            std::process::exit(EXIT_UNUSABLE.into());
        }
        let Some(why) = said.and_then(|m| m.strip_prefix("failed printing to stdout: ")) else {
            return default_hook(info);
        };
        if why.starts_with("Broken pipe") {
            end_on_closed_pipe();
        }
        eprintln!(
            "crossway: cannot write to standard output: {why}; free some space, or redirect it elsewhere"
        );
        std::process::exit(EXIT_UNUSABLE.into());
    }));
}

/// Sends diagnostics to standard error; `verbose` is the number of `-v` options.
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
        // If standard error is closed: it would say so there, and panic.
        .log_internal_errors(false)
        .init();
}

/// Returns the bytes that clear the terminal and show the text, cut to the terminal's current lines and columns.
pub(crate) fn on_screen(text: &[u8]) -> Vec<u8> {
    let (rows, columns) = Term::stdout().size();
    // Cursor home, then clear the screen.
    let mut screen = b"\x1b[H\x1b[2J".to_vec();
    let text = String::from_utf8_lossy(text);
    for line in text.lines().take(usize::from(rows).saturating_sub(1)) {
        screen.extend(console::truncate_str(line, columns.into(), "").bytes());
        screen.push(b'\n');
    }
    screen
}

/// Catches SIGINT and SIGTERM for a subcommand that has to finish something before it exits.
pub(crate) struct Interrupts(std::sync::Arc<std::sync::atomic::AtomicBool>);

impl Interrupts {
    /// Starts to catch the signals, so that they no longer end the process.
    pub(crate) fn catch() -> anyhow::Result<Self> {
        let flag = std::sync::Arc::default();
        for number in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            signal_hook::flag::register(number, std::sync::Arc::clone(&flag))
                .context("cannot catch signals")?;
        }
        Ok(Self(flag))
    }

    /// Returns whether a signal has arrived.
    pub(crate) fn any(&self) -> bool {
        self.0.load(std::sync::atomic::Ordering::Relaxed)
    }
}
