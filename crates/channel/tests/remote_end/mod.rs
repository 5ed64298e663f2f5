//! An end of a channel on another simulated host: a child process that runs this test program with a role.

use std::net::SocketAddr;
use std::path::Path;

use crossway_channel::{Channel, Listener, Options};

use super::child::{Killed, start};
use super::{NAME, soon};

const ROLE: &str = "CROSSWAY_CHANNEL_TEST_ROLE";
const DIR: &str = "CROSSWAY_CHANNEL_TEST_DIR";
const ADDRESS: &str = "CROSSWAY_CHANNEL_TEST_ADDRESS";

/// The roles of the child, which say how it opens the channel.
pub(crate) const ROLES: [&str; 2] = ["listen", "connect"];

/// Called in the child; returns `None` in the parent. Opens the child's end of the channel, and returns it together
/// with the listener, if this end has one. The listener must live as long as the channel. `host` makes the options from
/// the child's directory and the name's address.
pub(crate) fn open(
    host: impl FnOnce(&Path, SocketAddr) -> Options,
) -> Option<(Option<Listener>, Channel)> {
    let role = std::env::var(ROLE).ok()?;
    let var = |name| std::env::var(name).expect("the parent sets it");
    let options = host(Path::new(&var(DIR)), var(ADDRESS).parse().unwrap());
    Some(if role == "listen" {
        let listener = options.listen(NAME).unwrap();
        let channel = listener.accept(soon()).unwrap();
        (Some(listener), channel)
    } else {
        (None, options.connect(NAME, soon()).unwrap())
    })
}

/// Called in the parent: starts the child with a role and a directory, and opens the other end with the parent's own
/// options.
pub(crate) fn start_and_meet(
    role: &str,
    dir: &Path,
    address: SocketAddr,
    options: Options,
) -> (Killed, Channel) {
    let dir = dir.to_str().unwrap().to_owned();
    let environment = [(ROLE, role.to_owned()), (DIR, dir), (ADDRESS, address.to_string())];
    if role == "listen" {
        let child = start(&environment, None);
        (child, options.connect(NAME, soon()).unwrap())
    } else {
        let listener = options.listen(NAME).unwrap();
        let child = start(&environment, None);
        (child, listener.accept(soon()).unwrap())
    }
}
