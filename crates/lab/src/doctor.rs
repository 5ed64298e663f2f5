//! Checks everything that Crossway can use here, mechanisms and tools. Each item is either ready, with its version, or
//! missing, with a remedy.

use crossway_mech::Probe;
use crossway_netlab::{GuestKernel, GuestRegisters, check_qemu, kvm_refusal};
use crossway_sys::Obstacle;
use serde::Serialize;

use crate::catalogue::{self, Entry};
use crate::tools::{Found, TOOLS};

/// Kind of a checked item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CheckKind {
    /// A mechanism.
    Mechanism,
    /// An external program that is measured like a mechanism.
    Contender,
    /// An external tool, such as perf.
    Tool,
    /// A feature or permission of the kernel or the machine.
    Facility,
}

/// One checked item.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Item {
    /// Kind of the item.
    pub kind: CheckKind,
    /// The item's name.
    pub name: String,
    /// What the item is used for.
    pub about: String,
    /// Whether the item is ready.
    pub ready: bool,
    /// The item's version; `None` unless it is ready.
    pub version: Option<String>,
    /// Why the item is missing; `None` if it is ready.
    pub why: Option<String>,
    /// Remedy: the command that provides the item; `None` if there is no such command or the item is ready.
    pub remedy: Option<String>,
}

/// Checks everything. Mechanisms are tested, tools are queried for their versions.
pub fn examine() -> Vec<Item> {
    // Querying all tools one after the other would take seconds.
    let tools: Vec<_> = TOOLS.iter().map(|tool| std::thread::spawn(|| tool.find())).collect();
    let mut items: Vec<Item> = catalogue::all()
        .map(|entry| {
            let kind = match entry {
                Entry::Mechanism(_) => CheckKind::Mechanism,
                Entry::Contender(_) => CheckKind::Contender,
            };
            match entry.probe() {
                Probe::Ready { version } => ready(kind, entry.id(), entry.about(), version),
                Probe::Missing(obstacle) => missing(kind, entry.id(), entry.about(), obstacle),
            }
        })
        .collect();
    items.push(hardware_counters());
    items.push(two_cpus());
    items.push(guest_registers());
    items.push(guest_kernels());
    for (tool, found) in TOOLS.iter().zip(tools) {
        let found = found.join().unwrap_or_else(|_| {
            let remedy = format!("sudo apt-get install --reinstall {}", tool.package);
            Found::Missing(Obstacle::new("the search for it failed", remedy))
        });
        items.push(match found {
            Found::Ready { version, .. } => {
                ready(CheckKind::Tool, tool.name, tool.purpose, version)
            }
            Found::Missing(obstacle) => missing(CheckKind::Tool, tool.name, tool.purpose, obstacle),
        });
    }
    items
}

fn ready(kind: CheckKind, name: &str, about: &str, version: String) -> Item {
    Item {
        kind,
        name: name.to_owned(),
        about: about.to_owned(),
        ready: true,
        version: Some(version),
        why: None,
        remedy: None,
    }
}

fn missing(kind: CheckKind, name: &str, about: &str, obstacle: Obstacle) -> Item {
    Item {
        kind,
        name: name.to_owned(),
        about: about.to_owned(),
        ready: false,
        version: None,
        why: Some(obstacle.why),
        remedy: Some(obstacle.remedy),
    }
}

fn hardware_counters() -> Item {
    let about = "cycles, instructions and cache misses of each role";
    match crossway_sys::perf::probe() {
        Ok(()) => {
            ready(CheckKind::Facility, "hardware-counters", about, "perf_event_open".to_owned())
        }
        Err(e) => missing(
            CheckKind::Facility,
            "hardware-counters",
            about,
            Obstacle::new(e.to_string(), e.remedy()),
        ),
    }
}

fn two_cpus() -> Item {
    let about = "two CPUs, so that sender and receiver run at the same time";
    let allowed = crossway_sys::affinity::allowed().unwrap_or_default();
    let list = crossway_sys::topology::format_cpu_list(&allowed);
    if allowed.len() >= 2 {
        return ready(CheckKind::Facility, "two-cpus", about, format!("cpus {list}"));
    }
    let why = format!("this process may use only CPU {list}");
    let remedy =
        "widen the affinity (taskset -c 0-1 crossway ...) or the cgroup's cpuset, or use a machine with more \
         CPUs".to_owned();
    missing(CheckKind::Facility, "two-cpus", about, Obstacle { why, remedy })
}

fn guest_registers() -> Item {
    let about = "whether programs in guests can use AVX and wider registers; `crossway guest list` shows what each \
                 guest found";
    let registers = GuestRegisters::here();
    let how = registers.explanation();
    if registers != GuestRegisters::Hidden {
        return ready(CheckKind::Facility, "guest-registers", about, how);
    }
    missing(
        CheckKind::Facility,
        "guest-registers",
        about,
        Obstacle::new(how, GuestRegisters::remedy()),
    )
}

fn guest_kernels() -> Item {
    let (name, about) = ("guest-kernels", "kernels that `crossway guest up --kernel` can boot");
    let absent = |why: String, remedy: &str| {
        missing(CheckKind::Facility, name, about, Obstacle::new(why, remedy))
    };
    if let Err(e) = check_qemu() {
        let remedy = format!("sudo apt-get install {}", crossway_netlab::QEMU.1);
        return absent(e.to_string(), &remedy);
    }
    let kernels = GuestKernel::all();
    if kernels.is_empty() {
        return absent("there is no kernel".to_owned(), "sudo crossway guest fetch 6.12");
    }
    let names: Vec<&str> = kernels.iter().map(|kernel| kernel.release.as_str()).collect();
    let how = match kvm_refusal() {
        Some(_) => "emulated",
        None => "by KVM if it works",
    };
    ready(CheckKind::Facility, name, about, format!("{}, {how}", names.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_looked_at_and_what_is_missing_has_a_remedy() {
        let items = examine();
        assert_eq!(items.len(), catalogue::all().count() + TOOLS.len() + 4);
        for item in &items {
            assert_eq!(item.ready, item.version.is_some(), "{item:?}");
            let told = item.why.as_ref().zip(item.remedy.as_ref());
            assert_eq!(
                !item.ready,
                told.is_some_and(|(w, r)| !w.is_empty() && !r.is_empty()),
                "{item:?}"
            );
        }
    }
}
