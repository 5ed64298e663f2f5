//! Writes paths and other words into commands that the user may copy into a shell.

use std::path::Path;

/// A word of a command: quoted if it has spaces, quotes or other characters that a shell would interpret. Bytes that
/// are not UTF-8 are replaced, as in other messages.
pub fn word(text: impl AsRef<Path>) -> String {
    // The only text that cannot be quoted has NUL characters, which no path and no argument has.
    let text = text.as_ref().to_string_lossy().replace('\0', "\u{fffd}");
    match shlex::try_quote(&text) {
        Ok(quoted) => quoted.into_owned(),
        Err(_) => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_back_the_same_word() {
        for text in ["out/latest", "a b", "it's", "two\nlines", "$HOME", "\"q\"", "", "ä;\\"] {
            let command = format!("crossway report {} --json", word(text));
            let words = shlex::split(&command).unwrap();
            assert_eq!(words, ["crossway", "report", text, "--json"]);
        }
        assert_eq!(word("out/2026-11-30T18-10-13Z-4591"), "out/2026-11-30T18-10-13Z-4591");
    }
}
