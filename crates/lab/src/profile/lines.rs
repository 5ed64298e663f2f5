//! Finds the functions (including inlined ones) and the source lines of addresses, with binutils' addr2line.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::elf::Segments;
use crossway_records::sorting::CollectTree;

/// A function at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// The function's name, without generic parameters.
    pub(super) function: String,
    /// `file:line`; empty if unknown.
    pub(super) line: String,
}

/// For each address (or offset in the file), the functions there, from the innermost outwards.
pub(super) type Places = BTreeMap<u64, Vec<Place>>;

/// Looks up offsets in a file, and returns the functions by offset; the result is empty if addr2line is missing or
/// finds nothing.
pub(super) fn look_up(dso: &Path, offsets: &BTreeSet<u64>) -> Places {
    let Some(segments) = Segments::of(dso) else { return Places::new() };
    let mut command = Command::new("addr2line");
    command.args(["-a", "-f", "-i", "-C", "-e"]).arg(dso);
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let Ok(mut child) = child else { return Places::new() };
    let questions: String =
        offsets.iter().map(|offset| format!("{:x}\n", segments.address(*offset))).collect();
    let Some(mut stdin) = child.stdin.take() else { return Places::new() };
    // addr2line answers while it still receives queries: with a single thread, both processes could wait for each
    // other.
    let asking = std::thread::spawn(move || {
        let _ = stdin.write_all(questions.as_bytes());
    });
    let Ok(output) = child.wait_with_output() else { return Places::new() };
    let _ = asking.join();
    let text = String::from_utf8_lossy(&output.stdout);
    let answered = answers(&text);
    offsets
        .iter()
        .filter_map(|offset| Some((*offset, answered.get(&segments.address(*offset))?.clone())))
        .filter(|(_, places)| !places.is_empty())
        .collect_tree()
}

/// Parses the output of addr2line by address: a line `0x...`, then two lines for each function, its name and its source
/// line.
fn answers(text: &str) -> Places {
    let mut all = Places::new();
    let mut at = 0;
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(address) = line.strip_prefix("0x") {
            at = u64::from_str_radix(address, 16).unwrap_or(0);
            all.insert(at, Vec::new());
            continue;
        }
        let Some(whole) = lines.next() else { break };
        if line == "??" {
            continue;
        }
        let line_of = whole.split(" (discriminator").next().unwrap_or(whole);
        let known = !line_of.starts_with("??") && !line_of.ends_with(":?");
        let place = Place {
            function: plain(line),
            line: if known { line_of.to_owned() } else { line_of.replace("??:0", "") },
        };
        all.entry(at).or_default().push(place);
    }
    all
}

/// A function's name without angle brackets and their contents, so that all instances of a generic function count as
/// one.
pub(super) fn plain(function: &str) -> String {
    let mut depth = 0u32;
    let mut out = String::with_capacity(function.len());
    let mut former = ' ';
    for c in function.chars() {
        match c {
            '<' => depth += 1,
            // The `>` of an arrow closes no bracket.
            '>' if former != '-' => depth = depth.saturating_sub(1),
            c if depth == 0 => out.push(c),
            _ => {}
        }
        former = c;
    }
    let out = out.replace("::::", "::");
    let out = out.trim_matches(':').trim();
    if out.is_empty() { function.to_owned() } else { out.to_owned() }
}

/// The file name at the end of a path.
pub(super) fn file_name(dso: &str) -> String {
    let path = PathBuf::from(dso);
    path.file_name().map_or_else(|| dso.to_owned(), |name| name.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inlined_functions_stand_from_the_innermost_outwards() {
        let text = "0x0000000000001234\nsum<u8>\n/x/payload.rs:40 (discriminator 3)\ncrossway::take\n/x/mod.rs:7\n\
                    0x0000000000001300\n??\n??:0\n";
        let all = answers(text);
        assert_eq!(all[&0x1234].len(), 2);
        assert_eq!(all[&0x1234][0].function, "sum");
        assert_eq!(all[&0x1234][0].line, "/x/payload.rs:40");
        assert!(all[&0x1300].is_empty());
    }

    #[test]
    fn names_lose_the_parameters_of_their_types() {
        for (whole, short) in [
            ("a::b::c<d<e>, f>", "a::b::c"),
            ("<a::B as c::D>::run", "run"),
            ("map<fn() -> u8>", "map"),
            ("plain_c", "plain_c"),
            ("<only>", "<only>"),
        ] {
            assert_eq!(plain(whole), short);
        }
    }
}
