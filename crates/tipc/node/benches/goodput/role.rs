//! One end of a trial, which is a separate process on its host.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use crossway_sys::procfs::HostCpu;
use crossway_sys::socket::{self, SocketType};
use crossway_tipc_client::{
    Address, Backend, Errno, Event, Patience, Scope, ServiceRange, Socket, SocketAddress,
    SocketKind,
};
use serde::{Deserialize, Serialize};

/// The service bound by the serving end of every trial; each trial has its own instance.
const SERVICE: u32 = 18_500;

/// Time limit for waiting for the other end; longer than its name needs to reach this node.
const WATCHDOG: Duration = Duration::from_secs(20);

/// The transport of the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Carrier {
    TipcStream,
    TipcSeqpacket,
    /// A stream through a tipcd that does not permit direct lanes. [`Carrier::TipcSeqpacketLanes`] is the same for
    /// messages.
    TipcStreamLanes,
    TipcSeqpacketLanes,
    TipcRdm,
    Tcp,
    TcpNodelay,
    Udp,
    /// A UNIX socket that preserves message boundaries.
    Uds,
}

impl Carrier {
    const fn tipc(self) -> Option<SocketKind> {
        match self {
            Self::TipcStream | Self::TipcStreamLanes => Some(SocketKind::Stream),
            Self::TipcSeqpacket | Self::TipcSeqpacketLanes => Some(SocketKind::Seqpacket),
            Self::TipcRdm => Some(SocketKind::Rdm),
            Self::Tcp | Self::TcpNodelay | Self::Udp | Self::Uds => None,
        }
    }

    /// Whether the carrier's messages pass through the tipcd even if both ends use the same tipcd.
    pub(crate) const fn avoids_direct_lanes(self) -> bool {
        matches!(self, Self::TipcStreamLanes | Self::TipcSeqpacketLanes)
    }
}

/// What a trial measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Work {
    /// One end sends as fast as possible, the other one counts.
    Flow,
    /// A message is sent back and forth.
    Ping,
}

/// The command line of one end.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Role {
    #[arg(long, value_enum)]
    pub(crate) carrier: Carrier,
    #[arg(long, value_enum)]
    pub(crate) work: Work,
    /// Run the serving end, not the one that connects
    #[arg(long)]
    pub(crate) serve: bool,
    #[arg(long)]
    pub(crate) size: usize,
    #[arg(long)]
    pub(crate) warmup_ms: u64,
    #[arg(long)]
    pub(crate) measure_ms: u64,
    /// Address of the serving end
    #[arg(long)]
    pub(crate) to: SocketAddr,
    /// Socket of this host's tipcd [default: the kernel's TIPC]
    #[arg(long)]
    pub(crate) tipcd: Option<PathBuf>,
    /// Number of the trial
    #[arg(long)]
    pub(crate) instance: u32,
    /// Microseconds for which receivers spin before they sleep
    #[arg(long, default_value_t = 0)]
    pub(crate) spin_us: u64,
}

/// The result of the end that measures.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Found {
    pub(crate) messages: f64,
    pub(crate) seconds: f64,
    /// CPU time of the whole machine in nanoseconds, or of the guest if the guest measures.
    pub(crate) cpu_ns: u64,
    /// Median round trip in nanoseconds. Like `p99_ns`, 0 for a flow.
    pub(crate) p50_ns: f64,
    pub(crate) p99_ns: f64,
}

enum Channel {
    Tipc { socket: Socket, to: Option<Address> },
    Tcp(TcpStream),
    Udp(UdpSocket),
    Uds(OwnedFd),
}

impl Channel {
    fn send(&mut self, payload: &[u8]) -> anyhow::Result<()> {
        match self {
            Self::Tipc { socket, to } => {
                let mut sent = 0;
                while sent < payload.len() {
                    sent += socket.send(&payload[sent..], *to, Patience::Forever)?;
                }
            }
            Self::Tcp(stream) => stream.write_all(payload)?,
            Self::Udp(socket) => {
                socket.send(payload)?;
            }
            Self::Uds(socket) => {
                socket::send(socket, payload, false)?;
            }
        }
        Ok(())
    }

