//! Orders about encryption, and how they are written: in the words of iproute2's `tipc node set key`, on a command line or
//! in a file.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crossway_sys::trust;
use serde::{Deserialize, Serialize};

use super::Order;

/// Largest key file, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Usage of `node set key`.
pub const KEY_USAGE: &str =
    "KEY [algname gcm(aes)] [nodeid ID | master], `rekeying MINUTES|now|none`, or `file PATH`";

/// A secret key with its salt, in hexadecimal. It is never printed.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct KeyText(pub String);

impl std::fmt::Debug for KeyText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KeyText")
    }
}

/// Whose key is set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KeyFor {
    /// All nodes encrypt with it.
    Cluster,
    /// It is the cluster's master key.
    Master,
    /// The node with this identity encrypts with it: text of up to 16 characters, or 32 hexadecimal digits.
    Node(String),
}

/// When the node replaces its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RekeyingWhen {
    /// Each time this number of minutes has passed.
    EveryMinutes(u32),
    /// Each time this number of seconds has passed.
    EverySeconds(u32),
    /// Once, immediately.
    Now,
    /// Not.
    Never,
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Parses what follows `node set key` into an order.
///
/// # Errors
/// What is wrong with the words. The key itself is not repeated.
pub fn key_order(words: &[&str]) -> Result<Order, String> {
    if let ["rekeying", rest @ ..] = words {
        return rekeying(rest);
    }
    let Some((key, mut rest)) = words.split_first() else {
        return Err(format!("the key is missing: expected {KEY_USAGE}"));
    };
    let key = match key.strip_prefix("0x") {
        Some(digits) if digits.bytes().all(|b| b.is_ascii_hexdigit()) => {
            digits.to_ascii_lowercase()
        }
        Some(_) => {
            return Err("the key has other characters than hexadecimal digits after 0x".to_owned());
        }
        None => hex(key.as_bytes()),
    };
    if !matches!(key.len(), 40 | 56 | 72) {
        return Err(format!(
            "the key has {} bytes, but a key has 20, 28 or 36: an AES key of 16, 24 or 32 bytes and a salt of 4, as \
             characters or, after 0x, as hexadecimal digits",
            key.len().div_ceil(2)
        ));
    }
    let mut owner = KeyFor::Cluster;
    loop {
        (owner, rest) = match rest {
            [] => return Ok(Order::SetKey { key: KeyText(key), owner }),
            ["algname", "gcm(aes)", rest @ ..] => (owner, rest),
            ["algname", other, ..] => {
                return Err(format!(
                    "the cipher '{other}' is not supported; the only one is gcm(aes)"
                ));
            }
            ["nodeid", id, rest @ ..] if owner == KeyFor::Cluster => {
                (KeyFor::Node((*id).to_owned()), rest)
            }
            ["master", rest @ ..] if owner == KeyFor::Cluster => (KeyFor::Master, rest),
            ["nodeid" | "master", ..] => {
                return Err("a key is for the cluster, one node, or the master key: give only one of nodeid and \
                            master, and nodeid with an identity"
                    .to_owned());
            }
            [other, ..] => {
                return Err(format!("'{other}' is not recognised; expected {KEY_USAGE}"));
            }
        };
    }
}

fn rekeying(words: &[&str]) -> Result<Order, String> {
    let when = match words {
        ["now"] => RekeyingWhen::Now,
        ["none"] => RekeyingWhen::Never,
        [time] => match (time.parse(), time.strip_suffix('s').map(str::parse)) {
            (Ok(minutes @ 1..=71_582), _) => RekeyingWhen::EveryMinutes(minutes),
            (_, Some(Ok(seconds @ 1..=86_400))) => RekeyingWhen::EverySeconds(seconds),
            _ => {
                return Err(format!(
                    "'{time}' is not an interval of rekeying; expected minutes (1 to 71582), seconds with an s (1s to \
                     86400s), now or none"
                ));
            }
        },
        _ => {
            return Err("expected `rekeying MINUTES`, `rekeying now` or `rekeying none`".to_owned());
        }
    };
    Ok(Order::SetRekeying { when })
}

