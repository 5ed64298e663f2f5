//! `af-xdp`: frames of a pair of virtual interfaces, which a program in the kernel (XDP) takes from
//! the driver and hands to AF_XDP sockets, before the network stack sees them.
//!
//! The two interfaces (veth) are in a network namespace without a name. It exists as long as one of
//! the two sockets, so a killed process leaves nothing behind. Each socket shares memory with the
//! kernel (copy mode): a message costs one system call at the sender (`sendto`), and one at a
//! receiver that waits (`poll`). As an interface does, a full receiver drops frames; they are
//! counted ([`dropped_messages`](crate::contract::COUNTERS)).
//!
//! The listening end creates everything and needs all the privilege; it passes a socket on.

mod halves;

use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use aya::maps::XskMap;
use aya::programs::Xdp;
use aya::programs::xdp::XdpMode;
use aya::{Ebpf, EbpfError};
use crossway_sys::lifeline::Lifeline;
use crossway_sys::pages::Pages;
use crossway_sys::{Errno, OsError, netns, xdp};

use crate::building_blocks::complete::Complete;
use crate::building_blocks::message_socket::{MessageRx, MessageTx, check_limit};
use crate::self_test::exchange_a_byte;
use crate::{
    Caps, Carrier, Family, Mechanism, Meeting, Offer, OpenError, Privilege, Probe, Reliability,
    Spec, Transport,
};

use halves::{XdpSink, XdpSource};

/// The mechanism `af-xdp`.
#[derive(Debug)]
pub struct AfXdp;

/// The sending half: writes frames into memory that it shares with the kernel.
pub type AfXdpTx = MessageTx<XdpSink>;
/// The receiving half: copies messages out of frames in memory that it shares with the kernel.
pub type AfXdpRx = MessageRx<XdpSource>;

/// The program, compiled from `bpf/redirect.bpf.c` by `scripts/bpf.sh`.
const OBJECT: &[u8] = aya::include_bytes_aligned!("../../../bpf/redirect.bpf.o");

/// The interfaces of a channel: the listening end's, the connecting end's.
const INTERFACES: [&str; 2] = ["listener", "connector"];

/// The MTU of the interfaces in bytes, which is the length of the largest message: about as large
/// as XDP in a driver of virtual interfaces permits, whose frames have a page.
const MTU: usize = 3500;

/// Number of frames that a queue holds, unless a capacity is requested.
const DEFAULT_DEPTH: usize = 256;
const FEWEST: usize = 64;
const MOST: usize = 4096;

/// The loaded programs, which the kernel removes when this is dropped.
type Programs = Arc<Mutex<[Ebpf; 2]>>;

/// Number of frames that each queue holds.
fn depth(spec: &Spec) -> u32 {
    let wanted = spec.capacity_bytes.map_or(DEFAULT_DEPTH, |bytes| bytes / xdp::CHUNK_LEN);
    wanted.clamp(FEWEST, MOST).next_power_of_two() as u32
}

/// Creates the two interfaces in this thread's network namespace.
fn create_interfaces() -> Result<(), OsError> {
    let [ours, theirs] = INTERFACES;
    let one = format!("mtu {MTU} numtxqueues 1 numrxqueues 1");
    let mut commands = format!("link add {ours} {one} type veth peer name {theirs} {one}\n");
    for name in INTERFACES {
        // Without addresses of IPv6, which make frames of their own.
        commands += &format!("link set {name} addrgenmode none\nlink set {name} up\n");
    }
    let failed = |error: std::io::Error| OsError::new("ip link add", "type veth", error);
    let mut command = Command::new("ip");
    command
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let mut child = command.spawn().map_err(failed)?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(commands.as_bytes()).map_err(failed)?;
    }
    let output = child.wait_with_output().map_err(failed)?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.lines().next().unwrap_or("it failed without a word").to_owned();
    Err(failed(std::io::Error::other(said)))
}

/// Makes the kernel hand the frames that arrive at an interface to a socket.
fn redirect(interface: u32, socket: &OwnedFd) -> Result<Ebpf, OsError> {
    let mut programs = Ebpf::load(OBJECT).map_err(refused)?;
    let map = programs.map_mut("SOCKETS").ok_or_else(not_ours)?;
    let mut sockets = XskMap::try_from(map).map_err(refused)?;
    sockets.set(0, socket.as_raw_fd(), 0).map_err(refused)?;
    let program = programs.program_mut("crossway_redirect").ok_or_else(not_ours)?;
    let program: &mut Xdp = program.try_into().map_err(refused)?;
    program.load().map_err(refused)?;
    program.attach_to_if_index(interface, XdpMode::Driver).map_err(refused)?;
    Ok(programs)
}

