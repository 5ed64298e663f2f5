//! One trial: two ranks on two hosts, started by the library's own `mpirun`.

use std::collections::HashMap;
use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crossway_netlab::Host;
use crossway_run::via::CARRIED;
use crossway_sys::{Obstacle, OsError, proc, program};

use super::record::{Library, MpiResult, Way};
use crate::node_pair::NodePair;

/// What the ranks run.
const SOURCE: &str = include_str!("exchange.c");
/// Time limit for a trial's ranks, beyond what they should need; longer counts as stuck.
const STUCK: Duration = Duration::from_secs(120);
/// Interval between checks whether `mpirun` has exited.
const LOOK: Duration = Duration::from_millis(5);
/// How many lines of what a failed command wrote are kept.
const KEPT_LINES: usize = 6;

/// Compiles what the ranks run.
pub(super) fn built(library: Library, room: &Path) -> Result<PathBuf, Obstacle> {
    let (source, ranks) = (room.join("exchange.c"), room.join(library.suffix()));
    let compiler = format!("mpicc.{}", library.suffix());
    let compiled = fs::write(&source, SOURCE).and_then(|()| {
        let mut command = Command::new(&compiler);
        command.env("PATH", program::search_path());
        command.arg("-O2").arg("-o").arg(&ranks).arg(&source).stdin(Stdio::null()).output()
    });
    let remedy = format!("compile a program with {compiler} manually, to find out why");
    match compiled {
        Ok(out) if out.status.success() => Ok(ranks),
        Ok(out) => {
            let said = end_of(&String::from_utf8_lossy(&out.stderr));
            Err(Obstacle::new(format!("{compiler} failed: {said}"), remedy))
        }
        Err(error) => Err(Obstacle::new(format!("{compiler}: {error}"), remedy)),
    }
}

/// Where the ranks run.
pub(super) struct Places<'a> {
    program: &'a Path,
    hosts: &'a [Host],
    room: &'a Path,
    /// Programs that start a command on a host, in place of ssh: with a `tipcd` on each host, and with one for both.
    agents: [PathBuf; 2],
}

impl<'a> Places<'a> {
    pub(super) fn new(
        program: &'a Path,
        nodes: &'a NodePair,
        room: &'a Path,
    ) -> Result<Places<'a>, OsError> {
        let [first, second] = nodes.sockets();
        let hosts = nodes.hosts();
        let agents = [
            agent(room, "agent-two", hosts, [&first, &second])?,
            agent(room, "agent-one", hosts, [&first, &first])?,
        ];
        Ok(Places { program, hosts, room, agents })
    }
}

/// Writes a program that `mpirun` takes for ssh. It gives each host a name of its own, because MPI shares memory with a
/// rank on a host of the same name.
fn agent(
    room: &Path,
    name: &str,
    hosts: &[Host],
    sockets: [&PathBuf; 2],
) -> Result<PathBuf, OsError> {
    let cases: String = hosts
        .iter()
        .zip(sockets)
        .map(|(host, socket)| {
            let socket = socket.display();
            format!(
                "{}) on='{}'; name={}; export TIPCD_SOCKET='{socket}' ;;\n",
                host.ipv4,
                host.prefix().join(" "),
                host.name
            )
        })
        .collect();
    let text = format!(
        "#!/bin/sh\n\
         while [ \"${{1#-}}\" != \"$1\" ]; do shift; done\n\
         case $1 in\n{cases}*) echo \"unknown host $1\" >&2; exit 1 ;;\nesac\n\
         shift\n\
         exec $on unshare --uts sh -c \"hostname $name; $*\"\n"
    );
    let path = room.join(name);
    let written = fs::write(&path, text)
        .and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(0o700)));
    written.map(|()| path.clone()).map_err(|e| OsError::new("write", path.display(), e))
}

/// Runs the ranks; returns what they measured, or why the trial failed.
pub(super) fn run(
    places: &Places<'_>,
    library: Library,
    way: Way,
    ranks: &Path,
    work: f64,
) -> Result<MpiResult, String> {
    let agent = &places.agents[usize::from(way == Way::TipcOneNode)];
    let explained = places.room.join("explained");
    let _ = fs::remove_file(&explained);
    let first = places.hosts[0].ipv4.to_string();
    let mut command = Command::new(agent);
    command.env("PATH", program::search_path());
    command.arg(&first).args(mpirun(library, places.hosts, agent));
    if way != Way::Tcp {
        command.arg(places.program).args(["run", "--via", "tipc"]);
        command.arg(format!("--explain={}", explained.display())).arg("--");
    }
    command.arg(ranks).arg(work.to_string());
    let limit = STUCK + Duration::from_secs_f64(10.0 * work);
    let wrote = finished(command, limit)?;
    if way != Way::Tcp {
        let said = fs::read_to_string(&explained).unwrap_or_default();
        // Both ends say so; the library may have other connections, too.
        if said.lines().filter(|line| line.contains(CARRIED)).count() < 2 {
            return Err(format!("the ranks' connection did not travel by TIPC: {}", end_of(&said)));
        }
    }
    figures(&wrote)
}

