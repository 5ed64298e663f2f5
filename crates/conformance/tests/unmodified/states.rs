//! Checks the tables of docs/TIPC-CONFORMANCE.md that list the result of each call in each state,
//! and the effect of each event on each state. `CROSSWAY_WRITE=1` writes them, from runs on one
//! kernel, between two kernels, on one `tipcd` and between two `tipcd`s; without that variable, the
//! runs must reproduce what is written.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use crossway_sys::proc;

use crate::here;
use crate::nodes::{Node, Site, Two, What};

const PYTHON: &str = "/usr/bin/python3";
const BEGIN: &str = "<!-- states -->\n";
/// Pause in seconds between two steps of a run, in which the nodes do their work. `CALM` is for runs whose results are
/// written down, `SOON` for runs that are compared with them, and `SLOW` for repeating the parts that concern a node as
/// a whole.
const CALM: &str = "0.1";
const SOON: &str = "0.02";
const SLOW: &str = "0.15";
/// Text between the result on one node and that between two, if they differ.
const BETWEEN: &str = "; between nodes ";
/// How often, in seconds, a `tipcd` probes connections for the table of probes; the script has the same constant.
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

/// The results of one kind of node: within one node, between two, after the loss of the other, and after probes by a
/// `tipcd`.
struct Answers {
    one: Vec<Table>,
    two: Vec<Table>,
    lost: Vec<Table>,
    probed: Vec<Table>,
}

/// Starts the script and returns a reader of its lines.
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

/// The output of the script's part `part` on `node`, with its peer on `others`, which may be the same node.
fn asked(part: &str, node: &Node, others: &Node, words: &[&str]) -> Vec<Table> {
    let (mut peer, _) = started(others, &["peer"]);
    let (mut child, mut said) = started(node, &[&[part], words].concat());
    let mut text = String::new();
    said.read_to_string(&mut text).unwrap();
    assert!(child.wait().unwrap().success(), "{text}");
    assert!(peer.wait().unwrap().success(), "the peer");
    tables(&text)
}

