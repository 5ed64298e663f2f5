//! The places at which other hosts find a name: TCP addresses from the list of hosts, and TIPC's name table.

use std::path::Path;

use crate::directory::Directory;
use crate::error::Error;
use crate::net::Network;
use crate::net::endpoint::{Acceptor, NotThere, Place};

/// Opens the places at which other hosts find a name. A place that another listener of the name on this host occupies
/// is returned without a socket, so that this listener waits for it. An address of another host, or one that any other
/// program occupies, is left out; that is an error only if no address remains.
pub(super) fn open(
    directory: &Directory,
    name: &str,
    own: &Path,
    network: &Network,
) -> Result<Vec<(Place, Option<Acceptor>)>, Error> {
    let addresses = network.hosts.of(name);
    let (mut open, mut taken) = (Vec::new(), None);
    for place in addresses.iter().copied().map(Place::Tcp) {
        match place.open(name) {
            Ok(acceptor) => open.push((place, Some(acceptor))),
            Err(NotThere::Foreign) => {}
            Err(NotThere::Taken(error)) => match directory.connect_other(name, own)? {
                Some(_) => open.push((place, None)),
                None => taken = Some(error),
            },
            Err(NotThere::Failed(error)) => return Err(error.into()),
        }
    }
    if let Some(error) = taken.filter(|_| open.is_empty()) {
        return Err(error.into());
    }
    if open.is_empty() && !addresses.is_empty() {
        let addresses = addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        return Err(Error::NotHere { name: name.to_owned(), addresses });
    }
    if let Some(backend) = &network.tipc {
        let place = Place::Tipc(backend.clone());
        match place.open(name) {
            Ok(acceptor) => open.push((place, Some(acceptor))),
            Err(NotThere::Failed(error) | NotThere::Taken(error)) => return Err(error.into()),
            Err(NotThere::Foreign) => {}
        }
    }
    Ok(open)
}
