//! The first program of a guest: sets up the machine, then starts a second program, which runs the commands received
//! over the serial line.

use std::fs::{self, OpenOptions};
use std::io::{BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crossway_sys::boot;
use crossway_sys::xstate;

use super::frame::{Frame, Lane, PREAMBLE};
use super::message::{GuestFacts, Interface, Setup};
use super::modules::Modules;
use super::qemu::MACHINE;
use super::registers::LOST;
use super::relay::{CountingReader, Wire, lock};
use super::sessions::{self, Sessions};
use super::{GuestMachine, LINE, MODULES_DIR, SETUP_VARIABLE, initrd, qemu};
use crate::tool;

/// The environment variables through which the second program, which serves the line, receives what the first program
/// found out: the facts, or the reason why it failed.
const FACTS_VARIABLE: &str = "CROSSWAY_GUEST_FACTS";
const FAILED_VARIABLE: &str = "CROSSWAY_GUEST_FAILED";

/// The environment variable that makes a program check its string functions.
const CHECK_VARIABLE: &str = "CROSSWAY_GUEST_CHECK";
/// The output of a program with [`CHECK_VARIABLE`] if the functions work correctly.
const RIGHT: &str = "right";
/// Time limit of the check. It takes milliseconds, but a program with faulty string functions may run for ever.
const CHECK_LIMIT: Duration = Duration::from_secs(20);

/// Runs as the guest's first program and normally does not return. Its child serves the line; the first program itself
/// reaps orphaned processes and switches the machine off when that child ends. A returned text is an error message.
pub fn run_guest_init() -> String {
    if std::env::var_os(FACTS_VARIABLE).is_some() || std::env::var_os(FAILED_VARIABLE).is_some() {
        return match serve() {
            Ok(()) => "the line to the host was closed".to_owned(),
            Err(e) => format!("the line to the host failed: {e}"),
        };
    }
    if std::env::var_os(CHECK_VARIABLE).is_some() {
        let why = xstate::check_string_functions().err();
        // Short enough for the pipe, so that it need not be read at the same time.
        print!("{}", why.as_deref().unwrap_or(RIGHT));
        std::process::exit(i32::from(why.is_some()));
    }
    if std::process::id() != 1 {
        return "guest-init is only for use as the first program inside a guest; start a guest with: crossway guest up"
            .to_owned();
    }
    let (variable, value) = match set_up() {
        Ok(facts) => (FACTS_VARIABLE, serde_json::to_string(&facts).unwrap_or_default()),
        Err(why) => (FAILED_VARIABLE, why),
    };
    match Command::new("/proc/self/exe").arg("guest-init").env(variable, value).spawn() {
        Ok(server) => while boot::reap_any().is_some_and(|pid| pid != server.id()) {},
        Err(e) => eprintln!("cannot start the server of the line to the host: {e}"),
    }
    boot::power_off().to_string()
}

fn set_up() -> Result<GuestFacts, String> {
    let file = std::env::var(SETUP_VARIABLE).map_err(|_| format!("{SETUP_VARIABLE} is not set"))?;
    let text = fs::read_to_string(&file).map_err(|e| format!("{file}: {e}"))?;
    let setup: Setup =
        serde_json::from_slice(text.as_bytes()).map_err(|e| format!("{file}: {e}"))?;
    let release = boot::kernel_release();
    let machine = GuestMachine::of_first_program();
    if machine != GuestMachine::UserMode {
        enter_host_files()?;
    }
    let folder = match machine {
        GuestMachine::UserMode => Some(Path::new(MODULES_DIR).join(&release)),
        _ => setup.modules_folder,
    };
    let modules = folder.as_deref().map_or(Ok(Modules::default()), |folder| {
        Modules::read(folder)
            .map_err(|e| format!("cannot read the modules of kernel {release}: {e}"))
    })?;
    make_root(&modules, folder.as_deref(), &release)?;
    machine.tell_programs().map_err(|e| format!("{MACHINE}: {e}"))?;
    boot::set_host_name(&setup.name).map_err(|e| e.to_string())?;
    let mut facts = GuestFacts { kernel: release, machine, ..GuestFacts::default() };
    for module in setup.modules {
        let name = module.split(' ').next().unwrap_or_default().to_owned();
        match load(&modules, &module) {
            Ok(()) => facts.modules.push(name),
            Err(why) => facts.missing_modules.push(format!("{name}: {why}")),
        }
    }
    mount_binder();
    attach(setup.interface.as_ref())?;
    facts.string_functions = check_string_functions();
    if let Some(why) = &facts.string_functions {
        fs::write(LOST, why).map_err(|e| format!("{LOST}: {e}"))?;
    }
    let uptime = fs::read_to_string("/proc/uptime").unwrap_or_default();
    let seconds = uptime.split(' ').next().and_then(|s| s.parse::<f64>().ok()).unwrap_or(0.0);
    facts.ready_after_ms = (seconds * 1000.0) as u64;
    Ok(facts)
}

/// Mounts a binderfs where programs look for one, if the kernel has it.
fn mount_binder() {
    let place = Path::new("/dev/binderfs");
    if fs::create_dir_all(place).is_ok() && boot::mount("binder", place, "").is_err() {
        let _ = fs::remove_dir(place);
    }
}

/// Checks the string functions in a program whose environment does not restrict them to narrow registers. Returns what
/// went wrong, or `None`.
fn check_string_functions() -> Option<String> {
    let child = Command::new("/proc/self/exe")
        .arg("guest-init")
        .env_clear()
        .env(CHECK_VARIABLE, "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(e) => return Some(format!("the check could not be started: {e}")),
    };
    let until = Instant::now() + CHECK_LIMIT;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if Instant::now() < until => std::thread::sleep(Duration::from_millis(1)),
            _ => {
                let _ = child.kill();
                let _ = child.wait();
                return Some(format!("the check did not end within {} s", CHECK_LIMIT.as_secs()));
            }
        }
    };
    let mut said = String::new();
    if let Some(mut out) = child.stdout.take() {
        let _ = out.read_to_string(&mut said);
    }
    match (status.code(), status.signal()) {
        (Some(0), _) if said == RIGHT => None,
        (_, Some(signal)) => Some(format!("the check was killed by signal {signal}")),
        _ if said.trim().is_empty() => Some("the check printed nothing".to_owned()),
        _ => Some(said),
    }
}

