//! A middlebox that forwards TCP connections and cuts all of them on request, wherever in the data that happens to be.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

/// The middlebox. Its threads run until the test program ends.
pub(crate) struct Cutter {
    address: SocketAddr,
    open: Arc<Mutex<Vec<TcpStream>>>,
    cuts: AtomicU32,
}

impl Cutter {
    /// Starts a middlebox in front of an address.
    pub(crate) fn before(behind: SocketAddr) -> Cutter {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let open = Arc::<Mutex<Vec<TcpStream>>>::default();
        let opened = Arc::clone(&open);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                // If nothing listens behind, the client's connection is dropped.
                let Ok(server) = TcpStream::connect(behind) else { continue };
                let ends = [client, server];
                let copies = ends.each_ref().map(|end| end.try_clone().unwrap());
                let [client, server] = ends;
                opened.lock().unwrap().push(client.try_clone().unwrap());
                opened.lock().unwrap().push(server.try_clone().unwrap());
                let [client_too, server_too] = copies;
                std::thread::spawn(move || pass(client, server));
                std::thread::spawn(move || pass(server_too, client_too));
            }
        });
        Cutter { address, open, cuts: AtomicU32::new(0) }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Cuts every open connection; data in transit through the middlebox is lost.
    pub(crate) fn cut(&self) {
        for end in self.open.lock().unwrap().drain(..) {
            let _ = end.shutdown(Shutdown::Both);
            self.cuts.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the number of connections cut so far.
    pub(crate) fn cuts(&self) -> u32 {
        self.cuts.load(Ordering::Relaxed) / 2
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream) {
    // This length divides no frame length, so cuts fall anywhere in a frame.
    let mut bytes = [0; 1777];
    while let Ok(len @ 1..) = from.read(&mut bytes) {
        if to.write_all(&bytes[..len]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}
