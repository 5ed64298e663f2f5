//! Tests of the LINX model as programs see it, over every transport between endpoints of one node.

mod node;
mod queue;
mod requests;
mod signals;

use std::path::Path;
use std::time::{Duration, Instant};

use crossway_linx::signal::USER_BASE;
use crossway_linx::{Endpoint, Filter, Node, NodeThread, Options, Settings, Signal, Transport};

/// A time limit that only serves to catch hangs.
const WATCHDOG: Duration = Duration::from_secs(60);

fn soon() -> Option<Instant> {
    Some(Instant::now() + WATCHDOG)
}

fn now() -> Option<Instant> {
    Some(Instant::now())
}

struct Host {
    dir: std::path::PathBuf,
    _node: NodeThread,
    _temporary: tempfile::TempDir,
}

impl Host {
    fn new(transport: Transport) -> Host {
        let temporary = tempfile::tempdir().unwrap();
        let settings = Settings { transport, ..Settings::default() };
        let dir = temporary.path().join("n");
        let node = Node::spawn(&dir, settings).unwrap();
        Host { dir, _node: node, _temporary: temporary }
    }

    fn dir(&self) -> &Path {
        &self.dir
    }

    fn open(&self, name: &str) -> Endpoint {
        Endpoint::open(self.dir(), name).unwrap()
    }

    fn open_with(&self, name: &str, options: Options) -> Endpoint {
        Endpoint::open_with(self.dir(), name, &options).unwrap()
    }
}

fn signal(n: u32) -> Signal {
    Signal::with_payload(USER_BASE + n, b"payload").unwrap()
}

fn any(endpoint: &mut Endpoint) -> Signal {
    endpoint.receive(&Filter::ANY, soon()).unwrap().expect("a signal comes")
}

fn number(endpoint: &mut Endpoint) -> u32 {
    any(endpoint).number()
}

fn nothing(endpoint: &mut Endpoint) {
    assert_eq!(endpoint.receive(&Filter::ANY, now()).unwrap(), None);
}

fn on_every_transport(test: impl Fn(&Host)) {
    for transport in Transport::ALL {
        println!("by {transport}");
        test(&Host::new(transport));
    }
}