fn load(modules: &Modules, module: &str) -> Result<(), String> {
    let (name, parameters) = module.split_once(' ').unwrap_or((module, ""));
    let files = modules.in_order(name);
    if files.is_empty() && !modules.is_built_in(name) {
        return Err("the guest's kernel has no such module".to_owned());
    }
    files.iter().enumerate().try_for_each(|(at, file)| {
        // The last one is the module itself.
        let parameters = if at + 1 == files.len() { parameters } else { "" };
        if file.extension() == Some("ko".as_ref()) {
            return boot::load_module(file, parameters).map_err(|e| e.to_string());
        }
        let name = file.display().to_string();
        let image = initrd::unpacked(file).map_err(|e| format!("{name}: {e}"))?;
        boot::load_module_image(&name, &image, parameters).map_err(|e| e.to_string())
    })
}

/// Under QEMU the first root holds this program and a few modules. Loads these, mounts the host's files and makes them
/// the root, as they are from the start in user-mode Linux.
fn enter_host_files() -> Result<(), String> {
    let mount = |kind: &str, on: &str, options: &str| {
        boot::mount(kind, Path::new(on), options).map_err(|e| e.to_string())
    };
    mount("proc", "/proc", "")?;
    mount("sysfs", "/sys", "")?;
    // With the device of the line, over which a failure is reported.
    mount("devtmpfs", "/dev", "")?;
    let entries = fs::read_dir(initrd::MODULES).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    files.sort();
    files.iter().try_for_each(|file| boot::load_module(file, "")).map_err(|e| e.to_string())?;
    let options = "trans=virtio,version=9p2000.L,msize=512000,cache=loose";
    boot::mount_named(qemu::SHARE, "9p", Path::new("/host"), options).map_err(|e| {
        format!(
            "{e}; the kernel must have the 9P file system over virtio, as Debian's kernels have except the cloud \
             flavour (CONFIG_NET_9P_VIRTIO, CONFIG_9P_FS)"
        )
    })?;
    boot::leave_first_root(Path::new("/host")).map_err(|e| e.to_string())
}

/// Sets up the root file system: an overlay in memory above the host's files. The kernel's root is the host's tree,
/// which the host keeps read-only for this guest; writes go to the overlay.
fn make_root(modules: &Modules, folder: Option<&Path>, release: &str) -> Result<(), String> {
    let mount = |kind: &str, on: &str, options: &str| {
        boot::mount(kind, Path::new(on), options).map_err(|e| e.to_string())
    };
    let make = |path: &str| fs::create_dir_all(path).map_err(|e| format!("{path}: {e}"));
    let overlay = load(modules, "overlay");
    // The host's /tmp only serves as a mount point for the new root; the overlay shows it again.
    mount("tmpfs", "/tmp", "mode=0755")?;
    for part in ["/tmp/upper", "/tmp/work", "/tmp/root"] {
        make(part)?;
    }
    mount("overlay", "/tmp/root", "lowerdir=/,upperdir=/tmp/upper,workdir=/tmp/work").map_err(
        |why| overlay.err().map_or(why.clone(), |of_module| format!("{why}: {of_module}")),
    )?;
    mount("proc", "/tmp/root/proc", "")?;
    mount("sysfs", "/tmp/root/sys", "")?;
    // The host's sockets, locks and state files do not apply to this machine.
    mount("tmpfs", "/tmp/root/run", "mode=0755")?;
    mount("devtmpfs", "/tmp/root/dev", "")?;
    for (kind, on, options) in [
        ("devpts", "/tmp/root/dev/pts", "gid=5,mode=620,ptmxmode=666"),
        ("tmpfs", "/tmp/root/dev/shm", "mode=1777"),
        ("mqueue", "/tmp/root/dev/mqueue", ""),
    ] {
        make(on)?;
        mount(kind, on, options)?;
    }
    // Programs that load modules on demand look here.
    make("/tmp/root/lib/modules")?;
    let link = PathBuf::from("/tmp/root/lib/modules").join(release);
    if let Some(folder) = folder
        && !link.exists()
    {
        let _ = std::os::unix::fs::symlink(folder, link);
    }
    make("/tmp/root/run/lower")?;
    boot::change_root(Path::new("/tmp/root"), Path::new("/tmp/root/run/lower"))
        .map_err(|e| e.to_string())
}

