//! `crossway guest`: kernels that run on this machine's files, as ordinary processes or under QEMU.

use std::process::ExitCode;

use crossway_netlab::{
    Guest as Booted, GuestKernel, GuestMachine, GuestRecord, GuestSpec, Network, check_qemu,
    exec_in_guest, fetch_kernel, guest_down, kvm_refusal, list_guests,
};

use super::Run;
use crate::args;
use crate::table::Grid;
use crate::ui::Ui;

/// Boot guests: other kernels that see this machine's files through a private overlay, as user-mode Linux with TIPC and
/// SCTP, or any kernel under QEMU
#[derive(clap::Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct Guest {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand)]
enum Action {
    /// Boot a guest, which runs until `crossway guest down`
    Up(Up),
    /// Run a command in a guest, with the standard input, output and environment of this process, and exit with the
    /// command's status
    Exec(Exec),
    /// Boot a guest, run one command in it, and shut it down
    Run(RunOnce),
    /// Get kernels for --kernel from Debian's packages, without installing them
    Fetch(Fetch),
    /// List the guests that are up, and the kernels that guests can boot
    List(ListGuests),
    /// Shut down guests
    Down(Down),
}

#[derive(clap::Args)]
struct Shape {
    /// Boot this kernel under QEMU: a version of Debian's (6.12, 6.12-rt), a release, or a file (./bzImage). Without it,
    /// the kernel in CROSSWAY_GUEST_KERNEL, or else user-mode Linux 6.1
    #[arg(long, add = args::kernels())]
    kernel: Option<String>,
    /// CPUs of the guest; user-mode Linux has one
    #[arg(long, default_value_t = 1)]
    cpus: u32,
    /// Memory of the guest in MiB [default: 256, or 1024 with --kernel]
    #[arg(long)]
    memory: Option<u32>,
    /// What runs the kernel; without it, KVM if it works on this machine, or else emulation
    #[arg(long, requires = "kernel")]
    accel: Option<Accel>,
    /// Put the guest in the place of HOST on NETWORK (NETWORK/HOST); HOST must have been created with `crossway net up
    /// --guests`
    #[arg(long, add = args::hosts())]
    net: Option<String>,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Accel {
    /// The processor, through /dev/kvm
    Kvm,
    /// An emulator, 3 to 20 times slower
    Emulated,
}

#[derive(clap::Args)]
struct Fetch {
    /// Versions, and flavours if not the standard one: 6.12, 6.12-rt, 6.1
    #[arg(required = true)]
    kernel: Vec<String>,
}

#[derive(clap::Args)]
struct Up {
    /// Name of the guest
    #[arg(default_value = "g")]
    name: String,
    #[command(flatten)]
    shape: Shape,
    /// Print the description of the guest as JSON
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct Exec {
    /// Name of the guest
    #[arg(add = args::guests())]
    name: String,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<String>,
}

#[derive(clap::Args)]
struct RunOnce {
    #[command(flatten)]
    shape: Shape,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<String>,
}

#[derive(clap::Args)]
struct ListGuests {
    /// Print the list as JSON
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct Down {
    /// Names of the guests
    #[arg(required_unless_present = "all", add = args::guests())]
    name: Vec<String>,
    /// Shut down all guests that are up, including those of running measurements
    #[arg(long, conflicts_with = "name")]
    all: bool,
}

/// Run as the init process of a guest
#[derive(clap::Args)]
pub(crate) struct GuestInit {
    /// Arguments that the guest's kernel appends to the command line
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    _rest: Vec<String>,
}

/// Run as the keeper process of a guest
#[derive(clap::Args)]
pub(crate) struct GuestKeeper {
    /// Name of the guest
    name: String,
}

impl Run for Guest {
    fn run(self, ui: &Ui) -> anyhow::Result<ExitCode> {
        match self.action {
            Action::Up(args) => args.run(ui),
            Action::Exec(args) => exec(&args.name, &args.command),
            Action::Run(args) => args.run(),
            Action::Fetch(args) => args.run(),
            Action::List(args) => args.run(ui),
            Action::Down(args) => args.run(),
        }
    }
}

impl Run for GuestInit {
    fn run(self, _: &Ui) -> anyhow::Result<ExitCode> {
        anyhow::bail!(crossway_netlab::run_guest_init())
    }
}

impl Run for GuestKeeper {
    fn run(self, _: &Ui) -> anyhow::Result<ExitCode> {
        crossway_netlab::run_guest_keeper(&self.name)?;
        Ok(ExitCode::SUCCESS)
    }
}

impl Up {
    fn run(self, ui: &Ui) -> anyhow::Result<ExitCode> {
        let guest = boot(&self.name, &self.shape)?.keep()?;
        if self.json {
            ui.print_json(&guest)?;
        } else {
            print_table(ui, std::slice::from_ref(&guest));
            println!("run a command in the guest: crossway guest exec {} -- COMMAND", guest.name);
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl RunOnce {
    fn run(self) -> anyhow::Result<ExitCode> {
        let guest = boot(&format!("r{}", std::process::id()), &self.shape)?;
        exec(&guest.record().name, &self.command)
    }
}

impl ListGuests {
    fn run(self, ui: &Ui) -> anyhow::Result<ExitCode> {
        let guests = list_guests()?;
        if self.json {
            ui.print_json(&guests)?;
        } else {
            match guests.is_empty() {
                true => println!("no guest is up; boot one with: crossway guest up"),
                false => print_table(ui, &guests),
            }
            print_kernels();
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Fetch {
    fn run(self) -> anyhow::Result<ExitCode> {
        for word in &self.kernel {
            let kernel = fetch_kernel(word)?;
            println!("{word}: {}", kernel.release);
        }
        println!("boot one with: crossway guest up --kernel {}", self.kernel[0]);
        Ok(ExitCode::SUCCESS)
    }
}

fn print_kernels() {
    let kernels = GuestKernel::all();
    if kernels.is_empty() {
        println!("kernels for --kernel: none yet; get one with: crossway guest fetch 6.12");
        return;
    }
    let names: Vec<&str> = kernels.iter().map(|kernel| kernel.release.as_str()).collect();
    println!("kernels for --kernel: {}", names.join(", "));
    match (check_qemu(), kvm_refusal()) {
        (Err(e), _) => println!("they need QEMU: {e}"),
        (Ok(_), Some(why)) => println!("they are emulated here: {why}"),
        (Ok(_), None) => {}
    }
}

impl Down {
    fn run(self) -> anyhow::Result<ExitCode> {
        let names = if self.all {
            list_guests()?.into_iter().map(|guest| guest.name).collect()
        } else {
            self.name
        };
        names.iter().try_for_each(|name| guest_down(name))?;
        Ok(ExitCode::SUCCESS)
    }
}

fn boot(name: &str, shape: &Shape) -> anyhow::Result<Booted> {
    let mut spec = match &shape.kernel {
        None => GuestSpec::usual(name)?,
        Some(word) => GuestSpec::of_kernel(name, GuestKernel::find(word)?)?,
    };
    spec.memory_mib = shape.memory.unwrap_or(spec.memory_mib);
    spec.cpu_count = shape.cpus;
    spec.machine = shape.accel.map(|accel| match accel {
        Accel::Kvm => GuestMachine::Kvm,
        Accel::Emulated => GuestMachine::Emulated,
    });
    let place: Option<(Network, &str)> = match &shape.net {
        None => None,
        Some(place) => {
            let (network, host) = place.split_once('/').ok_or_else(|| {
                anyhow::anyhow!(
                    "--net {place}: write NETWORK/HOST, as in the first column of `crossway net list`"
                )
            })?;
            Some((crossway_netlab::find(network)?, host))
        }
    };
    Ok(Booted::boot(&spec, place.as_ref().map(|(network, host)| (network, *host)))?)
}

fn exec(name: &str, command: &[String]) -> anyhow::Result<ExitCode> {
    Ok(exec_in_guest(name, command)?.into())
}

fn print_table(ui: &Ui, guests: &[GuestRecord]) {
    let mut grid = Grid::of_text(["guest", "kernel", "run by", "CPUs", "memory", "network"]);
    for guest in guests {
        let facts = guest.facts.clone().unwrap_or_default();
        let place = guest.network.as_ref();
        grid.row([
            guest.name.clone(),
            facts.kernel,
            facts.machine.about().to_owned(),
            guest.cpu_count.to_string(),
            format!("{} MiB", guest.memory_mib),
            place.map_or("none".to_owned(), |p| format!("{} {} {}", p.host, p.ipv4, p.ipv6)),
        ]);
    }
    println!("{}", grid.text(ui));
    for guest in guests {
        let facts = guest.facts.clone().unwrap_or_default();
        if let Some(why) = facts.string_functions {
            println!("{}: AVX registers LOST: {why}", guest.name);
        }
        if !facts.missing_modules.is_empty() {
            println!("{}: not loaded: {}", guest.name, facts.missing_modules.join("; "));
        }
    }
}
