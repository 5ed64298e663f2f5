//! Checks the tables of docs/TIPC.md that list the result of each call in each state, and the effect of each event on each
//! state. `CROSSWAY_WRITE=1` writes them, from runs on one kernel, between two, on one `tipcd` and between two; without it
//! the runs here must reproduce what is written.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use crossway_sys::proc;

use crate::here;
use crate::nodes::{Node, Site, Two, What};

const PYTHON: &str = "/usr/bin/python3";
const BEGIN: &str = "<!-- states -->\n";
/// How long, in seconds, nodes get between two steps of a run that is written down, and of one that shows what a busy
/// machine had no time for.
const CALM: &str = "0.1";
const SLOW: &str = "0.15";
/// How often, in seconds, a `tipcd` probes connections of the table of probes; the script has the same constant.
const PROBING: &str = "2";
const END: &str = "<!-- end of states -->\n";

type Row = Vec<String>;
/// The rows of a table; the first one has the columns' names.
type Table = Vec<Row>;

/// The tables that a run printed, each followed by an empty line.
fn tables(text: &str) -> Vec<Table> {
    let table = |lines: &str| -> Table {
        lines.lines().filter(|line| !line.starts_with("| ---")).map(cells).collect()
    };
    text.split("\n\n").filter(|part| !part.trim().is_empty()).map(table).collect()
}

fn cells(line: &str) -> Row {
    let inner = line.strip_prefix("| ").and_then(|l| l.strip_suffix(" |"));
    let inner = inner.unwrap_or_else(|| panic!("no row of a table: {line}"));
    inner.split(" | ").map(str::to_owned).collect()
}

/// The results for one kind of node: within one node, between two, after the loss of the other, and after probes by a
/// `tipcd`.
struct Answers {
    one: Vec<Table>,
    two: Vec<Table>,
    lost: Vec<Table>,
    probed: Vec<Table>,
}

/// Starts the script, whose lines the reader delivers.
fn started(node: &Node, words: &[&str]) -> (Child, BufReader<std::process::ChildStdout>) {
    let script = here("states.py");
    let words: Vec<&Path> = [Path::new(PYTHON), &script]
        .into_iter()
        .chain(words.iter().map(|word| Path::new(*word)))
        .collect();
    let mut child = node.command(&words).stdout(Stdio::piped()).spawn().unwrap();
    let said = BufReader::new(child.stdout.take().unwrap());
    (child, said)
}

/// The output of the script's part `part` with its peer on another node, or on the same.
fn asked(part: &str, node: &Node, others: &Node, settling: &[&str]) -> Vec<Table> {
    let (mut peer, _) = started(others, &["peer"]);
    let (mut child, mut said) = started(node, &[&[part], settling].concat());
    let mut text = String::new();
    said.read_to_string(&mut text).unwrap();
    assert!(child.wait().unwrap().success(), "{text}");
    assert!(peer.wait().unwrap().success(), "the peer");
    tables(&text)
}

/// The output of the script when the other node is lost.
fn after_loss(two: Two, settling: &[&str]) -> Vec<Table> {
    let Two { nodes: [node, other], .. } = &two;
    let script = here("states.py");
    let words = [Path::new(PYTHON), &script, Path::new("peer")];
    // The peer reports that its node has ended, and exits.
    let mut peer = other.command(&words).stderr(Stdio::null()).spawn().unwrap();
    let (mut child, mut said) = started(node, &[&["loss"], settling].concat());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    assert_eq!(line, "cut\n");
    let two = two.without_the_second();
    let mut text = String::new();
    said.read_to_string(&mut text).unwrap();
    assert!(child.wait().unwrap().success(), "{text}");
    let _ = peer.wait();
    drop(two);
    tables(&text)
}

/// The output of the script when the other node, a `tipcd`, probes connections much more often than a kernel does.
fn probed(what: What, settling: &[&str]) -> Option<Vec<Table>> {
    let two = Two::with("sp", [what, What::Tipcd], &["--connection-probe", PROBING])?;
    Some(asked("probed", &two.nodes[0], &two.nodes[1], settling))
}

/// The results of a `tipcd`, or of a kernel. The runs of a `tipcd` mostly wait.
fn answers(what: What, settling: &[&str]) -> Option<Answers> {
    let two = Two::new("st", [what; 2])?;
    let between = |two: Two| {
        let between = asked("ask", &two.nodes[0], &two.nodes[1], settling);
        (between, after_loss(two, settling))
    };
    if what == What::Kernel {
        let one = asked("ask", &two.nodes[0], &two.nodes[0], settling);
        let (two, lost) = between(two);
        return Some(Answers { one, two, lost, probed: probed(what, settling)? });
    }
    std::thread::scope(|scope| {
        let two = scope.spawn(|| between(two));
        let probed = scope.spawn(|| probed(what, settling));
        let lone = Node::Tipcd(Site::new());
        let one = asked("ask", &lone, &lone, settling);
        let (two, lost) = two.join().unwrap();
        Some(Answers { one, two, lost, probed: probed.join().unwrap()? })
    })
}