/// Gives the guest's interface its name and addresses.
fn attach(interface: Option<&Interface>) -> Result<(), String> {
    let mut lines = String::from("link set lo up\n");
    if let Some(i) = interface {
        if Path::new("/sys/class/net/vec0").exists() {
            lines.push_str("link set vec0 name eth0\n");
        }
        lines.push_str(&format!(
            "addr add {}/24 dev eth0\naddr add {}/64 dev eth0 nodad\n\
             link set eth0 mtu {} up\n",
            i.ipv4, i.ipv6, i.mtu_bytes
        ));
        for (key, value) in [("accept_dad", 0), ("accept_ra", 0), ("router_solicitations", 0)] {
            let _ = fs::write(format!("/proc/sys/net/ipv6/conf/default/{key}"), value.to_string());
        }
    }
    tool::run("setting up the guest's interface", &["ip", "-batch", "-"], &lines)
        .map_err(|e| e.to_string())?;
    if interface.is_some_and(|i| !i.offloads) {
        let off = ["ethtool", "-K", "eth0", "tso", "off", "gso", "off", "gro", "off"];
        tool::run("setting up the guest's interface", &off, "").map_err(|e| e.to_string())?;
    }
    Ok(())
}

/// The device of the line under QEMU; `None` in user-mode Linux.
fn port_of_qemu() -> Option<PathBuf> {
    let ports = fs::read_dir("/sys/class/virtio-ports").ok()?.flatten();
    let named = |port: &fs::DirEntry| {
        fs::read_to_string(port.path().join("name")).is_ok_and(|name| name.trim() == qemu::PORT)
    };
    ports.into_iter().find(named).map(|port| Path::new("/dev").join(port.file_name()))
}

/// Serves the line until it is closed.
fn serve() -> std::io::Result<()> {
    let port = port_of_qemu();
    let device = port.as_deref().unwrap_or(Path::new(LINE));
    let line = OpenOptions::new().read(true).write(true).open(device)?;
    if port.is_none() {
        boot::make_line_raw(&line).map_err(std::io::Error::other)?;
    }
    let incoming = line.try_clone()?;
    (&line).write_all(PREAMBLE)?;
    let wire = Wire::unbounded(line);
    let mut reader = BufReader::new(CountingReader::new(incoming, wire.clone()));
    let word = |name| std::env::var(name).ok();
    match word(FAILED_VARIABLE) {
        Some(why) => wire.send(&Frame::Failed(why.into_bytes())),
        None => wire.send(&Frame::Ready(word(FACTS_VARIABLE).unwrap_or_default().into_bytes())),
    }
    let sessions = Sessions::default();
    while let Some(frame) = Frame::read(&mut reader)? {
        match frame {
            Frame::Exec { session, request } => {
                sessions::start(session, &request, &wire, &sessions)
            }
            Frame::Data { session, lane: Lane::Input, bytes } => {
                if let Some(input) = lock(&sessions).get(&session).and_then(|s| s.input.as_ref()) {
                    let _ = input.send(bytes);
                }
            }
            Frame::End { session, lane } => {
                if let Some(session) = lock(&sessions).get_mut(&session) {
                    match lane {
                        Lane::Input => session.input = None,
                        Lane::Output => session.output.close(),
                        Lane::Errors => session.errors.close(),
                    }
                }
            }
            Frame::Credit { session, lane, bytes } => {
                if let Some(session) = lock(&sessions).get(&session) {
                    match lane {
                        Lane::Output => session.output.widen(bytes as usize),
                        Lane::Errors => session.errors.widen(bytes as usize),
                        Lane::Input => {}
                    }
                }
            }
            Frame::Kill { session } => {
                if let Some(session) = lock(&sessions).get(&session) {
                    crossway_sys::proc::kill_group(session.leader);
                    // The requester has ended and no longer reads.
                    session.output.close();
                    session.errors.close();
                }
            }
            Frame::Ping => wire.send(&Frame::Pong),
            // The other frames are sent by a guest, not to it.
            _ => {}
        }
    }
    Ok(())
}
