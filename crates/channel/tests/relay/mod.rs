//! A bad network for datagrams: it drops, duplicates, delays and changes them, and sends old and forged ones.
//!
//! It sits between a connecting end and a listener with another loopback address. The connecting end reaches the
//! listener through a [`Cutter`](crate::cutter::Cutter), and therefore believes that the listener's host is 127.0.0.1.
//! The listener's ports are found in /proc.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Time between checks for new ports.
const LOOK: Duration = Duration::from_millis(5);
/// Number of old datagrams that are kept for repetition.
const OLD: usize = 64;

/// Counts of what the network did to datagrams.
#[derive(Default)]
pub(crate) struct Deeds {
    pub(crate) dropped: AtomicU64,
    pub(crate) repeated: AtomicU64,
    pub(crate) delayed: AtomicU64,
    pub(crate) forged: AtomicU64,
}

/// Starts a bad network in front of the sockets at an address. Its threads run until the test program ends.
pub(crate) fn before(host: Ipv4Addr) -> Arc<Deeds> {
    let deeds = Arc::new(Deeds::default());
    let known = Arc::clone(&deeds);
    std::thread::spawn(move || {
        let mut ports = Vec::new();
        loop {
            for port in ports_of(host) {
                if !ports.contains(&port) {
                    ports.push(port);
                    relay(SocketAddr::from((host, port)), &known);
                }
            }
            std::thread::sleep(LOOK);
        }
    });
    deeds
}

/// Returns the UDP ports in use at an address.
fn ports_of(host: Ipv4Addr) -> Vec<u16> {
    // /proc/net/udp prints an address as the number that its bytes are in memory.
    let wanted = format!("{:08X}:", u32::from_ne_bytes(host.octets()));
    let table = std::fs::read_to_string("/proc/net/udp").unwrap();
    let locals = table.lines().filter_map(|line| line.split_whitespace().nth(1));
    locals.filter_map(|local| u16::from_str_radix(local.strip_prefix(&wanted)?, 16).ok()).collect()
}

fn relay(behind: SocketAddr, deeds: &Arc<Deeds>) {
    // If another program has this port, no datagram passes, and the ends try again with other ports.
    let Ok(front) = UdpSocket::bind(("127.0.0.1", behind.port())) else { return };
    let back = UdpSocket::bind("127.0.0.1:0").unwrap();
    back.connect(behind).unwrap();
    let (front_too, back_too) = (front.try_clone().unwrap(), back.try_clone().unwrap());
    let deeds_too = Arc::clone(deeds);
    let deeds = Arc::clone(deeds);
    std::thread::spawn(move || {
        let mut network = Network::new(1, &deeds);
        let mut bytes = [0; 2048];
        loop {
            // If the port has been closed meanwhile, an error is reported once.
            let Ok((len, from)) = front.recv_from(&mut bytes) else { continue };
            let _ = front.connect(from);
            network.pass(&bytes[..len], &back);
        }
    });
    std::thread::spawn(move || {
        let mut network = Network::new(2, &deeds_too);
        let mut bytes = [0; 2048];
        loop {
            let Ok(len) = back_too.recv(&mut bytes) else { continue };
            network.pass(&bytes[..len], &front_too);
        }
    });
}

/// One direction of the network.
struct Network<'a> {
    state: u64,
    old: Vec<Vec<u8>>,
    late: Option<Vec<u8>>,
    deeds: &'a Deeds,
}

impl<'a> Network<'a> {
    fn new(seed: u64, deeds: &'a Deeds) -> Network<'a> {
        Network { state: seed, old: Vec::new(), late: None, deeds }
    }

    fn random(&mut self) -> u64 {
        // Numerical Recipes' generator; its high bits are good enough.
        self.state = self
            .state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        self.state >> 33
    }

    fn pass(&mut self, datagram: &[u8], to: &UdpSocket) {
        let chance = self.random() % 100;
        let send = |bytes: &[u8]| drop(to.send(bytes));
        let count = |deed: &AtomicU64| {
            deed.fetch_add(1, Ordering::Relaxed);
        };
        match chance {
            0..10 => count(&self.deeds.dropped),
            10..15 => {
                count(&self.deeds.repeated);
                send(datagram);
                send(datagram);
            }
            // It will be sent after the next datagram.
            15..20 if self.late.is_none() => {
                count(&self.deeds.delayed);
                self.late = Some(datagram.to_vec());
                return;
            }
            20..23 => {
                count(&self.deeds.forged);
                let mut changed = datagram.to_vec();
                let at = self.random() as usize % changed.len();
                changed[at] ^= 1 << (self.random() % 8);
                send(&changed);
                // A copy of a real datagram, but with a number far ahead.
                let mut ahead = datagram.to_vec();
                ahead[..8].copy_from_slice(&(u64::MAX >> 1).to_le_bytes());
                send(&ahead);
                send(&self.random().to_le_bytes()[..self.state as usize % 8]);
                send(datagram);
            }
            _ => send(datagram),
        }
        if let Some(late) = self.late.take() {
            send(&late);
        }
        if chance.is_multiple_of(7)
            && let Some(old) = self.old.get(chance as usize % OLD)
        {
            count(&self.deeds.repeated);
            send(old);
        }
        if self.old.len() < OLD {
            self.old.push(datagram.to_vec());
        }
    }
}
