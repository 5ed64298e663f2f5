//! Guests: kernels with the host's files below a private overlay, as Debian's user-mode Linux, which is an ordinary
//! process, or under QEMU.
//!
//! A guest consists of a keeper (one of our processes), the kernel's process or QEMU as the first of a PID namespace (so
//! that its helpers die with it), and the program inside, which runs commands. All files that the guest writes are in
//! memory and disappear with the guest.

mod exec;
mod frame;
mod heartbeat;
mod init;
mod initrd;
mod keeper;
mod kernels;
mod message;
mod modules;
mod qemu;
mod record;
mod registers;
mod relay;
mod sessions;
mod subcommand;
mod user_mode;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};

use crossway_sys::binder::FIXED_DEVICE;
use crossway_sys::program;

pub use exec::{GuestExit, exec_in_guest};
pub use init::run_guest_init;
pub use keeper::run_guest_keeper;
pub use kernels::{GuestKernel, fetch_kernel};
pub use message::GuestFacts;
pub use qemu::{GuestMachine, QEMU, check_qemu, guest_machine, kvm_refusal};
pub(crate) use record::remove_abandoned;
pub use record::{GuestPlace, GuestRecord};
pub use registers::{GuestRegisters, registers_lost};
pub use subcommand::run_guest_subcommand;

use crate::network::Network;
use crate::registry::Process;
use crate::topology::check_name;
use crate::{HostKind, NetError, Offloads};
use message::{Boot, Interface, Outcome, Setup};
use record::GuestFiles;

/// The name of user-mode Linux's executable.
const KERNEL: &str = "linux.uml";
/// The folder with Debian's modules for user-mode Linux, with one subfolder per release.
const MODULES_DIR: &str = "/usr/lib/uml/modules";
/// The device of the serial line in user-mode Linux.
const LINE: &str = "/dev/ttyS0";
/// The variable that passes the path of the setup file to the first program.
const SETUP_VARIABLE: &str = "CROSSWAY_GUEST";
/// The variable that tells the first program of a guest under QEMU which [`GuestMachine`] it is in.
const MACHINE_VARIABLE: &str = "CROSSWAY_GUEST_MACHINE";
/// Modules loaded in every guest: the protocols that are measured, modules that these would request on demand (a
/// listening SCTP socket needs hmac(md5)), and modules that a network inside a guest needs.
const MODULES: [&str; 10] =
    ["ipv6", "tipc", "hmac", "sctp", "veth", "vxlan", "bridge", "sch_tbf", "sch_netem", "tun"];
/// Modules loaded in addition under QEMU: the network device, and protocols that Debian's user-mode Linux lacks.
const MODULES_OF_QEMU: [&str; 3] = ["virtio_net", "vsock_loopback", "smc"];
/// Number of Binder's devices in guests under QEMU, whose kernel may lack binderfs. A channel needs
/// one while it is opened.
const BINDER_DEVICES: usize = 16;
/// The variable with the kernel of guests for which none is named.
const KERNEL_VARIABLE: &str = "CROSSWAY_GUEST_KERNEL";
/// The number of CPUs that a guest under QEMU can have.
pub const MOST_GUEST_CPUS: u32 = 64;

/// The description of a guest to boot.
#[derive(Clone, Debug)]
pub struct GuestSpec {
    /// The name of the guest, unique on this machine.
    pub name: String,
    /// The guest's memory in MiB.
    pub memory_mib: u32,
    /// The kernel, which QEMU boots; `None`: user-mode Linux.
    pub kernel: Option<GuestKernel>,
    /// Number of the guest's CPUs; user-mode Linux has one.
    pub cpu_count: u32,
    /// What runs a kernel of QEMU; `None`: KVM if it works here, or else the emulator.
    pub machine: Option<GuestMachine>,
    /// This program, which runs as `PROGRAM guest-keeper NAME` on the host and as `PROGRAM guest-init` in the guest.
    pub program: PathBuf,
}

impl GuestSpec {
    /// Describes a guest of user-mode Linux with 256 MiB; its keeper process runs the executable of this program.
    ///
    /// # Errors
    /// The path of the running program cannot be determined.
    pub fn new(name: &str) -> Result<GuestSpec, NetError> {
        let program = std::env::current_exe()
            .map_err(|e| NetError::State { path: "/proc/self/exe".into(), why: e.to_string() })?;
        Ok(GuestSpec {
            name: name.to_owned(),
            memory_mib: 256,
            kernel: None,
            cpu_count: 1,
            machine: None,
            program,
        })
    }

    /// Describes a guest that QEMU boots from `kernel`, with one CPU and 1024 MiB.
    ///
    /// # Errors
    /// The path of the running program cannot be determined.
    pub fn of_kernel(name: &str, kernel: GuestKernel) -> Result<GuestSpec, NetError> {
        Ok(GuestSpec { kernel: Some(kernel), memory_mib: 1024, ..GuestSpec::new(name)? })
    }