fn not_ours() -> OsError {
    OsError::new("bpf", "object without its program", Errno::NOENT)
}

/// The kernel's answer, if it is among the causes of the error.
fn refused(error: impl Into<EbpfError>) -> OsError {
    let error = error.into();
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&error);
    while let Some(at) = cause {
        let code = at.downcast_ref::<std::io::Error>().and_then(std::io::Error::raw_os_error);
        if let Some(code) = code {
            return OsError::new("bpf", "XDP program", std::io::Error::from_raw_os_error(code));
        }
        cause = at.source();
    }
    OsError::new("bpf", "XDP program", std::io::Error::other(error.to_string()))
}

/// A socket and its memory.
struct Station {
    socket: OwnedFd,
    memory: Pages,
}

/// Creates the interfaces, a socket on each and the program that feeds it.
fn stations(depth: u32) -> Result<([Station; 2], [Ebpf; 2]), OsError> {
    netns::in_new(|| {
        create_interfaces()?;
        let [first, second] = INTERFACES.map(|name| {
            let interface = netns::interface_index(name)?;
            let memory = Pages::new("crossway-af-xdp", xdp::memory_len(depth))?;
            let socket = xdp::open(interface, &memory, depth)?;
            let programs = redirect(interface, &socket)?;
            Ok::<_, OsError>((Station { socket, memory }, programs))
        });
        let ((ours, to_us), (theirs, to_them)) = (first?, second?);
        Ok(([ours, theirs], [to_us, to_them]))
    })?
}

fn halves(
    spec: &Spec,
    depth: u32,
    socket: OwnedFd,
    memory: OwnedFd,
    lifeline: Lifeline,
    programs: Option<Programs>,
) -> Result<(AfXdpTx, AfXdpRx), OpenError> {
    let (socket, lifeline) = (Arc::new(socket), Arc::new(lifeline));
    let receiver = xdp::Receiver::new(&socket, memory.as_fd(), depth)?;
    let sender = xdp::Sender::new(&socket, memory, depth)?;
    let source =
        XdpSource::new(receiver, Arc::clone(&socket), Arc::clone(&lifeline), programs.clone())?;
    let sink = XdpSink::new(sender, socket, lifeline, programs);
    Ok((MessageTx::new(sink, spec.wait, MTU), MessageRx::new(source, spec.wait)))
}

impl Mechanism for AfXdp {
    const ID: &'static str = "af-xdp";
    const ABOUT: &'static str = "frames of a pair of virtual interfaces (veth), which XDP hands to \
         AF_XDP sockets below the network stack; a full receiver drops messages silently";
    const CARRIER: Carrier =
        Carrier::new(Family::Network, Transport::Packet).meeting(&[Meeting::Descriptor]);
    type Tx = AfXdpTx;
    type Rx = AfXdpRx;
    type Listener = Complete<AfXdpTx, AfXdpRx>;

    fn caps() -> Caps {
        Caps {
            max_message: Some(MTU),
            reliability: Reliability::Lossy,
            waitable_fd: true,
            privilege: Privilege::Root,
            ..Caps::PLAIN
        }
    }

    fn probe() -> Probe {
        Probe::of_kernel(
            exchange_a_byte::<Self>(),
            "run as root, or with CAP_SYS_ADMIN, CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF, on Linux 5.9 \
             or later with CONFIG_XDP_SOCKETS and CONFIG_VETH (modprobe veth), with iproute2 \
             installed; raise the limit of locked memory (ulimit -l) if the call says ENOBUFS",
        )
    }