    /// Receives a message, or available stream data. Returns its length and, for TIPC, the sender.
    fn recv(&mut self, buf: &mut [u8]) -> anyhow::Result<(usize, Option<SocketAddress>)> {
        match self {
            Self::Tipc { socket, .. } => loop {
                let message = socket.recv_message(buf, Patience::Forever)?;
                match message.event {
                    Event::Data => return Ok((message.len, Some(message.from))),
                    Event::End(_) => bail!("the other end has closed the connection"),
                    // The receiver's queue was full; the message counts as lost.
                    _ => {}
                }
            },
            Self::Tcp(stream) => match stream.read(buf)? {
                0 => bail!("the other end has closed the connection"),
                len => Ok((len, None)),
            },
            Self::Udp(socket) => Ok((socket.recv(buf)?, None)),
            Self::Uds(socket) => match socket::recv(socket, buf, false)? {
                0 => bail!("the other end has closed the connection"),
                len => Ok((len, None)),
            },
        }
    }
}

fn retry<T>(what: &str, mut attempt: impl FnMut() -> anyhow::Result<T>) -> anyhow::Result<T> {
    let begin = Instant::now();
    loop {
        match attempt() {
            Err(error) if begin.elapsed() > WATCHDOG => return Err(error).context(what.to_owned()),
            Err(_) => std::thread::sleep(Duration::from_millis(2)),
            done => return done,
        }
    }
}

impl Role {
    fn open(&self) -> anyhow::Result<Channel> {
        let nodelay = self.carrier == Carrier::TcpNodelay;
        let ready = || println!("ready");
        let Some(kind) = self.carrier.tipc() else {
            return Ok(match (self.carrier, self.serve) {
                (Carrier::Udp, true) => {
                    let socket = UdpSocket::bind(self.to)?;
                    ready();
                    Channel::Udp(socket)
                }
                (Carrier::Udp, false) => {
                    let any = SocketAddr::new([0, 0, 0, 0].into(), 0);
                    let socket = UdpSocket::bind(any)?;
                    socket.connect(self.to)?;
                    Channel::Udp(socket)
                }
                (Carrier::Uds, serve) => {
                    let name = format!("crossway-goodput-{}-{}", self.to.port(), self.instance);
                    let address = socket::abstract_address(name.as_bytes())?;
                    let socket = socket::unix(SocketType::Seqpacket)?;
                    if serve {
                        socket::bind(&socket, &address, &name)?;
                        socket::listen(&socket, 1)?;
                        ready();
                        Channel::Uds(socket::accept(&socket)?)
                    } else {
                        retry("connect", || Ok(socket::connect(&socket, &address)?))?;
                        Channel::Uds(socket)
                    }
                }
                (_, serve) => {
                    let stream = if serve {
                        let listener = TcpListener::bind(self.to)?;
                        ready();
                        listener.accept()?.0
                    } else {
                        retry("connect", || Ok(TcpStream::connect(self.to)?))?
                    };
                    stream.set_nodelay(nodelay)?;
                    Channel::Tcp(stream)
                }
            });
        };
        let backend = self.tipcd.clone().map_or(Backend::Kernel, Backend::Node);
        let socket = Socket::open_on(&backend, kind)?;
        let service = Address::service(SERVICE, self.instance);
        let connected = kind != SocketKind::Rdm;
        if self.serve {
            if connected {
                socket.listen()?;
            }
            socket.bind(ServiceRange::single(SERVICE, self.instance), Scope::Cluster)?;
            ready();
            let socket = if connected { socket.accept(Patience::Forever)?.0 } else { socket };
            socket.set_spin(Duration::from_micros(self.spin_us));
            return Ok(Channel::Tipc { socket, to: None });
        }
        let to = (!connected).then_some(service);
        retry("the binding of the serving end did not reach this node", || {
            if connected {
                Ok(socket.connect(Some(service), Patience::Until(Instant::now() + WATCHDOG))?)
            } else {
                match socket.send(&vec![0; self.size], to, Patience::Forever) {
                    Err(Errno::HOSTUNREACH) => bail!("not yet reachable"),
                    done => Ok(done.map(drop)?),
                }
            }
        })?;
        socket.set_spin(Duration::from_micros(self.spin_us));
        Ok(Channel::Tipc { socket, to })
    }

    /// Runs this end. Prints the result if this is the end that measures.
    pub(crate) fn play(&self) -> anyhow::Result<()> {
        let mut channel = self.open()?;
        match (self.work, self.serve) {
            (Work::Flow, true) => self.count(&mut channel),
            (Work::Flow, false) => {
                let payload = vec![7; self.size];
                loop {
                    match channel.send(&payload) {
                        Ok(()) => {}
                        // Until the other end has measured long enough.
                        Err(error) if is_end(&error) => return Ok(()),
                        Err(error) => return Err(error),
                    }
                }
            }
            (Work::Ping, true) => self.echo(&mut channel),
            (Work::Ping, false) => self.ping(&mut channel),
        }
    }