    /// Describes the guest that a user gets who names no kernel: of the kernel in the environment variable
    /// `CROSSWAY_GUEST_KERNEL`, as [`GuestKernel::find`] reads it, or else of user-mode Linux.
    ///
    /// # Errors
    /// There is no such kernel, or the path of the running program cannot be determined.
    pub fn usual(name: &str) -> Result<GuestSpec, NetError> {
        match std::env::var(KERNEL_VARIABLE) {
            Ok(word) if !word.is_empty() => GuestSpec::of_kernel(name, GuestKernel::find(&word)?),
            _ => GuestSpec::new(name),
        }
    }

    fn check(&self) -> Result<(), NetError> {
        check_name("guest name", &self.name, 12)?;
        let least = if self.kernel.is_some() { 256 } else { 64 };
        if !(least..=16384).contains(&self.memory_mib) {
            return Err(NetError::Impossible {
                what: "guest memory",
                given: format!("{} MiB", self.memory_mib),
                why: format!("such a guest can have {least} to 16384 MiB"),
            });
        }
        let most = if self.kernel.is_some() { MOST_GUEST_CPUS } else { 1 };
        if !(1..=most).contains(&self.cpu_count) {
            return Err(NetError::Impossible {
                what: "guest CPUs",
                given: self.cpu_count.to_string(),
                why: match self.kernel {
                    Some(_) => format!("a guest can have 1 to {most}"),
                    None => "user-mode Linux has one; name a kernel: --kernel 6.12".to_owned(),
                },
            });
        }
        Ok(())
    }
}

/// A guest that is ended when this value is dropped.
#[derive(Debug)]
pub struct Guest {
    record: GuestRecord,
    facts: GuestFacts,
    keeper: Child,
    hold: Option<ChildStdin>,
}

impl Guest {
    /// Boots a guest and waits until it can run commands. With a `place`, the guest takes the place of the named host
    /// on that network; the host must be a tap.
    ///
    /// # Errors
    /// Invalid settings, a name in use, missing privilege, no user-mode-linux; or [`NetError::Guest`] with the last
    /// output of its kernel. Nothing remains after an error.
    pub fn boot(spec: &GuestSpec, place: Option<(&Network, &str)>) -> Result<Guest, NetError> {
        spec.check()?;
        crate::lab::check_privilege()?;
        if spec.kernel.is_some() {
            check_qemu()?;
        } else if program::find(KERNEL).is_none() {
            return Err(NetError::MissingTool { tool: KERNEL, package: "user-mode-linux" });
        }
        let host = match place {
            Some((network, name)) => Some((network, network.host(name)?)),
            None => None,
        };
        if let Some((network, host)) = host
            && host.kind != HostKind::Tap
        {
            return Err(NetError::Impossible {
                what: "place of the guest",
                given: format!("{}/{}", network.name, host.name),
                why: "this host is a namespace, not a place for a guest; create the network with places for guests: \
                      crossway net up --guests NAME"
                    .to_owned(),
            });
        }
        // Only user-mode Linux keeps its programs' registers through a buffer of its own.
        let registers = match spec.kernel {
            Some(_) => GuestRegisters::Kernel,
            None => GuestRegisters::here(),
        };
        let record = GuestRecord {
            name: spec.name.clone(),
            memory_mib: spec.memory_mib,
            kernel: spec.kernel.clone(),
            cpu_count: spec.cpu_count,
            asked_machine: spec.machine,
            program: spec.program.clone(),
            network: host.map(|(network, host)| GuestPlace {
                host: format!("{}/{}", network.name, host.name),
                tap: host.interface.clone(),
                mac: host.mac.clone(),
                ipv4: host.ipv4,
                ipv6: host.ipv6,
                mtu_bytes: network.link.mtu_bytes,
            }),
            cpus: host.map(|(_, host)| host.cpus.clone()).unwrap_or_default(),
            legacy_state_only: registers == GuestRegisters::Hidden,
            registers,
            starter: Process::own(),
            keeper: None,
            facts: None,
        };
        record::claim(&record)?;
        let prefix = host.map(|(_, host)| host.prefix()).unwrap_or_default();
        let offloads = host.is_some_and(|(network, _)| network.link.offloads == Offloads::On);
        Self::start(record.clone(), &prefix, offloads).inspect_err(|_| record::remove(&record.name))
    }

