//! Binder: the kernel copies each message once, from the sender's memory into a memory that the
//! receiver maps.
//!
//! Each end has a port (an open device) for each direction. A small process, the device's context
//! manager, makes them known to each other and ends; then each holds a handle of its partner, by
//! which the driver also tells of its death. In a binderfs the device is made for the channel, and
//! removed when the ends know each other. The devices of a kernel without binderfs are used in
//! turn.
//!
//! Messages are one-way transactions, which cost one call at each end. The driver does not make
//! their sender wait: it refuses what the receiver's memory cannot hold. So the sender counts what
//! is on its way, and the receiver reports, by a transaction the other way, what it has given back,
//! once for each third of the window.

mod halves;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crossway_sys::binder::{self, Event, LARGEST_MEMORY, MANAGER, Port, Role};
use crossway_sys::lease::{self, Lease, Resource};
use crossway_sys::poll::{Interest, wait_ready};
use crossway_sys::{Errno, OsError};

use crate::building_blocks::complete::no_second_channel;
use crate::building_blocks::message_socket::check_limit;
use crate::{
    Caps, Carrier, Deadline, Family, Listener, Mechanism, Offer, OpenError, Privilege, Probe, Spec,
    Transport,
};

pub use halves::{BinderRx, BinderTx};

/// The mechanism `binder`: one-way transactions of `/dev/binderfs`.
#[derive(Debug)]
pub struct Binder;

/// The codes of a channel's transactions: a random number, with one of these kinds in the last two
/// bits.
#[derive(Clone, Copy, Debug)]
struct Codes {
    /// From the context manager: the partner. This is the channel's number.
    partner: u32,
    message: u32,
    /// What a receiver has given back.
    room: u32,
}

impl Codes {
    fn of(channel: u32) -> Codes {
        Codes { partner: channel, message: channel | 1, room: channel | 2 }
    }
}

/// The largest message in bytes. A third of the window, so that the next message is sent while one
/// is being read.
const LARGEST: usize = 512 << 10;
/// Memory in bytes of a sender, for reports of room.
const SMALL: usize = 64 << 10;
/// How often an end that waits for its partner looks whether the context manager is still there.
const STEP: Duration = Duration::from_millis(500);
/// How long the driver may take to release the devices of channels that have ended.
const RELEASE: Duration = Duration::from_secs(1);
/// The listening side.
#[derive(Debug)]
pub struct BinderListener {
    /// The ports that receive and send, with their partners' handles, until accept makes halves of
    /// them.
    ports: Option<[(Port, Option<u32>); 2]>,
    codes: Codes,
    spec: Spec,
    /// Keeps the name of a device in a binderfs until the other end has opened it.
    name: Option<Lease>,
}

impl Listener for BinderListener {
    type Tx = BinderTx;
    type Rx = BinderRx;

    fn accept(&mut self, until: Deadline) -> Result<(BinderTx, BinderRx), OpenError> {
        let start = Instant::now();
        let ports = self.ports.as_mut().ok_or_else(|| no_second_channel(Binder::ID))?;
        for (port, partner) in ports {
            if partner.is_none() {
                *partner = await_partner(port, self.codes, until)?;
            }
            if partner.is_none() {
                return Err(OpenError::TimedOut { mechanism: Binder::ID, waited: start.elapsed() });
            }
        }
        self.name = None;
        let ports = self.ports.take().ok_or_else(|| no_second_channel(Binder::ID))?;
        let [(receives, sender), (sends, receiver)] =
            ports.map(|(port, partner)| (port, partner.unwrap_or(MANAGER)));
        Ok((
            BinderTx::new(sends, receiver, self.codes, &self.spec),
            BinderRx::new(receives, sender, self.codes, &self.spec),
        ))
    }
}

/// Waits until the context manager has told the partner of a port, and returns its handle; `None`
/// if the time is over.
fn await_partner(port: &mut Port, codes: Codes, until: Deadline) -> Result<Option<u32>, OpenError> {
    let failed = |errno| OsError::new("ioctl", "binder", errno);
    loop {
        match port.receive(true) {
            Ok(Event::Message(code)) if code == codes.partner => {
                let partner = port.introduced().map_err(failed)?;
                port.release().map_err(failed)?;
                return Ok(partner);
            }
            Ok(_) => {}
            Err(Errno::AGAIN) => {
                let step = Some(Instant::now() + STEP);
                let until = if until.is_none() { step } else { until.min(step) };
                if wait_ready(&*port, Interest::Readable, until).map_err(failed)? {
                    continue;
                }
                if until != step {
                    return Ok(None);
                }
                // Fails if somebody has killed it.
                port.send(MANAGER, 0, b"").map_err(failed)?;
            }
            Err(errno) => return Err(failed(errno).into()),
        }
    }
}

