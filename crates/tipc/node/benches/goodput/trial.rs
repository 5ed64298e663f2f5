//! One trial: its two processes and the network of their hosts.

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use crossway_netlab::{Guest, GuestSpec, Host, Lab};
use crossway_sys::proc::die_with_parent;
use crossway_tipc_client::LoneTipcd;

use crate::cases::{Case, Place};
use crate::role::{Carrier, Found, Role};

/// Time that a trial may take in addition to its warm-up and measurement.
const WATCHDOG: Duration = Duration::from_secs(60);

/// Interval between two checks whether a link is idle.
const GLANCE: Duration = Duration::from_millis(50);
/// Number of bytes that an idle link may carry in that interval, for the nodes' own messages.
const QUIET_BYTES: u64 = 5_000;

/// A network with its nodes.
pub(crate) struct Site {
    /// The nodes, one for each host except a guest, which has its kernel's TIPC; they must be dropped before the
    /// network. On one machine, one node with and one without direct lanes.
    nodes: Vec<LoneTipcd>,
    guest: Option<Guest>,
    lab: Option<Lab>,
    _dir: tempfile::TempDir,
    trials: u32,
    /// How long receivers spin before they sleep, in microseconds.
    pub(crate) spin_us: u64,
}

/// A process that ends when this value is dropped.
struct Part(Child);

impl Drop for Part {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Site {
    pub(crate) fn make(place: Place, tipcd_args: &[String]) -> anyhow::Result<Self> {
        let dir = tempfile::tempdir()?;
        let tipcd = env!("CARGO_BIN_EXE_tipcd");
        let socket = |name: &str| dir.path().join(name);
        let Some(topology) = place.topology() else {
            let start = |name: &str, more: &[&str]| {
                let mut command = Command::new(tipcd);
                command.args(tipcd_args).args(more);
                LoneTipcd::start(command, &socket(name))
            };
            let nodes = vec![start("tipcd", &[])?, start("lanes", &["--no-direct-lanes"])?];
            return Ok(Self { nodes, guest: None, lab: None, _dir: dir, trials: 0, spin_us: 0 });
        };
        let lab = Lab::up(&topology)?;
        let mut nodes = Vec::new();
        let hosts = &lab.network().hosts;
        let guest = place.has_guest().then(|| boot(&lab, &hosts[1])).transpose()?;
        let own = if guest.is_some() { &hosts[..1] } else { &hosts[..] };
        for (host, address) in own.iter().zip(["1001", "1002"]) {
            let mut command = host.command(tipcd);
            command.arg(place.bearer(host));
            command.args(["--id", &host.name, "--address", address]).args(tipcd_args);
            nodes.push(LoneTipcd::start(command, &socket(&host.name))?);
        }
        Ok(Self { nodes, guest, lab: Some(lab), _dir: dir, trials: 0, spin_us: 0 })
    }

    fn host(&self, index: usize) -> Option<&Host> {
        self.lab.as_ref().and_then(|lab| lab.network().hosts.get(index))
    }

    /// The path of the socket of the tipcd on a host; `None` for a guest, which uses the TIPC of its kernel.
    fn tipcd(&self, index: usize, carrier: Carrier) -> Option<&Path> {
        let index = if self.lab.is_none() { carrier.avoids_direct_lanes().into() } else { index };
        self.nodes.get(index).map(LoneTipcd::path)
    }

    /// Returns the command that runs this program on a host.
    fn command(&self, index: usize) -> anyhow::Result<Command> {
        let program = std::env::current_exe().context("cannot find this program")?;
        Ok(match (&self.guest, self.host(index)) {
            (Some(guest), _) if index == 1 => {
                let prefix = guest.prefix();
                let mut command = Command::new(&prefix[0]);
                command.args(&prefix[1..]).arg(program);
                command
            }
            (_, Some(host)) => host.command(program),
            (_, None) => Command::new(program),
        })
    }

    fn start(&self, index: usize, role: &Role) -> anyhow::Result<(Part, Receiver<String>)> {
        let mut command = self.command(index)?;
        command.arg("role");
        command.args(["--carrier", &name_of(role.carrier)?, "--work", &name_of(role.work)?]);
        for (name, value) in [
            ("--size", role.size.to_string()),
            ("--warmup-ms", role.warmup_ms.to_string()),
            ("--measure-ms", role.measure_ms.to_string()),
            ("--to", role.to.to_string()),
            ("--instance", role.instance.to_string()),
            ("--spin-us", role.spin_us.to_string()),
        ] {
            command.args([name, &value]);
        }
        if let Some(path) = &role.tipcd {
            command.arg("--tipcd").arg(path);
        }
        if role.serve {
            command.arg("--serve");
        }
        die_with_parent(&mut command);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let (tell, told) = mpsc::channel();
        if let Some(out) = child.stdout.take() {
            std::thread::spawn(move || {
                for line in BufReader::new(out).lines().map_while(Result::ok) {
                    let _ = tell.send(line);
                }
            });
        }
        Ok((Part(child), told))
    }

