//! The testbeds of a plan, and the axis that refers to them by name.

use crossway_netlab::{MOST_GUEST_CPUS, Offloads, Rate, Topology};
use toml::{Table, Value};

use super::at::At;
use super::{Plan, PlanError};
use crate::catalogue;
use crossway_records::inputs::{Ends, Load};
use crossway_records::record::LOCAL;
use crossway_records::testbed::{BadHosts, HostWords, Share, Testbed, TestbedKind, Tipc};

const KEYS: &[&str] = &["kind", "rate", "mtu", "offloads", "tipc", "shares", "kernel", "cpus"];
const KINDS: &str = "netlab, guests, hosts, containers";

/// Parses all `[testbed.NAME]` tables.
pub(super) fn read(at: &At<'_>, value: &Value) -> Result<Vec<Testbed>, PlanError> {
    let testbeds = at.table(value)?;
    testbeds.iter().map(|(name, value)| one(&at.key(name), name, value)).collect()
}

fn one(at: &At<'_>, name: &str, value: &Value) -> Result<Testbed, PlanError> {
    if name == LOCAL {
        return Err(at.bad("'local' is this machine; choose another name for the testbed"));
    }
    let table = at.table(value)?;
    at.only(table, KEYS)?;
    let kind = match table.get("kind") {
        Some(value) => kind(&at.key("kind"), value)?,
        None => return Err(at.key("kind").bad(format!("missing; allowed: {KINDS}"))),
    };
    if kind == TestbedKind::Hosts {
        // The properties of real hosts cannot be chosen here.
        at.only(table, &["kind"])?;
    }
    let usual = Testbed::of(name, kind);
    if kind == TestbedKind::Containers {
        at.only(table, &["kind", "shares"])?;
    } else if table.contains_key("shares") {
        return Err(at
            .key("shares")
            .bad("only containers can share something; set kind = \"containers\""));
    }
    if kind != TestbedKind::Guests && table.contains_key("kernel") {
        return Err(at
            .key("kernel")
            .bad("only guests have a kernel of their own; set kind = \"guests\""));
    }
    if table.contains_key("cpus") && !table.contains_key("kernel") {
        return Err(at
            .key("cpus")
            .bad("only guests that boot a kernel under QEMU have a number of CPUs; set kernel = \"6.12\""));
    }
    let testbed = Testbed {
        rate: table.get("rate").map(|v| rate(&at.key("rate"), v)).transpose()?,
        mtu_bytes: match table.get("mtu") {
            Some(value) => at.key("mtu").number(value, 1280, 65521)? as u32,
            None => usual.mtu_bytes,
        },
        offloads: match table.get("offloads") {
            Some(value) => offloads(&at.key("offloads"), value)?,
            None => usual.offloads,
        },
        tipc: match table.get("tipc") {
            Some(value) => at.key("tipc").axis(value, |at, v| tipc(at, v, kind))?,
            None => Vec::new(),
        },
        shares: match table.get("shares") {
            Some(value) => at.key("shares").axis(value, share)?,
            None => Vec::new(),
        },
        kernel: match table.get("kernel") {
            Some(value) => Some(at.key("kernel").text(value)?.to_owned()),
            None => None,
        },
        cpus: match table.get("cpus") {
            Some(value) => Some(at.key("cpus").number(value, 1, MOST_GUEST_CPUS.into())? as u32),
            None => None,
        },
        ..usual
    };
    // Apply the network's own rules before anything is measured.
    Topology::of(&["a", "b"], testbed.link()).check().map_err(|e| at.bad(e.to_string()))?;
    Ok(testbed)
}

fn kind(at: &At<'_>, value: &Value) -> Result<TestbedKind, PlanError> {
    match at.text(value)? {
        "netlab" => Ok(TestbedKind::Netlab),
        "guests" => Ok(TestbedKind::Guests),
        "containers" => Ok(TestbedKind::Containers),
        "hosts" => Ok(TestbedKind::Hosts),
        word => Err(at.bad(format!("unknown kind '{word}'; allowed: {KINDS}"))),
    }
}

/// Parses what two containers have in common.
///
/// # Errors
/// There is no such thing.
pub fn share(at: &At<'_>, value: &Value) -> Result<Share, PlanError> {
    let word = at.text(value)?;
    let known = Share::ALL.into_iter().find(|share| share.name() == word);
    known.ok_or_else(|| {
        let allowed = Share::ALL.map(Share::name).join(", ");
        at.bad(format!("unknown share '{word}'; allowed: {allowed}"))
    })
}

fn rate(at: &At<'_>, value: &Value) -> Result<Rate, PlanError> {
    at.text(value)?.parse().map_err(|e: crossway_netlab::NetError| at.bad(e.to_string()))
}

fn offloads(at: &At<'_>, value: &Value) -> Result<Offloads, PlanError> {
    match at.text(value)? {
        "on" => Ok(Offloads::On),
        "off" => Ok(Offloads::Off),
        word => Err(at.bad(format!("unknown offloads '{word}'; allowed: on, off"))),
    }
}

fn tipc(at: &At<'_>, value: &Value, kind: TestbedKind) -> Result<Tipc, PlanError> {
    match (at.text(value)?, kind) {
        ("kernel", TestbedKind::Guests) => Ok(Tipc::Kernel),
        ("kernel", _) => Err(at.bad(
            "the kernel's TIPC needs kind = \"guests\": between two namespaces of one kernel it bypasses the link",
        )),
        ("node", _) => Ok(Tipc::Node),
        (word, _) => Err(at.bad(format!("unknown TIPC '{word}'; allowed: kernel, node"))),
    }
}

