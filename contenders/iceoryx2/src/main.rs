//! Contender for iceoryx2: publish-subscribe over shared memory, with one service for each direction. The sender writes
//! into a loaned sample, and the receiver reads in place. An end that sleeps waits for an event of the library, which
//! the sender triggers with each message. An end that spins polls.
//!
//! The library does not end a channel when a peer dies, so a UNIX connection between the two processes reports that.

mod crossway_contender;

use std::fmt::Display;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crossway_contender::{Contender, Result, Role, Words, fail, serve};
use iceoryx2::config::Config;
use iceoryx2::port::listener::Listener;
use iceoryx2::port::notifier::Notifier;
use iceoryx2::port::publisher::Publisher;
use iceoryx2::port::subscriber::Subscriber;
use iceoryx2::prelude::*;

/// Capacity between the ends in bytes if the plan does not specify it.
const ROOM_BYTES: u64 = 4 << 20;
/// Minimum and maximum number of messages that a channel holds.
const ROOM_MESSAGES: (u64, u64) = (4, 128);

type Service = ipc::Service;

struct Iceoryx2 {
    publisher: Publisher<Service, [u8], ()>,
    subscriber: Subscriber<Service, [u8], ()>,
    /// Notifies the other end, and waits for its notifications; `None` if the ends spin.
    bell: Option<(Notifier<Service>, Listener<Service>)>,
    door: Option<UnixListener>,
    /// The connection that the other end watches.
    peer: Option<UnixStream>,
    /// Whether the other end has closed its channel, as opposed to having died.
    closed: Arc<AtomicBool>,
    _node: Node<Service>,
}

fn why<E: Display>(what: &'static str) -> impl Fn(E) -> String {
    move |e| format!("iceoryx2: {what}: {e}")
}

/// Opens the services. Both ends do this with the same settings, in any order.
fn open(role: &Role, prefix: &str, listens: bool) -> Result<Iceoryx2> {
    let mut config = Config::default();
    // The library puts sockets into this folder, whose paths must be short.
    let root = format!("/dev/shm/{prefix}");
    config.global.set_root_path(&Path::new(root.as_bytes()).map_err(why("the root directory"))?);
    config.global.prefix = FileName::new(prefix.as_bytes()).map_err(why("the prefix"))?;
    let node = NodeBuilder::new()
        .config(&config)
        .signal_handling_mode(SignalHandlingMode::Disabled)
        .create::<Service>()
        .map_err(why("creating a node"))?;
    let size = role.size_bytes.max(1);
    let room = role.capacity_bytes.unwrap_or(ROOM_BYTES) / size as u64;
    let room = room.clamp(ROOM_MESSAGES.0, ROOM_MESSAGES.1) as usize;
    let names = if listens { ["there", "back"] } else { ["back", "there"] };
    let service = |name: &str| {
        let name = name.try_into().map_err(why("a name"))?;
        node.service_builder(&name)
            .publish_subscribe::<[u8]>()
            .enable_safe_overflow(false)
            .subscriber_max_buffer_size(room)
            .max_publishers(1)
            .max_subscribers(1)
            .open_or_create()
            .map_err(why("opening a service"))
    };
    let publisher = service(names[0])?
        .publisher_builder()
        .initial_max_slice_len(size)
        .backpressure_strategy(BackpressureStrategy::RetryUntilDelivered)
        .create()
        .map_err(why("creating a publisher"))?;
    let subscriber =
        service(names[1])?.subscriber_builder().create().map_err(why("creating a subscriber"))?;
    let event = |name: &str| {
        let name = format!("bell-{name}");
        let name = name.as_str().try_into().map_err(why("a name"))?;
        node.service_builder(&name).event().open_or_create().map_err(why("opening an event"))
    };
    let bell = if role.spins {
        None
    } else {
        let notifier = event(names[0])?.notifier_builder().create().map_err(why("a notifier"))?;
        let listener = event(names[1])?.listener_builder().create().map_err(why("a listener"))?;
        Some((notifier, listener))
    };
    Ok(Iceoryx2 { publisher, subscriber, bell, door: None, peer: None, closed: Arc::default(), _node: node })
}