/// The command that starts two ranks, one on each host.
fn mpirun(library: Library, hosts: &[Host], agent: &Path) -> Vec<String> {
    let agent = agent.display().to_string();
    let addresses = hosts.iter().map(|host| host.ipv4.to_string()).collect::<Vec<_>>();
    let all = addresses.join(",");
    let mut words: Vec<String> = vec![format!("mpirun.{}", library.suffix())];
    let mut add = |more: &[&str]| words.extend(more.iter().map(|word| (*word).to_owned()));
    match library {
        Library::OpenMpi => {
            // The hosts' interfaces may have different names, but one network.
            let octets = hosts[0].ipv4.octets();
            let subnet = format!("{}.{}.{}.0/24", octets[0], octets[1], octets[2]);
            if proc::is_root() {
                add(&["--allow-run-as-root"]);
            }
            for (name, value) in [
                ("plm_rsh_agent", agent.as_str()),
                ("btl", "self,tcp"),
                ("pml", "ob1"),
                ("btl_tcp_if_include", &subnet),
                ("oob_tcp_if_include", &subnet),
                ("mpi_yield_when_idle", "1"),
            ] {
                add(&["--mca", name, value]);
            }
            add(&["--host", &all, "-np", "2"]);
        }
        Library::Mpich => {
            add(&["-launcher", "ssh", "-launcher-exec", &agent, "-hosts", &all]);
            add(&["-localhost", &addresses[0]]);
            // Debian's is built for UCX, others for libfabric; shared memory would be found, because the hosts are one
            // machine.
            add(&["-genv", "UCX_TLS", "tcp,self", "-genv", "FI_PROVIDER", "tcp"]);
            add(&["-np", "2", "-ppn", "1"]);
        }
    }
    words
}

/// Runs a command with all its descendants, which are killed with it; returns what it wrote to standard output.
fn finished(mut command: Command, limit: Duration) -> Result<String, String> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    proc::own_session(&mut command);
    proc::die_with_parent(&mut command);
    let mut started = Started(command.spawn().map_err(|e| format!("cannot start mpirun: {e}"))?);
    // Read from the beginning, so that a full pipe does not stop the command.
    let (output, errors) = (started.0.stdout.take(), started.0.stderr.take());
    let output = std::thread::spawn(move || all_of(output));
    let errors = std::thread::spawn(move || all_of(errors));
    let until = Instant::now() + limit;
    let status = loop {
        match started.0.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if Instant::now() < until => std::thread::sleep(LOOK),
            Ok(None) => return Err(format!("mpirun did not end within {limit:?}")),
            Err(error) => return Err(format!("mpirun: {error}")),
        }
    };
    drop(started);
    let (output, errors) = (output.join().unwrap_or_default(), errors.join().unwrap_or_default());
    if !status.success() {
        return Err(format!(
            "mpirun ended with {status}: {}",
            end_of(&format!("{output}{errors}"))
        ));
    }
    Ok(output)
}

fn all_of(stream: Option<impl Read>) -> String {
    let mut bytes = Vec::new();
    if let Some(mut stream) = stream {
        let _ = stream.read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A command whose session is killed when this value is dropped.
struct Started(Child);

impl Drop for Started {
    fn drop(&mut self) {
        proc::kill_group(self.0.id());
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The last lines of a text, in one line.
fn end_of(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines[lines.len().saturating_sub(KEPT_LINES)..].join(" / ")
}

/// Parses what rank 0 printed: `name value`, one per line, times in seconds.
fn figures(wrote: &str) -> Result<MpiResult, String> {
    let values: HashMap<&str, f64> = wrote
        .lines()
        .filter_map(|line| {
            let (name, value) = line.split_once(' ')?;
            Some((name, value.trim().parse().ok().filter(|v: &f64| v.is_finite())?))
        })
        .collect();
    let of = |name: &str| {
        values
            .get(name)
            .copied()
            .ok_or_else(|| format!("rank 0 did not print {name}: {}", end_of(wrote)))
    };
    Ok(MpiResult {
        small_one_way_ns: of("latency_8")? * 1e9,
        large_one_way_ns: of("latency_64k")? * 1e9,
        small_msgs_per_s: of("messages_8")?,
        large_bytes_per_s: of("bytes_64k")?,
        halo_ns: of("halo")? * 1e9,
        halo_in_mpi: of("halo_share")?,
        halo_sum: of("halo_sum")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_and_a_missing_one_is_named() {
        let all = "halo_sum 12.5\nlatency_8 0.000020\nlatency_64k 0.0002\nmessages_8 1000\nbytes_64k 1e9\n\
                   halo 0.1\nhalo_share 0.5\n";
        let read = figures(all).unwrap();
        assert_eq!((read.small_one_way_ns.round(), read.halo_in_mpi), (20_000.0, 0.5));
        let less = all.replace("bytes_64k 1e9\n", "bytes_64k nan\n");
        assert!(figures(&less).unwrap_err().contains("did not print bytes_64k"));
    }

    #[test]
    fn what_a_command_wrote_is_cut_to_its_end() {
        let text: String = (0..20).map(|n| format!("line {n}\n\n")).collect();
        assert_eq!(end_of(&text), "line 14 / line 15 / line 16 / line 17 / line 18 / line 19");
    }
}
