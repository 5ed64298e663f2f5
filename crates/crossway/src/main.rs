//! The `crossway` program. Its commands are the crate `crossway-commands`.

use std::process::ExitCode;

fn main() -> ExitCode {
    crossway_commands::main()
}
