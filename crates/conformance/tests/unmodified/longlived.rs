//! Long-running programs: a client with 1,000 connections and its server of 200 processes in mixed traffic. The memory
//! of the tipcd is watched, and the tipcd is killed while they run. `CROSSWAY_LONG_SECONDS=600` makes the traffic
//! continue for that time; without it, the test runs a few rounds.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use crossway_sys::proc;
use crossway_tipc_client::LoneTipcd;

use crate::nodes::{Site, tipcd_command};
use crate::{compiled, on_kernel, printed};

const CONNECTIONS: u64 = 1_000;
const CHILDREN: u64 = 200;
/// Number of rounds after which the sizes of the messages repeat.
const PERIOD: u32 = 4;
/// Number of rounds after which a tipcd has all the memory that it needs. At least [`WATCHED`] rounds follow: one
/// period in each half.
const SETTLING: u32 = PERIOD;
const WATCHED: u32 = 2 * PERIOD;
/// Maximum growth of a tipcd's memory in KiB. The memory is read at the end of each round, and the maximum of the
/// second half of the rounds is compared with that of the first half. The minimum would show nothing: the C library's
/// allocator returns freed memory to the system or keeps it, depending on its layout.
const GROWTH_KIB: u64 = 4 << 10;

/// The running program, which is controlled round by round.
struct LongLived {
    child: Child,
    stdin: Option<ChildStdin>,
    said: BufReader<ChildStdout>,
    /// The file with the standard error of the program and its processes. Without a tipcd, each process reports that
    /// here once.
    errors: PathBuf,
}

/// The results of a round.
#[derive(Debug)]
struct Round {
    echoes: u64,
    ends: u64,
    failures: u64,
    errors: Vec<String>,
}

impl LongLived {
    fn start(site: &Site, program: &Path, long: Duration) -> Self {
        let (connections, children) = (CONNECTIONS.to_string(), CHILDREN.to_string());
        // The watchdog is for hangs, not for a requested long run.
        let watchdog = (600 + long.as_secs()).to_string();
        let words = [program, Path::new(&connections), Path::new(&children)];
        let mut command = site.command_within(&watchdog, &words);
        let errors = site.dir.path().join("errors");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(File::create(&errors).unwrap());
        let mut child = command.spawn().unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        let mut program = Self { stdin: child.stdin.take(), child, said, errors };
        assert_eq!(program.line(), format!("connected {connections}"));
        program
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        let len = self.said.read_line(&mut line).unwrap();
        assert!(len > 0, "it ended: {}", std::fs::read_to_string(&self.errors).unwrap());
        line.trim_end().to_owned()
    }

    fn go(&mut self) {
        self.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    }

    fn round(&mut self) -> Round {
        self.go();
        self.finished_round()
    }

    fn finished_round(&mut self) -> Round {
        let line = self.line();
        let words: Vec<&str> = line.split(' ').collect();
        let number = |name: &str| {
            let at = words.iter().position(|word| *word == name);
            at.and_then(|at| words.get(at + 1)?.parse().ok()).unwrap_or_else(|| panic!("{line:?}"))
        };
        let errors = words.iter().skip(8).map(|word| (*word).to_owned()).collect();
        Round {
            echoes: number("echoes"),
            ends: number("ends"),
            failures: number("failures"),
            errors,
        }
    }

    /// Runs a round and asserts that nothing fails.
    fn good_round(&mut self) {
        let round = self.round();
        assert_eq!((round.echoes, round.ends), (CONNECTIONS, CONNECTIONS / 10), "{round:?}");
        assert_eq!(round.failures, 0, "{round:?}");
    }

    fn end(mut self) {
        drop(self.stdin.take());
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{}", std::fs::read_to_string(&self.errors).unwrap());
    }
}

/// Resident memory of a process, in KiB.
fn resident_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn programs_that_stay_cost_no_more_and_outlive_their_tipcd() {
    let site = Site::new();
    let Some(program) = compiled("longlived", site.dir.path()) else { return };
    let long = std::env::var("CROSSWAY_LONG_SECONDS").ok().and_then(|text| text.parse().ok());
    let long = Duration::from_secs(long.unwrap_or(0));
    let mut programs = LongLived::start(&site, &program, long);
    for _ in 0..SETTLING {
        programs.good_round();
    }
    let (pid, begin, mut rounds) = (site.tipcd.pid(), Instant::now(), 0);
    let mut memory = Vec::new();
    while rounds < WATCHED || begin.elapsed() < long {
        programs.good_round();
        memory.push(resident_kib(pid));
        rounds += 1;
    }
    let (first, second) = memory.split_at(memory.len() / 2);
    let (before, after) = (first.iter().max().unwrap(), second.iter().max().unwrap());
    eprintln!(
        "{rounds} rounds of {CONNECTIONS} echoes in {:?}; the tipcd's memory was at most {before} KiB in the first \
         half and {after} KiB in the second",
        begin.elapsed(),
    );
    assert!(*after < before + GROWTH_KIB, "KiB after each round: {memory:?}");

    // In the middle of a round; another tipcd then serves the same path.
    let path = site.tipcd.path().to_owned();
    programs.go();
    proc::kill_exactly(pid, proc::started_ticks(pid).unwrap());
    let _successor = LoneTipcd::start(tipcd_command(), &path).unwrap();
    let mut round = programs.finished_round();
    if round.failures == 0 {
        // The round ended before the tipcd was dead.
        round = programs.round();
    }
    assert!(round.failures >= CONNECTIONS / 2, "{round:?}");
    for error in &round.errors {
        let known =
            ["ENETDOWN", "ECONNRESET", "EPIPE", "EHOSTUNREACH", "EAFNOSUPPORT", "ECONNREFUSED"];
        assert!(known.contains(&error.as_str()), "{round:?}");
    }
    // Connections whose echo came before the tipcd died notice that in this round; after it, all are connected.
    programs.round();
    programs.good_round();
    programs.good_round();
    programs.end();
}

#[test]
fn a_multicast_wakes_every_kind_of_waiter() {
    let site = Site::new();
    let Some(program) = compiled("multicasts", site.dir.path()) else { return };
    // Numbers of rounds, sockets, senders.
    for [rounds, sockets, senders] in [["4000", "2", "1"], ["400", "16", "4"]] {
        let words = [&*program, Path::new(rounds), Path::new(sockets), Path::new(senders)];
        let ours = printed("on a tipcd", &site.run(&words));
        let all = rounds.parse::<u32>().unwrap() * senders.parse::<u32>().unwrap();
        assert_eq!(ours, format!("{all} multicasts at each of {sockets} sockets\n"));
    }
    let words = [&*program, Path::new("400"), Path::new("16"), Path::new("4")];
    if let Some(kernels) = on_kernel("multicasts", &words) {
        assert_eq!(kernels, "1600 multicasts at each of 16 sockets\n");
    }
}