    fn listen(spec: &Spec) -> Result<(Self::Listener, Offer), OpenError> {
        check_limit(Self::ID, spec, MTU, "request smaller messages, or use packet")?;
        let depth = depth(spec);
        let ([ours, theirs], programs) = stations(depth)?;
        let (lifeline, peers) = Lifeline::pair()?;
        let memory = |of: &Pages| {
            let copy = of.as_fd().try_clone_to_owned();
            copy.map_err(|e| OpenError::from(OsError::new("dup", "memfd", e)))
        };
        let offer = Offer::new()
            .with_word("depth", depth)
            .with_fd("memory", memory(&theirs.memory)?)
            .with_fd("socket", theirs.socket)
            .with_fd("lifeline", peers);
        let programs = Some(Arc::new(Mutex::new(programs)));
        let own = memory(&ours.memory)?;
        let ends = halves(spec, depth, ours.socket, own, lifeline, programs)?;
        Ok((Complete::new(Self::ID, ends), offer))
    }

    fn connect(spec: &Spec, offer: &mut Offer) -> Result<(Self::Tx, Self::Rx), OpenError> {
        check_limit(Self::ID, spec, MTU, "request smaller messages, or use packet")?;
        let offered: u32 = offer.word(Self::ID, "depth")?;
        let depth = depth(spec);
        if offered != depth {
            let why = format!(
                "the listening end's queues hold {offered} frames, but this end's {depth}; both ends \
                 must be opened with the same settings"
            );
            return Err(OpenError::BadOffer { mechanism: Self::ID, why });
        }
        let mut take = |name| offer.take_fd(Self::ID, name);
        let (socket, memory) = (take("socket")?, take("memory")?);
        let lifeline = Lifeline::from_fd(take("lifeline")?);
        halves(spec, depth, socket, memory, lifeline, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Listener, RecvError, Rx, SendError, Tx};

    #[test]
    fn what_is_lost_is_counted() {
        if let Probe::Missing(missing) = AfXdp::probe() {
            return eprintln!("SKIP af-xdp: {missing}");
        }
        let spec = Spec { max_message: 1000, ..Spec::default() };
        let (mut listener, mut offer) = AfXdp::listen(&spec).unwrap();
        let (mut tx, _rx) = AfXdp::connect(&spec, &mut offer).unwrap();
        let (_tx, mut rx) = listener.accept(None).unwrap();
        let sent = 4 * DEFAULT_DEPTH as i64;
        for _ in 0..sent {
            tx.send(&[1; 1000], None).unwrap();
        }
        let mut received = 0;
        let until = || Some(std::time::Instant::now() + std::time::Duration::from_millis(100));
        while rx.recv(&mut [0; 1000], until()).is_ok() {
            received += 1;
        }
        let dropped = rx.facts()["dropped_messages"];
        assert_eq!(received + dropped, sent, "{dropped} were dropped");
        assert!(received >= DEFAULT_DEPTH as i64 && dropped > 0);
        let over = tx.send(&[0; MTU + 1], None);
        assert!(matches!(over, Err(SendError::TooLarge { max: MTU, .. })), "{over:?}");
        assert!(matches!(rx.try_recv(&mut [0; 8]), Err(RecvError::Empty)));
    }

    #[test]
    fn ends_with_different_settings_do_not_meet() {
        if let Probe::Missing(missing) = AfXdp::probe() {
            return eprintln!("SKIP af-xdp: {missing}");
        }
        let spec = Spec { max_message: 1000, ..Spec::default() };
        let (_listener, mut offer) = AfXdp::listen(&spec).unwrap();
        let other = Spec { capacity_bytes: Some(4 << 20), ..spec };
        assert!(matches!(AfXdp::connect(&other, &mut offer), Err(OpenError::BadOffer { .. })));
        let large = Spec { max_message: MTU + 1, ..Spec::default() };
        assert!(matches!(AfXdp::listen(&large), Err(OpenError::Unsupported { .. })));
    }

    #[test]
    fn the_object_is_compiled_from_its_source() {
        let version = Command::new("clang-14").arg("--version").output();
        let strip = Command::new("llvm-strip-14").arg("--version").output();
        if !version.is_ok_and(|v| v.status.success()) || !strip.is_ok_and(|v| v.status.success()) {
            return eprintln!("SKIP XDP: no clang 14; sudo apt-get install clang-14 llvm-14");
        }
        let made = tempfile::NamedTempFile::new().unwrap();
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/bpf.sh");
        let source = "crates/mech/bpf/redirect.bpf.c";
        let status = Command::new(script).arg(source).arg(made.path()).status().unwrap();
        assert!(status.success());
        let same = std::fs::read(made.path()).unwrap() == OBJECT;
        assert!(same, "redirect.bpf.o is not of redirect.bpf.c: run scripts/bpf.sh");
    }
}