    fn start(record: GuestRecord, prefix: &[String], offloads: bool) -> Result<Guest, NetError> {
        let files = GuestFiles::of(&record.name);
        files.make()?;
        let mut modules: Vec<String> = MODULES.map(str::to_owned).into();
        if record.kernel.is_some() {
            modules.extend(MODULES_OF_QEMU.map(str::to_owned));
            let device = |number| format!("{FIXED_DEVICE}{number}");
            let devices: Vec<_> = (0..BINDER_DEVICES).map(device).collect();
            modules.push(format!("binder_linux devices={}", devices.join(",")));
        }
        let setup = Setup {
            name: record.name.clone(),
            modules,
            modules_folder: record.kernel.as_ref().and_then(|kernel| kernel.modules.clone()),
            interface: record.network.as_ref().map(|place| Interface {
                tap: place.tap.clone(),
                mac: place.mac.clone(),
                ipv4: place.ipv4.to_string(),
                ipv6: place.ipv6.to_string(),
                mtu_bytes: place.mtu_bytes,
                offloads,
            }),
        };
        let text = serde_json::to_string(&setup).unwrap_or_default();
        std::fs::write(files.setup(), text).map_err(|e| files.error("setup.json", e))?;
        let program = record.program.display().to_string();
        let words: Vec<&str> = prefix
            .iter()
            .map(String::as_str)
            .chain([program.as_str(), "guest-keeper", record.name.as_str()])
            .collect();
        let mut keeper = Command::new(words[0])
            .args(&words[1..])
            .env("PATH", program::search_path())
            // Ctrl-C at a terminal is handled by the starting process, which then ends the guest properly.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // The keeper outlives this process and must not keep its standard error open.
            .stderr(files.create("keeper")?)
            .spawn()
            .map_err(|e| files.error(&words.join(" "), e))?;
        let hold = keeper.stdin.take();
        let mut word = String::new();
        if let Some(out) = keeper.stdout.take() {
            let _ = BufReader::new(out).read_line(&mut word);
        }
        let failed = |what: String, said| NetError::Guest { name: record.name.clone(), what, said };
        let error = match serde_json::from_slice(word.as_bytes()) {
            Ok(Boot::Ready(facts)) => {
                let keeper_process = Process::of(keeper.id());
                let record =
                    GuestRecord { keeper: keeper_process, facts: Some(facts.clone()), ..record };
                return Ok(Guest { record, facts, keeper, hold });
            }
            Ok(Boot::Failed(what, said)) => failed(what, said),
            Err(_) => failed(
                "was lost because its keeper process ended unexpectedly".to_owned(),
                std::fs::read_to_string(files.keeper_errors()).unwrap_or_default(),
            ),
        };
        drop(hold);
        let _ = keeper.wait();
        Err(error)
    }

    /// The description of the running guest.
    pub fn record(&self) -> &GuestRecord {
        &self.record
    }

    /// The facts that the guest reported.
    pub fn facts(&self) -> &GuestFacts {
        &self.facts
    }

    /// Whether the guest runs, as far as its keeper knows. A guest that has just died counts as running until the
    /// keeper notices, within seconds.
    pub fn lives(&mut self) -> bool {
        matches!(self.keeper.try_wait(), Ok(None))
            && matches!(exec::ask(&self.record.name, exec::LIVES, &[]), Ok(Outcome::Exited(0)))
    }

    /// The arguments that, put before a command, run it in the guest.
    pub fn prefix(&self) -> Vec<String> {
        let program = self.record.program.display().to_string();
        [program.as_str(), "guest", "exec", &self.record.name, "--"].map(str::to_owned).to_vec()
    }

    /// Makes the guest outlive this value, until [`guest_down`] ends it.
    ///
    /// # Errors
    /// The guest has ended meanwhile.
    pub fn keep(mut self) -> Result<GuestRecord, NetError> {
        let told = self.hold.take().map(|mut hold| writeln!(hold, "{}", keeper::STAY));
        match told {
            Some(Ok(())) => Ok(self.record.clone()),
            _ => Err(record::unknown(&self.record.name, &[])),
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // The end of its standard input tells the keeper to end the guest; for a guest that is to stay it is already
        // closed.
        if self.hold.take().is_some() {
            let _ = self.keeper.wait();
            record::remove(&self.record.name);
        }
    }
}

/// Lists the guests that are running or starting.
///
/// # Errors
/// The list cannot be locked. A guest whose record cannot be read is only logged and left out.
pub fn list_guests() -> Result<Vec<GuestRecord>, NetError> {
    record::list()
}

/// Ends a guest, whichever process holds it.
///
/// # Errors
/// There is no such guest.
pub fn guest_down(name: &str) -> Result<(), NetError> {
    let guest = exec::find(name)?;
    let asked = exec::ask(name, exec::END, &[]);
    if let Some(keeper) = guest.keeper {
        // The keeper cleans up and ends by itself once its kernel is dead; a keeper that does not accept requests is
        // killed.
        let start = std::time::Instant::now();
        while asked.is_ok() && keeper.is_alive() && start.elapsed().as_secs() < 10 {
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        keeper.kill();
    }
    record::remove(name);
    Ok(())
}