/// The name of the testbed that `--hosts` adds to a plan without testbeds.
const COMMAND_LINE: &str = "hosts";

impl Plan {
    /// Makes the hosts named on the command line the hosts of every testbed of kind `hosts`. A plan without testbeds is
    /// changed so that those of its mechanisms that work between hosts run between these hosts.
    ///
    /// # Errors
    /// The hosts cannot be parsed, the plan has testbeds of other kinds only, it has no mechanism that works between
    /// hosts, or only one host is named although every case needs two.
    pub fn set_hosts(&mut self, hosts: &str) -> Result<(), HostsError> {
        let hosts = HostWords::list(hosts)?;
        if self.testbeds.is_empty() {
            self.move_to_hosts()?;
        }
        let mut found = false;
        for testbed in self.testbeds.iter_mut().filter(|t| t.kind == TestbedKind::Hosts) {
            testbed.hosts.clone_from(&hosts);
            found = true;
        }
        if !found {
            return Err(HostsError::NoTestbed(self.name.clone()));
        }
        let between = self
            .groups
            .iter()
            .all(|group| !group.testbeds.contains(&None) && group.ends == [Ends::Between]);
        if hosts.len() < 2 && between && self.testbeds.iter().all(|t| t.kind == TestbedKind::Hosts)
        {
            return Err(HostsError::One);
        }
        Ok(())
    }

    fn move_to_hosts(&mut self) -> Result<(), HostsError> {
        for group in &mut self.groups {
            group
                .mechanisms
                .retain(|id| catalogue::find(id).is_some_and(|e| e.caps().crosses_hosts));
            group.testbeds = vec![Some(COMMAND_LINE.to_owned())];
            group.ends = vec![Ends::Between];
            // Two hosts share no cores, and background load runs on this machine only.
            group.placements = None;
            group.loads = vec![Load::default()];
        }
        self.groups.retain(|group| !group.mechanisms.is_empty());
        if self.groups.is_empty() {
            return Err(HostsError::NothingCrosses(self.name.clone()));
        }
        self.testbeds.push(Testbed::of(COMMAND_LINE, TestbedKind::Hosts));
        Ok(())
    }
}

/// The reason why a plan cannot run on the hosts named on the command line.
#[derive(Debug, thiserror::Error)]
pub enum HostsError {
    /// The list of hosts is malformed.
    #[error("{0}")]
    Bad(#[from] BadHosts),
    /// Only one host is named, and every case needs two.
    #[error(
        "--hosts names only one host, but every case of this plan runs between two hosts; name two, e.g. --hosts \
         'local,ssh HOST'"
    )]
    One,
    /// All testbeds of the plan are created on this machine.
    #[error(
        "the plan '{0}' has no testbed of kind \"hosts\" for the hosts of --hosts; add one to a copy of the plan: \
         [testbed.real] kind = \"hosts\""
    )]
    NoTestbed(String),
    /// No mechanism of the plan works between hosts.
    #[error(
        "the plan '{0}' has no mechanism that works between hosts; add one to a copy of the plan, such as tcp, udp or tipc-node-stream"
    )]
    NothingCrosses(String),
}

/// Parses a value of the axis `testbed`; `None` stands for this machine.
pub(super) fn named(
    at: &At<'_>,
    value: &Value,
    testbeds: &[Testbed],
) -> Result<Option<String>, PlanError> {
    let name = at.text(value)?;
    if name == LOCAL {
        return Ok(None);
    }
    if testbeds.iter().any(|testbed| testbed.name == name) {
        return Ok(Some(name.to_owned()));
    }
    let mut known = vec![LOCAL];
    known.extend(testbeds.iter().map(|testbed| testbed.name.as_str()));
    Err(at.bad(format!("unknown testbed '{name}'; allowed: {}", known.join(", "))))
}

/// The testbed as a table of a plan.
pub fn written(testbed: &Testbed) -> Table {
    let mut table = Table::new();
    table.insert("kind".into(), testbed.kind.name().into());
    if testbed.kind == TestbedKind::Hosts {
        return table;
    }
    if testbed.kind == TestbedKind::Containers {
        if !testbed.shares.is_empty() {
            let words = testbed.shares.iter().map(|share| share.name().into()).collect();
            table.insert("shares".into(), Value::Array(words));
        }
        return table;
    }
    if let Some(rate) = testbed.rate {
        table.insert("rate".into(), rate.to_string().into());
    }
    table.insert("mtu".into(), Value::Integer(testbed.mtu_bytes.into()));
    let offloads = match testbed.offloads {
        Offloads::On => "on",
        Offloads::Off => "off",
    };
    table.insert("offloads".into(), offloads.into());
    if !testbed.tipc.is_empty() {
        let words = testbed.tipc.iter().map(|tipc| tipc.name().into()).collect();
        table.insert("tipc".into(), Value::Array(words));
    }
    if let Some(kernel) = &testbed.kernel {
        table.insert("kernel".into(), kernel.as_str().into());
    }
    if let Some(cpus) = testbed.cpus {
        table.insert("cpus".into(), Value::Integer(cpus.into()));
    }
    table
}
