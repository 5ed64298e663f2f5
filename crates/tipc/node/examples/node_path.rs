//! Compares two ways for two programs on one machine to communicate: through a `tipcd`, and by TCP over loopback. The
//! measurements of the two are interleaved in pairs.
//!
//!     cargo run --release -p crossway-tipc-node --example node_path [ROUNDS [MS]]
//!
//! Prints messages per second and round trips with 64 bytes, and their ratios to those of TCP with TCP_NODELAY. Both
//! ends are threads of this process; the tipcd is a separate process.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use crossway_tipc_client::{
    Address, LoneTipcd, NodeSocket, Patience, Scope, ServiceRange, SocketKind,
};
use crossway_tipc_node::{TipcdOptions, run_tipcd};

const SIZE: usize = 64;

/// Both directions of a channel.
trait Channel: Send + 'static {
    fn send(&mut self, message: &[u8; SIZE]);
    /// Receives a message. Returns false at the end of the channel.
    fn recv(&mut self, message: &mut [u8; SIZE]) -> bool;
}

impl Channel for TcpStream {
    fn send(&mut self, message: &[u8; SIZE]) {
        self.write_all(message).expect("sends");
    }

    fn recv(&mut self, message: &mut [u8; SIZE]) -> bool {
        self.read_exact(message).is_ok()
    }
}

impl Channel for NodeSocket {
    fn send(&mut self, message: &[u8; SIZE]) {
        let sent = NodeSocket::send(self, message, None, Patience::Forever);
        assert_eq!(sent, Ok(SIZE));
    }

    fn recv(&mut self, message: &mut [u8; SIZE]) -> bool {
        let mut done = 0;
        while done < SIZE {
            match NodeSocket::recv(self, &mut message[done..], Patience::Forever) {
                Ok(len @ 1..) => done += len,
                _ => return false,
            }
        }
        true
    }
}

fn tcp() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("binds");
    let a = TcpStream::connect(listener.local_addr().expect("bound")).expect("connects");
    let (b, _) = listener.accept().expect("accepts");
    a.set_nodelay(true).expect("TCP_NODELAY");
    b.set_nodelay(true).expect("TCP_NODELAY");
    (a, b)
}

fn node(tipcd: &LoneTipcd, kind: SocketKind) -> (NodeSocket, NodeSocket) {
    let open = || NodeSocket::open(tipcd.path(), kind).expect("opens");
    let (listener, a) = (open(), open());
    listener.listen().expect("listens");
    listener.bind(ServiceRange::single(1000, 1), Scope::Node).expect("binds");
    assert!(a.connect(Some(Address::service(1000, 1)), Patience::Now).is_err());
    let (b, _) = listener.accept(Patience::Forever).expect("accepts");
    // The answer has arrived when a send is possible.
    while a.send(&[0; SIZE], None, Patience::Now).is_err() {
        std::thread::yield_now();
    }
    let mut channel = b;
    assert!(Channel::recv(&mut channel, &mut [0; SIZE]));
    (a, channel)
}

/// Measures the rate in messages per second, counted by the receiver.
fn rate(mut a: impl Channel, mut b: impl Channel, limit: Duration) -> f64 {
    let receiver = std::thread::spawn(move || {
        let (begin, mut count, mut message) = (Instant::now(), 0_u64, [0; SIZE]);
        while b.recv(&mut message) && message[0] == 0 {
            count += 1;
        }
        count as f64 / begin.elapsed().as_secs_f64()
    });
    let begin = Instant::now();
    while begin.elapsed() < limit {
        for _ in 0..64 {
            a.send(&[0; SIZE]);
        }
    }
    a.send(&[1; SIZE]);
    receiver.join().expect("the receiver does not panic")
}

/// Measures the mean round trip in microseconds.
fn round_trip(mut a: impl Channel, mut b: impl Channel, limit: Duration) -> f64 {
    let echo = std::thread::spawn(move || {
        let mut message = [0; SIZE];
        while b.recv(&mut message) && message[0] == 0 {
            b.send(&message);
        }
    });
    let (begin, mut count, mut message) = (Instant::now(), 0_u64, [0; SIZE]);
    while begin.elapsed() < limit {
        for _ in 0..16 {
            a.send(&message);
            assert!(a.recv(&mut message));
        }
        count += 16;
    }
    let elapsed = begin.elapsed();
    a.send(&[1; SIZE]);
    echo.join().expect("the echo does not panic");
    elapsed.as_secs_f64() * 1e6 / count as f64
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [first, options @ ..] = &words[..]
        && first == "tipcd"
    {
        run_tipcd(&TipcdOptions::from_words(options).expect("options")).expect("serves");
        return;
    }
    let number = |n: usize, default| words.get(n).and_then(|w| w.parse().ok()).unwrap_or(default);
    let (rounds, limit) = (number(0, 9), Duration::from_millis(number(1, 200)));
    let mut command = Command::new("/proc/self/exe");
    command.arg("tipcd");
    let path = std::env::temp_dir().join(format!("node-path-{}.sock", std::process::id()));
    let tipcd = LoneTipcd::start(command, &path).expect("a tipcd");
    for kind in [SocketKind::Stream, SocketKind::Seqpacket] {
        let (mut rates, mut trips) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            let (a, b) = tcp();
            let (c, d) = node(&tipcd, kind);
            rates.push((rate(a, b, limit), rate(c, d, limit)));
            let (a, b) = tcp();
            let (c, d) = node(&tipcd, kind);
            trips.push((round_trip(a, b, limit), round_trip(c, d, limit)));
        }
        let of =
            |pairs: &[(f64, f64)], f: fn(&(f64, f64)) -> f64| median(pairs.iter().map(f).collect());
        println!(
            "{kind:?}: {:.0} messages/s, TCP_NODELAY {:.0}, ratio {:.2}; round trip {:.1} us, TCP {:.1}, ratio {:.2}",
            of(&rates, |p| p.1),
            of(&rates, |p| p.0),
            of(&rates, |p| p.1 / p.0),
            of(&trips, |p| p.1),
            of(&trips, |p| p.0),
            of(&trips, |p| p.1 / p.0),
        );
    }
}
