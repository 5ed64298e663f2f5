//! Settings for channels between hosts: which names are on other hosts, how to reach them, and how connections are
//! protected.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crossway_sys::random;
use crossway_tipc_client::Backend;

/// Default time for which the ends of a channel between hosts look for each other after their connection broke.
const RESUME: Duration = Duration::from_secs(5);
/// Size in bytes of a key.
const KEY_LEN: usize = 32;

/// Settings for reaching other hosts. With [`Network::default`], no other host is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Network {
    /// Names and their TCP addresses. A listener binds the addresses of its name that belong to this host.
    pub hosts: Hosts,
    /// Where names are published and looked up in TIPC's name table: the kernel's TIPC or a `tipcd`. `None` for no
    /// TIPC.
    pub tipc: Option<Backend>,
    /// The key that both ends of every connection between hosts must have. If set, connections are encrypted.
    pub key: Option<Key>,
    /// Whether connections between hosts may be neither encrypted nor authenticated. If this is false and there is no
    /// key, calls that listen on or connect to a name that may be on another host fail.
    pub plain: bool,
    /// How long the ends try to connect again after their connection broke, before each considers the other dead. With
    /// zero they do not try.
    pub resume: Duration,
}

impl Default for Network {
    fn default() -> Self {
        Network { hosts: Hosts::default(), tipc: None, key: None, plain: false, resume: RESUME }
    }
}

/// The error for invalid settings: a file that cannot be read or is malformed.
#[derive(Debug, thiserror::Error)]
#[error("{what} {}: {why}", place.display())]
pub struct BadNetwork {
    what: &'static str,
    place: PathBuf,
    why: String,
}

fn read(what: &'static str, path: &Path) -> Result<String, BadNetwork> {
    crossway_sys::text_file::read(path).map_err(|error| BadNetwork {
        what,
        place: path.to_owned(),
        why: format!("{error}; specify a file that this user can read"),
    })
}

impl Network {
    /// Reads the settings from the environment: `CROSSWAY_CHANNEL_HOSTS` and `CROSSWAY_CHANNEL_KEY` are paths of files,
    /// `CROSSWAY_CHANNEL_TIPC` is `auto`, `kernel` or the path of a tipcd's socket, and `CROSSWAY_CHANNEL_PLAIN` is 1
    /// to allow connections that are not encrypted.
    ///
    /// # Errors
    /// One of these files cannot be read or is malformed.
    pub fn of_environment() -> Result<Network, BadNetwork> {
        let value = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        let mut network = Network::default();
        if let Some(path) = value("CROSSWAY_CHANNEL_HOSTS") {
            network.hosts = Hosts::read(path.as_ref())?;
        }
        if let Some(path) = value("CROSSWAY_CHANNEL_KEY") {
            network.key = Some(Key::read(path.as_ref())?);
        }
        network.tipc = value("CROSSWAY_CHANNEL_TIPC").map(|value| Backend::named(&value));
        network.plain = value("CROSSWAY_CHANNEL_PLAIN").is_some_and(|value| value == "1");
        Ok(network)
    }

    /// Whether the settings allow connections to other hosts, either with a key or explicitly without.
    pub(crate) const fn is_protected_by_choice(&self) -> bool {
        self.key.is_some() || self.plain
    }

    /// Whether a name can be on another host, according to these settings.
    pub(crate) fn reaches(&self, name: &str) -> bool {
        self.tipc.is_some() || !self.hosts.of(name).is_empty()
    }
}

/// The addresses of names: a file with a name and an address per line, the same on all hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hosts(BTreeMap<String, Vec<SocketAddr>>);

impl Hosts {
    /// Adds an address of a name.
    #[must_use]
    pub fn with(mut self, name: &str, address: SocketAddr) -> Self {
        self.0.entry(name.to_owned()).or_default().push(address);
        self
    }

    /// Returns the addresses of a name, in the order of the file.
    pub fn of(&self, name: &str) -> &[SocketAddr] {
        self.0.get(name).map_or(&[], Vec::as_slice)
    }