impl Answers {
    /// One text for each cell: the result on one node, and between two nodes if it differs.
    fn merged(self) -> Vec<Table> {
        let joined = |one: String, two: String| {
            if one == two { one } else { format!("{one}; between nodes {two}") }
        };
        let mut tables = combined(self.one, self.two, joined);
        tables.extend(self.lost);
        tables.extend(self.probed);
        tables
    }
}

/// Combines two runs' tables cell by cell.
fn combined(
    ones: Vec<Table>,
    others: Vec<Table>,
    cell: impl Fn(String, String) -> String + Copy,
) -> Vec<Table> {
    assert_eq!(ones.len(), others.len(), "tables");
    let row = |(one, other): (Row, Row)| {
        assert_eq!(one.len(), other.len(), "{one:?} {other:?}");
        one.into_iter().zip(other).map(|(one, other)| cell(one, other)).collect()
    };
    let table = |(one, other): (Table, Table)| {
        assert_eq!(one.len(), other.len(), "{:?}", one.first());
        one.into_iter().zip(other).map(row).collect()
    };
    ones.into_iter().zip(others).map(table).collect()
}

fn printed(tables: &[Table]) -> String {
    let line = |row: &Row| format!("| {} |\n", row.join(" | "));
    let table = |table: &Table| {
        let (head, rows) = table.split_first().unwrap();
        let rule: Row = head.iter().map(|_| "---".to_owned()).collect();
        let rows: String = rows.iter().map(line).collect();
        format!("{}{}{rows}", line(head), line(&rule))
    };
    tables.iter().map(table).collect::<Vec<_>>().join("\n")
}

/// The result here, from a cell that may show a kernel's result before it.
fn ours(cell: &str) -> String {
    let here = cell.split_once(" (here ").and_then(|(_, rest)| rest.strip_suffix(')'));
    here.unwrap_or(cell).to_owned()
}

fn document() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/TIPC.md")
}

#[test]
fn the_tables_of_states_are_what_a_run_gives() {
    if !Path::new(PYTHON).exists() {
        return eprintln!("SKIP states: {PYTHON} is missing; install python3");
    }
    let text = std::fs::read_to_string(document()).unwrap();
    let (before, rest) = text.split_once(BEGIN).unwrap();
    let (within, after) = rest.split_once(END).unwrap();
    let here = |settling: &[&str]| answers(What::Tipcd, settling).unwrap().merged();
    if std::env::var_os("CROSSWAY_WRITE").is_some() {
        let kernels = answers(What::Kernel, &[CALM]);
        let kernels = kernels.expect("the tables are written where guests can be booted").merged();
        let both = combined(kernels, here(&[CALM]), |kernel, here| {
            if kernel == here { kernel } else { format!("{kernel} (here {here})") }
        });
        let text = format!("{before}{BEGIN}\n{}\n{END}{after}", printed(&both));
        return std::fs::write(document(), text).unwrap();
    }
    let written = tables(within.trim_start());
    let expected = printed(&combined(written.clone(), written, |cell, _| ours(&cell)));
    let differing = |run: &str| -> Vec<String> {
        assert_eq!(run.lines().count(), expected.lines().count(), "{run}");
        let pairs = run.lines().zip(expected.lines());
        pairs.filter(|(now, then)| now != then).map(|(_, then)| then.to_owned()).collect()
    };
    // Differences because a node had no time to do its work disappear when it has time; results that occur only for a while
    // are over by then.
    let soon = differing(&printed(&here(&[])));
    if !soon.is_empty() {
        let slow = printed(&here(&[SLOW]));
        let late = differing(&slow);
        let both: Vec<_> = soon.into_iter().filter(|line| late.contains(line)).collect();
        assert!(both.is_empty(), "differs: {both:#?}\n{slow}");
    }
}

impl Two {
    /// Kills the second node.
    fn without_the_second(self) -> (Node, Option<crossway_netlab::Lab>) {
        let Self { nodes: [node, other], lab } = self;
        match other {
            Node::Tipcd(site) => {
                let pid = site.tipcd.pid();
                proc::kill_exactly(pid, proc::started_ticks(pid).unwrap());
            }
            Node::Kernel(guest) => drop(guest),
        }
        (node, lab)
    }
}
