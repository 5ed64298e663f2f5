//! Says what carries each connection, and why, if the user asks for it.

use std::ffi::OsString;
use std::fmt::Display;
use std::io::Write;
use std::net::SocketAddr;
use std::sync::OnceLock;

/// Names a file for the explanations; `-` is standard error.
const VARIABLE: &str = "CROSSWAY_RUN_EXPLAIN";

fn place() -> Option<&'static OsString> {
    static PLACE: OnceLock<Option<OsString>> = OnceLock::new();
    PLACE.get_or_init(|| std::env::var_os(VARIABLE).filter(|place| !place.is_empty())).as_ref()
}

/// Whether explanations are wanted.
pub(crate) fn is_wanted() -> bool {
    place().is_some()
}

/// Reads the variable before the program can change it.
pub(crate) fn prepare() {
    let _ = place();
}

/// One line about the connection from `connecting` to `accepting`. `end` is this program's part in it.
pub(crate) fn say(
    end: &str,
    connecting: Option<SocketAddr>,
    accepting: SocketAddr,
    what: &dyn Display,
) {
    let Some(place) = place() else { return };
    let seconds = crossway_sys::clock::unix_ms() / 1000 % 86_400;
    let program = std::env::args_os().next().unwrap_or_default();
    let program = program.to_string_lossy();
    let program = program.rsplit('/').next().unwrap_or_default();
    let from = connecting.map_or_else(|| "?".to_owned(), |from| from.to_string());
    // One write, so that lines of several programs do not mix.
    let line = format!(
        "crossway run: {:02}:{:02}:{:02} UTC {program}[{}] {end} {from} -> {accepting}: {what}\n",
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60,
        std::process::id()
    );
    let _ = if place == "-" {
        std::io::stderr().write_all(line.as_bytes())
    } else {
        let file = std::fs::File::options().create(true).append(true).open(place);
        file.and_then(|mut file| file.write_all(line.as_bytes()))
    };
}