/// The output of the script when the other node is lost.
fn after_loss(two: Two, settling: &str) -> Vec<Table> {
    let Two { nodes: [node, other], .. } = &two;
    let script = here("states.py");
    let words = [Path::new(PYTHON), &script, Path::new("peer")];
    // The peer reports that its node has ended, and exits.
    let mut peer = other.command(&words).stderr(Stdio::null()).spawn().unwrap();
    let (mut child, mut said) = started(node, &["loss", settling]);
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

/// Two linked nodes; `None` if a prerequisite is missing, as for [`Two::new`].
fn linked(what: What) -> Option<Two> {
    Two::new("st", [what; 2])
}

/// The output of the script when the other node, a `tipcd`, probes connections much more often than a kernel does;
/// `None` as for [`linked`].
fn probed(what: What, settling: &str) -> Option<Vec<Table>> {
    let two = Two::with("sp", [what, What::Tipcd], &["--connection-probe", PROBING])?;
    Some(asked("probed", &two.nodes[0], &two.nodes[1], &[settling]))
}

/// The results of a kernel; `None` as for [`linked`].
fn of_kernel() -> Option<Answers> {
    let two = linked(What::Kernel)?;
    let ask = |other: usize| asked("ask", &two.nodes[0], &two.nodes[other], &[CALM]);
    let (one, between) = (ask(0), ask(1));
    Some(Answers {
        one,
        two: between,
        lost: after_loss(two, CALM),
        probed: probed(What::Kernel, CALM)?,
    })
}

/// Returns the results of a `tipcd`. Its runs are concurrent, since they spend most of their time waiting. If
/// `expected` is passed, a cell whose result differs from it is repeated with longer pauses, since on a busy machine a
/// node may not have had the time to do its work. Parts that concern a node as a whole are repeated as a whole.
fn of_tipcd(settling: &str, expected: Option<&Answers>) -> Answers {
    let dir = tempfile::tempdir().unwrap();
    let ask = |node: &Node, other: &Node, expected: Option<&Vec<Table>>, name: &str| {
        let path = dir.path().join(name);
        let path = path.to_str().unwrap();
        let mut words = vec![settling];
        if let Some(tables) = expected {
            std::fs::write(path, serde_json::to_vec(tables).unwrap()).unwrap();
            words.push(path);
        }
        asked("ask", node, other, &words)
    };
    let two_nodes = || {
        let two = linked(What::Tipcd).unwrap();
        ask(&two.nodes[0], &two.nodes[1], expected.map(|e| &e.two), "two")
    };
    let loss = |settling: &str| after_loss(linked(What::Tipcd).unwrap(), settling);
    let probes = |settling: &str| probed(What::Tipcd, settling).unwrap();
    // These parts happen to all of their connections at once, so they are repeated as a whole.
    let patiently = |part: &dyn Fn(&str) -> Vec<Table>, wanted: Option<&Vec<Table>>| {
        let found = part(settling);
        if wanted.is_none_or(|wanted| *wanted == found) { found } else { part(SLOW) }
    };
    std::thread::scope(|scope| {
        let two = scope.spawn(two_nodes);
        let lost = scope.spawn(|| patiently(&loss, expected.map(|e| &e.lost)));
        let probed = scope.spawn(|| patiently(&probes, expected.map(|e| &e.probed)));
        let lone = Node::Tipcd(Site::new());
        let one = ask(&lone, &lone, expected.map(|e| &e.one), "one");
        let [two, lost, probed] = [two, lost, probed].map(|part| part.join().unwrap());
        Answers { one, two, lost, probed }
    })
}

impl Answers {
    /// One text for each cell: the result on one node, and between two nodes if it differs.
    fn merged(self) -> Vec<Table> {
        let joined = |one: String, two: String| {
            if one == two { one } else { format!("{one}{BETWEEN}{two}") }
        };
        let mut tables = combined(self.one, self.two, joined);
        tables.extend(self.lost);
        tables.extend(self.probed);
        tables
    }

    /// The inverse of [`Answers::merged`]: the results from which `tables` were merged.
    fn parts(mut tables: Vec<Table>) -> Self {
        let begins = |of: &str| {
            let is_there = |table: &Table| table[0][0].ends_with(of);
            tables.iter().position(is_there).unwrap_or_else(|| panic!("no table {of}"))
        };
        let (lost, probed) =
            (begins(": the other node is lost"), begins(": the other node probes"));
        let probed = tables.split_off(probed);
        let lost = tables.split_off(lost);
        let part = |half: fn((&str, &str)) -> String| -> Vec<Table> {
            let cell = |cell: &String| cell.split_once(BETWEEN).map_or(cell.clone(), half);
            let row = |row: &Row| row.iter().map(cell).collect();
            tables.iter().map(|table| table.iter().map(row).collect()).collect()
        };
        Self {
            one: part(|(one, _)| one.to_owned()),
            two: part(|(_, two)| two.to_owned()),
            lost,
            probed,
        }
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

/// The result of a `tipcd` in a cell. If a kernel's result differs, the cell contains it first and that of the `tipcd`
/// in parentheses.
fn ours(cell: &str) -> String {
    let here = cell.split_once(" (here ").and_then(|(_, rest)| rest.strip_suffix(')'));
    here.unwrap_or(cell).to_owned()
}

fn document() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/TIPC-CONFORMANCE.md")
}

#[test]
fn the_tables_of_states_are_what_a_run_gives() {
    if !Path::new(PYTHON).exists() {
        return eprintln!("SKIP states: {PYTHON} is missing; install python3");
    }
    let text = std::fs::read_to_string(document()).unwrap();
    let (before, rest) = text.split_once(BEGIN).unwrap();
    let (within, after) = rest.split_once(END).unwrap();
    if std::env::var_os("CROSSWAY_WRITE").is_some() {
        let kernels =
            of_kernel().expect("the tables are written where guests can be booted").merged();
        let both = combined(kernels, of_tipcd(CALM, None).merged(), |kernel, here| {
            if kernel == here { kernel } else { format!("{kernel} (here {here})") }
        });
        let text = format!("{before}{BEGIN}\n{}\n{END}{after}", printed(&both));
        return std::fs::write(document(), text).unwrap();
    }
    let written = tables(within.trim_start());
    let expected = combined(written.clone(), written, |cell, _| ours(&cell));
    let run = of_tipcd(SOON, Some(&Answers::parts(expected.clone()))).merged();
    let (run, expected) = (printed(&run), printed(&expected));
    assert_eq!(run.lines().count(), expected.lines().count(), "{run}");
    let pairs = run.lines().zip(expected.lines());
    let differing: Vec<_> = pairs.filter(|(now, then)| now != then).collect();
    assert!(differing.is_empty(), "found and expected: {differing:#?}");
}

impl Two {
    /// Kills the second node; returns the first one and the network, if there is one.
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
