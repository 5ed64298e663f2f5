//! Says what carries each connection, and why, if the user asks for it.

use std::ffi::OsString;
use std::fmt::Display;
use std::io::Write;
use std::net::SocketAddr;
use std::sync::OnceLock;

/// Names a file for the explanations; `-` is standard error.
pub const VARIABLE: &str = "CROSSWAY_RUN_EXPLAIN";

static PLACE: OnceLock<Option<OsString>> = OnceLock::new();

/// Explains at this place instead of the one that the environment names. To be called before anything is explained.
pub fn explain_at(place: OsString) {
    let _ = PLACE.set(Some(place));
}

fn place() -> Option<&'static OsString> {
    PLACE.get_or_init(|| std::env::var_os(VARIABLE).filter(|place| !place.is_empty())).as_ref()
}

/// Whether explanations are wanted. The first call reads the environment.
pub fn is_wanted() -> bool {
    place().is_some()
}

/// A program that has a connection.
#[derive(Clone, Debug)]
pub struct Program {
    /// Its name, without folders.
    pub name: String,
    /// Its process.
    pub pid: u32,
}

impl Program {
    /// This one.
    pub fn own() -> Self {
        let path = std::env::args_os().next().unwrap_or_default();
        let path = path.to_string_lossy();
        let name = path.rsplit('/').next().unwrap_or_default().to_owned();
        Self { name, pid: std::process::id() }
    }
}

/// Writes one line about the connection from `connecting` to `accepting`. `end` is this program's part in it.
pub fn say(
    program: impl FnOnce() -> Program,
    end: &str,
    connecting: Option<SocketAddr>,
    accepting: SocketAddr,
    what: &dyn Display,
) {
    let from = || connecting.map_or_else(|| "?".to_owned(), |from| from.to_string());
    write(program, || format!("{end} {} -> {accepting}: {what}", from()));
}

/// Writes one line about the whole program.
pub fn sum_up(program: impl FnOnce() -> Program, what: &dyn Display) {
    write(program, || format!("ends: {what}"));
}

fn write(program: impl FnOnce() -> Program, what: impl FnOnce() -> String) {
    let Some(place) = place() else { return };
    let seconds = crossway_sys::clock::unix_ms() / 1000 % 86_400;
    let Program { name, pid } = program();
    // One write, so that lines of several programs do not mix.
    let line = format!(
        "crossway run: {:02}:{:02}:{:02} UTC {name}[{pid}] {}\n",
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60,
        what(),
    );
    let _ = if place == "-" {
        std::io::stderr().write_all(line.as_bytes())
    } else {
        let file = std::fs::File::options().create(true).append(true).open(place);
        file.and_then(|mut file| file.write_all(line.as_bytes()))
    };
}
