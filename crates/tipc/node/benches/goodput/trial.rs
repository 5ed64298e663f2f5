//! One trial: its two processes on their hosts, and the place they run at.

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use anyhow::{Context, bail};
use crossway_netlab::{Host, Lab};
use crossway_sys::proc::die_with_parent;
use crossway_tipc_client::LoneTipcd;

use crate::cases::{Case, Place};
use crate::role::{Carrier, Found, Role};

/// Beyond the trial's own time.
const WATCHDOG: Duration = Duration::from_secs(60);

/// A place with its nodes.
pub(crate) struct Site {
    /// The nodes go before their hosts.
    nodes: Vec<LoneTipcd>,
    lab: Option<Lab>,
    _dir: tempfile::TempDir,
    trials: u32,
}

/// A process that ends with this value.
struct Part(Child);

impl Drop for Part {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Site {
    pub(crate) fn make(place: Place) -> anyhow::Result<Self> {
        let dir = tempfile::tempdir()?;
        let tipcd = env!("CARGO_BIN_EXE_tipcd");
        let socket = |name: &str| dir.path().join(name);
        let Some(topology) = place.topology() else {
            let node = LoneTipcd::start(Command::new(tipcd), &socket("tipcd"))?;
            return Ok(Self { nodes: vec![node], lab: None, _dir: dir, trials: 0 });
        };
        let lab = Lab::up(&topology)?;
        let mut nodes = Vec::new();
        for (host, address) in lab.network().hosts.iter().zip(["1001", "1002"]) {
            let mut command = host.command(tipcd);
            command.arg(place.bearer(host));
            command.args(["--id", &host.name, "--address", address]);
            nodes.push(LoneTipcd::start(command, &socket(&host.name))?);
        }
        Ok(Self { nodes, lab: Some(lab), _dir: dir, trials: 0 })
    }

    fn host(&self, index: usize) -> Option<&Host> {
        self.lab.as_ref().and_then(|lab| lab.network().hosts.get(index))
    }

    fn tipcd(&self, index: usize) -> &Path {
        self.nodes[index.min(self.nodes.len() - 1)].path()
    }

    fn start(&self, index: usize, role: &Role) -> anyhow::Result<(Part, Receiver<String>)> {
        let program = std::env::current_exe().context("cannot find this program")?;
        let mut command = match self.host(index) {
            Some(host) => host.command(program),
            None => Command::new(program),
        };
        command.arg("role");
        command.args(["--carrier", &name_of(role.carrier)?, "--work", &name_of(role.work)?]);
        for (name, value) in [
            ("--size", role.size.to_string()),
            ("--warmup-ms", role.warmup_ms.to_string()),
            ("--measure-ms", role.measure_ms.to_string()),
            ("--to", role.to.to_string()),
            ("--tipcd", role.tipcd.display().to_string()),
            ("--instance", role.instance.to_string()),
        ] {
            command.args([name, &value]);
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
        let ip = self.host(1).map_or(Ipv4Addr::LOCALHOST.into(), |host| case.place.address(host));
        let role = |serve: bool, tipcd: PathBuf| Role {
            carrier,
            work: case.work,
            serve,
            size: case.size,
            warmup_ms: warmup.as_millis() as u64,
            measure_ms: measure.as_millis() as u64,
            to: SocketAddr::new(ip, 20_000 + (self.trials % 10_000) as u16),
            tipcd,
            instance: self.trials,
        };
        let limit = WATCHDOG + warmup + measure;
        let (_server, from_server) = self.start(1, &role(true, self.tipcd(1).to_owned()))?;
        let word = from_server.recv_timeout(WATCHDOG).context("the serving end says nothing")?;
        if word != "ready" {
            bail!("the serving end says {word:?}");
        }
        let (_caller, from_caller) = self.start(0, &role(false, self.tipcd(0).to_owned()))?;
        let measuring = match case.work {
            crate::role::Work::Flow => from_server,
            crate::role::Work::Ping => from_caller,
        };
        let line = measuring.recv_timeout(limit).with_context(|| {
            format!("{} over {carrier:?}: no figure within {limit:?}", case.name)
        })?;
        Ok(serde_json::from_str(&line)?)
    }
}

fn name_of(value: impl clap::ValueEnum) -> anyhow::Result<String> {
    Ok(value.to_possible_value().context("a value without a name")?.get_name().to_owned())
}