    /// Reads a file of lines such as `camera/left 10.0.0.2:7400`. A `#` begins a comment. A name may have several
    /// lines.
    ///
    /// # Errors
    /// The file cannot be read, or a line is not of that form.
    pub fn read(path: &Path) -> Result<Hosts, BadNetwork> {
        const WHAT: &str = "list of hosts";
        let mut hosts = Hosts::default();
        for (number, line) in (1..).zip(read(WHAT, path)?.lines()) {
            let words: Vec<&str> =
                line.split('#').next().unwrap_or_default().split_whitespace().collect();
            let address = match words[..] {
                [] => continue,
                [_, address] => address.parse().ok(),
                _ => None,
            };
            let Some(address) = address else {
                let why = format!(
                    "line {number} is '{line}'; expected a name and an address, such as camera/left 10.0.0.2:7400"
                );
                return Err(BadNetwork { what: WHAT, place: path.to_owned(), why });
            };
            hosts = hosts.with(words[0], address);
        }
        Ok(hosts)
    }
}

/// A secret shared by all programs that may open channels to each other between hosts.
#[derive(Clone, PartialEq, Eq)]
pub struct Key([u8; KEY_LEN]);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

impl Key {
    /// Generates a key with the kernel's random generator.
    ///
    /// # Errors
    /// Those of [`random::unguessable`].
    pub fn generate() -> Result<Key, crossway_sys::OsError> {
        let mut bytes = [0; KEY_LEN];
        for chunk in bytes.chunks_exact_mut(8) {
            chunk.copy_from_slice(&random::unguessable()?.to_le_bytes());
        }
        Ok(Key(bytes))
    }

    /// Returns the key as 64 hexadecimal digits, the form that [`Key::read`] accepts.
    pub fn to_hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Reads a key from a file of 64 hexadecimal digits.
    ///
    /// # Errors
    /// The file cannot be read or is malformed; the error does not quote its content.
    pub fn read(path: &Path) -> Result<Key, BadNetwork> {
        const WHAT: &str = "key";
        let text = read(WHAT, path)?;
        Key::parse(text.trim()).ok_or_else(|| BadNetwork {
            what: WHAT,
            place: path.to_owned(),
            why: "expected 64 hexadecimal digits; create a key with: crossway channel key"
                .to_owned(),
        })
    }

    pub(super) fn parse(text: &str) -> Option<Key> {
        let digits: Vec<u8> =
            text.chars().map(|c| c.to_digit(16).map(|d| d as u8)).collect::<Option<_>>()?;
        let bytes: Vec<u8> =
            digits.chunks(2).map(|pair| pair.iter().fold(0, |b, d| b << 4 | d)).collect();
        (digits.len() == 2 * KEY_LEN).then(|| bytes.try_into().ok().map(Key))?
    }

    pub(super) const fn bytes(&self) -> &[u8; KEY_LEN] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        file
    }

    #[test]
    fn a_list_of_hosts_has_a_name_and_an_address_per_line() {
        let text = "# all hosts\ncamera/left 10.0.0.2:7400 # the left one\n\ncamera/left [::1]:9\n";
        let hosts = Hosts::read(file(text).path()).unwrap();
        assert_eq!(
            hosts.of("camera/left"),
            ["10.0.0.2:7400".parse().unwrap(), "[::1]:9".parse().unwrap()]
        );
        assert!(hosts.of("camera/right").is_empty());
        for bad in ["camera/left", "camera/left 10.0.0.2", "a 1.2.3.4:5 b", "a host:80"] {
            let file = file(&format!("x 1.2.3.4:5\n{bad}\n"));
            let error = Hosts::read(file.path()).unwrap_err().to_string();
            assert!(error.contains("line 2") && error.contains(bad), "{error}");
            assert!(error.contains(file.path().to_str().unwrap()), "{error}");
        }
    }

    #[test]
    fn a_key_reads_back_and_is_never_shown() {
        let key = Key::generate().unwrap();
        assert_eq!(Key::read(file(&format!("{}\n", key.to_hex())).path()).unwrap(), key);
        assert_ne!(Key::generate().unwrap(), key);
        assert_eq!(format!("{key:?}"), "Key(..)");
        for bad in ["", "12", &"x".repeat(64), &"1".repeat(63), &"1".repeat(66)] {
            let error = Key::read(file(bad).path()).unwrap_err().to_string();
            assert!(error.contains("64 hexadecimal digits"), "{error}");
            assert!(bad.is_empty() || !error.contains(&format!(" {bad}")), "{error}");
        }
    }
}