    /// Runs one trial.
    pub(crate) fn run(
        &mut self,
        case: &Case,
        carrier: Carrier,
        warmup: Duration,
        measure: Duration,
    ) -> anyhow::Result<Found> {
        self.trials += 1;
        let measure = case.measured(measure);
        let (server, caller) = (case.server, 1 - case.server);
        let ip =
            self.host(server).map_or(Ipv4Addr::LOCALHOST.into(), |host| case.place.address(host));
        let role = |serve: bool, tipcd: Option<&Path>| Role {
            carrier,
            work: case.work,
            serve,
            size: case.size,
            warmup_ms: warmup.as_millis() as u64,
            measure_ms: measure.as_millis() as u64,
            to: SocketAddr::new(ip, 20_000 + (self.trials % 10_000) as u16),
            tipcd: tipcd.map(Path::to_owned),
            instance: self.trials,
            spin_us: self.spin_us,
        };
        let limit = WATCHDOG + warmup + measure;
        let (server_part, from_server) =
            self.start(server, &role(true, self.tipcd(server, carrier)))?;
        let word = from_server
            .recv_timeout(WATCHDOG)
            .context("the serving end does not report that it is ready")?;
        if word != "ready" {
            bail!("the serving end reports {word:?}; expected \"ready\"");
        }
        let (caller_part, from_caller) =
            self.start(caller, &role(false, self.tipcd(caller, carrier)))?;
        let measuring = match case.work {
            crate::role::Work::Flow => from_server,
            crate::role::Work::Ping => from_caller,
        };
        let line = measuring.recv_timeout(limit).with_context(|| {
            format!("{} over {carrier:?}: no figure within {limit:?}", case.name)
        })?;
        drop((caller_part, server_part));
        self.await_rest()?;
        Ok(serde_json::from_str(&line)?)
    }

    /// Waits until the traffic that the trial left in queues has drained, which takes up to a second on a slow link.
    /// Otherwise, that traffic would count as loss in the next trial.
    fn await_rest(&self) -> anyhow::Result<()> {
        let Some(host) = self.host(0) else { return Ok(()) };
        let bytes = || -> anyhow::Result<u64> {
            let out = host.command("cat").arg("/proc/net/dev").output()?;
            let text = String::from_utf8_lossy(&out.stdout);
            let name = format!("{}:", host.interface);
            let line = text.lines().find_map(|line| line.trim_start().strip_prefix(&name));
            let fields: Vec<&str> =
                line.context("the device is gone")?.split_whitespace().collect();
            // Received bytes come first, sent ones ninth.
            [0, 8].iter().try_fold(0, |sum, at| {
                Ok(sum
                    + fields.get(*at).context("a short line in /proc/net/dev")?.parse::<u64>()?)
            })
        };
        let begin = Instant::now();
        let mut last = bytes()?;
        loop {
            std::thread::sleep(GLANCE);
            let now = bytes()?;
            if now - last < QUIET_BYTES {
                return Ok(());
            }
            if begin.elapsed() > WATCHDOG {
                bail!("{} is still busy {WATCHDOG:?} after a trial", host.interface);
            }
            last = now;
        }
    }
}

/// Boots a guest in place of a host, with its kernel's TIPC on the network.
fn boot(lab: &Lab, host: &Host) -> anyhow::Result<Guest> {
    let spec = GuestSpec::new(&format!("cwgp{:x}", std::process::id() % 0x1_0000))?;
    let guest = Guest::boot(&spec, Some((lab.network(), &host.name)))?;
    let prefix = guest.prefix();
    let mut command = Command::new(&prefix[0]);
    command.args(&prefix[1..]);
    command.args(["tipc", "bearer", "enable", "media", "eth", "device", "eth0"]);
    let output =
        command.stdin(Stdio::null()).output().context("cannot run a command in the guest")?;
    if !output.status.success() {
        bail!("the guest's kernel refuses the bearer: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(guest)
}

fn name_of(value: impl clap::ValueEnum) -> anyhow::Result<String> {
    Ok(value.to_possible_value().context("a value without a name")?.get_name().to_owned())
}