/// Reads a file of keys. Each line is what follows `node set key`; lines that begin with `#` are comments.
///
/// # Errors
/// What is wrong with the file and how to repair it: it must be private to its owner, and nobody else may be able to
/// replace it.
pub fn read_key_file(path: &Path) -> Result<Vec<Order>, String> {
    let at = path.display();
    trust::check(path).map_err(|e| format!("key file {at}: {e}"))?;
    let file = File::open(path).map_err(|e| format!("cannot open key file {at}: {e}"))?;
    let about = file.metadata().map_err(|e| format!("cannot examine key file {at}: {e}"))?;
    if about.mode() & 0o077 != 0 {
        let mode = about.mode() & 0o777;
        return Err(format!(
            "other users may read key file {at} (mode {mode:o}): chmod 600 it, and replace the keys in it if others may \
             have read them"
        ));
    }
    let mut text = String::new();
    let read = file.take(FILE_BYTES_MAX).read_to_string(&mut text);
    read.map_err(|e| format!("cannot read key file {at}: {e}"))?;
    let lines = text.lines().enumerate().map(|(n, line)| (n + 1, line.trim()));
    let orders: Vec<Order> = lines
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
        .map(|(n, line)| {
            let words: Vec<&str> = line.split_ascii_whitespace().collect();
            key_order(&words).map_err(|e| format!("key file {at}, line {n}: {e}"))
        })
        .collect::<Result<_, _>>()?;
    if orders.is_empty() {
        return Err(format!(
            "key file {at} contains no key: write one to a line, as after `tipc node set key`"
        ));
    }
    Ok(orders)
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn set(key: &str, owner: KeyFor) -> Order {
        Order::SetKey { key: KeyText(key.to_owned()), owner }
    }

    #[test]
    fn the_words_of_iproute2_are_understood() {
        let text = "this_is_a_key_of_20b";
        let hex = "746869735f69735f615f6b65795f6f665f323062";
        assert_eq!(key_order(&[text]), Ok(set(hex, KeyFor::Cluster)));
        assert_eq!(
            key_order(&[&format!("0x{}", hex.to_uppercase())]),
            Ok(set(hex, KeyFor::Cluster))
        );
        assert_eq!(key_order(&[text, "master"]), Ok(set(hex, KeyFor::Master)));
        let node = KeyFor::Node("node-1".to_owned());
        let words = [text, "algname", "gcm(aes)", "nodeid", "node-1"];
        assert_eq!(key_order(&words), Ok(set(hex, node)));
        let rekeying = |word| key_order(&["rekeying", word]);
        assert_eq!(rekeying("now"), Ok(Order::SetRekeying { when: RekeyingWhen::Now }));
        assert_eq!(rekeying("none"), Ok(Order::SetRekeying { when: RekeyingWhen::Never }));
        assert_eq!(rekeying("5"), Ok(Order::SetRekeying { when: RekeyingWhen::EveryMinutes(5) }));
        assert_eq!(rekeying("9s"), Ok(Order::SetRekeying { when: RekeyingWhen::EverySeconds(9) }));
    }

    #[test]
    fn wrong_words_are_refused_without_repeating_the_key() {
        let text = "this_is_a_key_of_20b";
        for (words, part) in [
            (&[][..], "missing"),
            (&["short_secret"], "12 bytes"),
            (&["0xsecret"], "hexadecimal"),
            (&[text, "algname", "rot13"], "'rot13' is not supported"),
            (&[text, "master", "nodeid", "a"], "only one"),
            (&[text, "nodeid"], "identity"),
            (&[text, "quickly"], "'quickly' is not recognised"),
            (&["rekeying", "often"], "'often' is not an interval"),
            (&["rekeying", "0"], "'0' is not an interval"),
        ] {
            let error = key_order(words).unwrap_err();
            assert!(error.contains(part), "{words:?}: {error}");
            assert!(!error.contains("secret") && !error.contains(text), "{error}");
        }
        assert!(!format!("{:?}", key_order(&[text])).contains("7468"));
    }

    #[test]
    fn a_key_file_must_be_private() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("keys");
        std::fs::write(&path, "# cluster\nthis_is_a_key_of_20b master\n\nrekeying 60\n").unwrap();
        for mode in [0o644, 0o640, 0o604] {
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let error = read_key_file(&path).unwrap_err();
            assert!(error.contains("chmod 600"), "{error}");
        }
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        assert_eq!(read_key_file(&path).unwrap().len(), 2);
        std::fs::write(&path, "# nothing\n").unwrap();
        assert!(read_key_file(&path).unwrap_err().contains("contains no key"));
        std::fs::write(&path, "# first\nsecret\n").unwrap();
        let error = read_key_file(&path).unwrap_err();
        assert!(error.contains("line 2") && !error.contains("secret"), "{error}");
        std::fs::set_permissions(dir.path(), Permissions::from_mode(0o777)).unwrap();
        assert!(read_key_file(&path).is_err(), "others could replace it");
    }
}