/// The byte that an end sends before it closes its channel. An end whose connection ends without this byte has died.
const GOODBYE: u8 = b'.';

impl Iceoryx2 {
    /// Starts a thread that ends this process if `peer`, the connection to the other end, ends before [`GOODBYE`]
    /// arrives.
    fn watch(&mut self, peer: UnixStream) -> Result<()> {
        let mut other = peer.try_clone().map_err(|e| format!("dup: {e}"))?;
        self.peer = Some(peer);
        let closed = self.closed.clone();
        std::thread::spawn(move || {
            let mut byte = [0];
            if !matches!(other.read(&mut byte), Ok(1) if byte == [GOODBYE]) {
                fail("the other end has ended");
            }
            closed.store(true, Ordering::Release);
        });
        Ok(())
    }
}

impl Contender for Iceoryx2 {
    fn library() -> String {
        let lock = include_str!("../Cargo.lock");
        let mut lines = lock.lines().skip_while(|line| *line != "name = \"iceoryx2\"");
        let version = lines.nth(1).and_then(|line| line.strip_prefix("version = "));
        format!("iceoryx2 {}", version.unwrap_or_default().trim_matches('"'))
    }

    fn listen(role: &Role, words: &mut Words) -> Result<Iceoryx2> {
        let path = role.dir.join("s");
        let door = UnixListener::bind(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        let mut channel = open(role, &role.shm_prefix, true)?;
        channel.door = Some(door);
        words.insert("dir".to_owned(), role.dir.display().to_string());
        words.insert("prefix".to_owned(), role.shm_prefix.clone());
        Ok(channel)
    }

    fn accept(&mut self) -> Result<()> {
        let door = self.door.take().ok_or("accept without listen")?;
        // The other end connects once all its ports exist.
        let (peer, _) = door.accept().map_err(|e| format!("accept: {e}"))?;
        self.watch(peer)
    }

    fn connect(role: &Role, words: &Words) -> Result<Iceoryx2> {
        let word = |name: &str| words.get(name).cloned().ok_or(format!("the offer has no '{name}'"));
        let dir = PathBuf::from(word("dir")?);
        let mut channel = open(role, &word("prefix")?, false)?;
        let peer = UnixStream::connect(dir.join("s")).map_err(|e| format!("connect: {e}"))?;
        channel.watch(peer)?;
        Ok(channel)
    }

    #[inline]
    fn send(&mut self, message: &[u8]) -> Result<()> {
        loop {
            let sample =
                self.publisher.loan_slice_uninit(message.len()).map_err(why("loan"))?;
            match sample.write_from_slice(message).send().map_err(why("send"))? {
                1 => break,
                // The other end attaches to the queue at its first receive; until then, a full queue takes nothing and
                // the library does not wait.
                0 if !self.closed.load(Ordering::Acquire) => std::thread::yield_now(),
                reached => {
                    return Err(format!("iceoryx2: a message reached {reached} subscribers instead of 1"));
                }
            }
        }
        if let Some((notifier, _)) = &self.bell {
            notifier.notify().map_err(why("notify"))?;
        }
        Ok(())
    }

    #[inline]
    fn receive(&mut self, _len: usize, take: impl FnOnce(&[u8])) -> Result<()> {
        loop {
            if let Some(sample) = self.subscriber.receive().map_err(why("receive"))? {
                take(sample.payload());
                return Ok(());
            }
            match &self.bell {
                Some((_, listener)) => drop(listener.blocking_wait(|_| {}).map_err(why("wait"))?),
                None => std::hint::spin_loop(),
            }
        }
    }

    fn close(mut self) -> Result<()> {
        if let Some(peer) = &mut self.peer {
            // The other end may already have closed.
            let _ = peer.write_all(&[GOODBYE]);
        }
        Ok(())
    }
}

fn main() {
    serve::<Iceoryx2>()
}