    fn count(&self, channel: &mut Channel) -> anyhow::Result<()> {
        let mut buf = vec![0; self.size.max(256 << 10)];
        let mut take = |bytes: &mut u64| -> anyhow::Result<()> {
            *bytes += channel.recv(&mut buf)?.0 as u64;
            Ok(())
        };
        let mut bytes = 0;
        take(&mut bytes)?;
        let warm = Instant::now() + Duration::from_millis(self.warmup_ms);
        while Instant::now() < warm {
            take(&mut bytes)?;
        }
        bytes = 0;
        let (begin, cpu) = (Instant::now(), HostCpu::now()?);
        let end = begin + Duration::from_millis(self.measure_ms);
        while Instant::now() < end {
            take(&mut bytes)?;
        }
        let seconds = begin.elapsed().as_secs_f64();
        let cpu_ns = busy_ns(begin, &cpu)?;
        let messages = bytes as f64 / self.size as f64;
        self.tell(Found { messages, seconds, cpu_ns, p50_ns: 0.0, p99_ns: 0.0 })
    }

    fn echo(&self, channel: &mut Channel) -> anyhow::Result<()> {
        let mut buf = vec![0; self.size];
        loop {
            let Ok(from) = self.whole(channel, &mut buf) else { return Ok(()) };
            if let Channel::Tipc { to, .. } = channel
                && self.carrier == Carrier::TipcRdm
            {
                *to = from.map(Address::Socket);
            }
            channel.send(&buf)?;
        }
    }

    /// Receives a message of full size, even from a stream. Returns the sender, for TIPC.
    fn whole(
        &self,
        channel: &mut Channel,
        buf: &mut [u8],
    ) -> anyhow::Result<Option<SocketAddress>> {
        let (mut len, mut from) = channel.recv(buf)?;
        while len < self.size {
            let (more, sender) = channel.recv(&mut buf[len..])?;
            (len, from) = (len + more, sender);
        }
        Ok(from)
    }

    fn ping(&self, channel: &mut Channel) -> anyhow::Result<()> {
        let mut buf = vec![0; self.size];
        if self.carrier == Carrier::TipcRdm {
            // The answer to the message that tested the path.
            self.whole(channel, &mut buf)?;
        }
        let mut trips = Vec::new();
        let warm = Instant::now() + Duration::from_millis(self.warmup_ms);
        let (mut begin, mut cpu) = (None, HostCpu::now()?);
        loop {
            let sent = Instant::now();
            channel.send(&buf)?;
            self.whole(channel, &mut buf)?;
            let back = Instant::now();
            match begin {
                None if back >= warm => {
                    begin = Some(back);
                    cpu = HostCpu::now()?;
                }
                None => {}
                Some(_) => trips.push((back - sent).as_nanos() as f64),
            }
            if let Some(begin) = begin
                && back - begin >= Duration::from_millis(self.measure_ms)
                && !trips.is_empty()
            {
                let cpu_ns = busy_ns(begin, &cpu)?;
                trips.sort_by(f64::total_cmp);
                let at = |share: f64| trips[((trips.len() - 1) as f64 * share).round() as usize];
                return self.tell(Found {
                    messages: trips.len() as f64,
                    seconds: (back - begin).as_secs_f64(),
                    cpu_ns,
                    p50_ns: at(0.5),
                    p99_ns: at(0.99),
                });
            }
        }
    }

    fn tell(&self, found: Found) -> anyhow::Result<()> {
        println!("{}", serde_json::to_string(&found)?);
        Ok(())
    }
}

/// The CPU time in nanoseconds that the whole machine has used since `then`, a reading made at `begin`.
fn busy_ns(begin: Instant, then: &HostCpu) -> anyhow::Result<u64> {
    let passed = HostCpu::now()?.since(then);
    let all = begin.elapsed().as_nanos() as u64 * passed.per_cpu.len() as u64;
    Ok(passed.total.busy_within(all))
}

fn is_end(error: &anyhow::Error) -> bool {
    if let Some(errno) = error.downcast_ref::<Errno>() {
        return matches!(*errno, Errno::PIPE | Errno::CONNRESET | Errno::HOSTUNREACH);
    }
    error.downcast_ref::<std::io::Error>().is_some_and(|e| {
        let ends =
            [ErrorKind::BrokenPipe, ErrorKind::ConnectionReset, ErrorKind::ConnectionRefused];
        ends.contains(&e.kind())
    })
}