/// Gets a device and starts its context manager. Returns its path, and the lease on it if it is in
/// a binderfs.
fn managed(channel: u32) -> Result<(PathBuf, Option<Lease>), OpenError> {
    if let Some(mount) = binder::file_system() {
        let name = lease::fresh_name("binder");
        let path = mount.join(&name);
        let held = lease::hold(Resource::Path { path: path.clone() })?;
        if let Err(error) = binder::add_device(&mount, &name) {
            held.cancel();
            return Err(error.into());
        }
        binder::start_manager(&path, channel)?;
        return Ok((path, Some(held)));
    }
    let until = Instant::now() + RELEASE;
    loop {
        let devices = binder::fixed_devices();
        for path in &devices {
            match binder::start_manager(path, channel) {
                Ok(()) => return Ok((path.clone(), None)),
                Err(error) if error.errno() == Errno::BUSY.raw_os_error() => {}
                Err(error) => return Err(error.into()),
            }
        }
        if devices.is_empty() || Instant::now() > until {
            let name = binder::FIXED_DEVICE;
            let why = match devices.len() {
                0 => format!("no binderfs is mounted, and there is no device /dev/{name}0"),
                count => format!("all {count} devices /dev/{name}* are in use"),
            };
            return Err(OpenError::Unsupported { mechanism: Binder::ID, why });
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Opens a port of the device and introduces it to the context manager.
fn introduced(device: &Path, bytes: usize, role: Role, channel: u32) -> Result<Port, OpenError> {
    let mut port = Port::open(device, bytes)?;
    port.introduce(role.code(channel))
        .map_err(|errno| OsError::new("ioctl", device.display(), errno))?;
    Ok(port)
}

const REMEDY: &str = "boot a guest that has it: crossway guest up k --kernel 6.12; or, on a kernel with CONFIG_ANDROID_BINDER_IPC, as root: \
                      modprobe binder_linux devices=crossway-binder0,crossway-binder1, or, if it has binderfs, mkdir /dev/binderfs; mount \
                      -t binder binder /dev/binderfs";

impl Mechanism for Binder {
    const ID: &'static str = "binder";
    const ABOUT: &'static str =
        "Android's Binder: one-way transactions, copied once, into the receiver's memory";
    const CARRIER: Carrier = Carrier::new(Family::Other, Transport::Binder).copied_once();
    type Tx = BinderTx;
    type Rx = BinderRx;
    type Listener = BinderListener;

    fn caps() -> Caps {
        Caps {
            max_message: Some(LARGEST),
            waitable_fd: true,
            privilege: Privilege::Module,
            ..Caps::PLAIN
        }
    }

    fn probe() -> Probe {
        Probe::of_kernel(crate::self_test::exchange_a_byte::<Self>(), REMEDY)
    }

    fn listen(spec: &Spec) -> Result<(Self::Listener, Offer), OpenError> {
        check_limit(Self::ID, spec, LARGEST, "this is Crossway's limit; request smaller messages")?;
        let channel = lease::random_number() as u32 & !3;
        let (device, name) = managed(channel)?;
        let receives = introduced(&device, LARGEST_MEMORY, Role::ListenerReceives, channel)?;
        let sends = introduced(&device, SMALL, Role::ListenerSends, channel)?;
        let offer =
            Offer::new().with_word("device", device.display()).with_word("channel", channel);
        let ports = Some([(receives, None), (sends, None)]);
        let codes = Codes::of(channel);
        Ok((BinderListener { ports, codes, spec: spec.clone(), name }, offer))
    }

    fn connect(spec: &Spec, offer: &mut Offer) -> Result<(Self::Tx, Self::Rx), OpenError> {
        let device: PathBuf = offer.word(Self::ID, "device")?;
        let channel = offer.word(Self::ID, "channel")?;
        let codes = Codes::of(channel);
        let until = Some(Instant::now() + spec.open_timeout);
        let port = |bytes, role| {
            let mut port = introduced(&device, bytes, role, channel)?;
            let partner = await_partner(&mut port, codes, until)?;
            let waited = spec.open_timeout;
            let late = OpenError::TimedOut { mechanism: Self::ID, waited };
            Ok::<_, OpenError>((port, partner.ok_or(late)?))
        };
        let (sends, receiver) = port(SMALL, Role::ConnectorSends)?;
        let (receives, sender) = port(LARGEST_MEMORY, Role::ConnectorReceives)?;
        let tx = BinderTx::new(sends, receiver, codes, spec);
        Ok((tx, BinderRx::new(receives, sender, codes, spec)))
    }
}
