//! Replaces names and addresses in texts.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};

use super::identity::{Identity, SHORTEST};
use super::names::{self, Names};

/// What a redaction has replaced, and what it had to leave.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replaced {
    /// Number of different hosts and names of hosts.
    pub hosts: usize,
    /// Number of different users.
    pub users: usize,
    /// Number of different addresses.
    pub addresses: usize,
    /// Names that were left because the records use the same word with another meaning, such as a host named `pipe`.
    pub left: Vec<String>,
}

/// Replaces the names of hosts and users, and addresses of networks and interfaces, by numbered labels. The same name
/// always gets the same label, so that a reader can still tell two hosts apart.
#[derive(Debug)]
pub struct Redaction {
    hosts: Names,
    users: Names,
    home: Option<String>,
    /// Labels by address.
    addresses: BTreeMap<String, String>,
    /// Words that have a meaning in the records.
    meant: BTreeSet<String>,
    left: BTreeSet<String>,
}

impl Redaction {
    /// Replaces what `identity` contains, and every address. Words in `meant` are left as they are.
    pub fn new(identity: Identity, meant: &BTreeSet<String>) -> Redaction {
        let mut redaction = Redaction {
            hosts: Names::new("host"),
            users: Names::new("user"),
            home: identity.home,
            addresses: BTreeMap::new(),
            meant: meant.clone(),
            left: BTreeSet::new(),
        };
        for name in identity.hosts.into_iter().chain(identity.host_names) {
            if redaction.may_replace(&name) {
                redaction.hosts.add(&name);
            }
        }
        for name in identity.users {
            if redaction.may_replace(&name) {
                redaction.users.add(&name);
            }
        }
        redaction
    }

    fn may_replace(&mut self, name: &str) -> bool {
        let free = !self.meant.contains(name);
        if !free {
            self.left.insert(name.to_owned());
        }
        free
    }

    /// Returns the text without names and addresses.
    pub fn text(&mut self, text: &str) -> String {
        let text = match &self.home {
            Some(home) => names::replace_path(text, home, "~"),
            None => text.to_owned(),
        };
        // Hosts first: the text of a host may contain names of users.
        let text = self.hosts.replace(&text);
        let text = self.users.replace(&text);
        self.without_addresses(&text)
    }

    /// What has been replaced so far.
    pub fn replaced(self) -> Replaced {
        Replaced {
            hosts: self.hosts.used(),
            users: self.users.used(),
            addresses: self.addresses.len(),
            left: self.left.into_iter().collect(),
        }
    }

    /// Adds the users whose home folders a text names, so that their names are replaced elsewhere, too.
    pub(super) fn learn_homes(&mut self, text: &str) {
        for above in ["home", "Users"].map(|folder| format!("/{folder}/")) {
            for (at, _) in text.match_indices(&above) {
                let name: String = text[at + above.len()..]
                    .chars()
                    .take_while(|c| c.is_alphanumeric() || "._-".contains(*c))
                    .collect();
                if name.len() >= SHORTEST && self.may_replace(&name) {
                    self.users.add(&name);
                }
            }
        }
    }

    fn without_addresses(&mut self, text: &str) -> String {
        let is_part = |c: char| c.is_ascii_alphanumeric() || ".:%".contains(c);
        let mut shown = String::with_capacity(text.len());
        let mut rest = text;
        while !rest.is_empty() {
            let length = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
            if length == 0 {
                let next = rest.chars().next().map_or(rest.len(), char::len_utf8);
                shown.push_str(&rest[..next]);
                rest = &rest[next..];
                continue;
            }
            self.token(&rest[..length], &mut shown);
            rest = &rest[length..];
        }
        shown
    }

    /// Appends a run of characters of which addresses consist, with the address in it replaced: alone, before a port
    /// (`10.0.0.1:80`), or after a kind (`udp:10.0.0.1`, `eth:02:00:00:00:00:01`).
    fn token(&mut self, token: &str, shown: &mut String) {
        // The end of a sentence.
        let core = token.trim_end_matches(['.', ':']);
        let starts = [0].into_iter().chain(core.match_indices(':').map(|(at, _)| at + 1));
        for start in starts {
            let ends = [core.len()].into_iter().chain(core.rmatch_indices(':').map(|(at, _)| at));
            for end in ends.filter(|end| *end > start) {
                if let Some(label) = self.label(&core[start..end]) {
                    shown.push_str(&core[..start]);
                    shown.push_str(&label);
                    shown.push_str(&core[end..]);
                    shown.push_str(&token[core.len()..]);
                    return;
                }
            }
        }
        shown.push_str(token);
    }

    /// The label for an address; `None` for anything else, and for addresses that every machine has.
    fn label(&mut self, text: &str) -> Option<String> {
        // An interface of a link-local address may contain a name.
        let address = text.split('%').next().unwrap_or(text);
        let telling = match address.parse::<IpAddr>() {
            Ok(IpAddr::V4(ip)) => !ip.is_loopback() && !ip.is_unspecified() && !ip.is_broadcast(),
            Ok(IpAddr::V6(ip)) => ip != Ipv6Addr::LOCALHOST && ip != Ipv6Addr::UNSPECIFIED,
            Err(_) => is_hardware_address(address),
        };
        if !telling {
            return None;
        }
        let next = format!("address-{}", self.addresses.len() + 1);
        Some(self.addresses.entry(address.to_ascii_lowercase()).or_insert(next).clone())
    }
}

/// Whether the text is the address of an Ethernet interface, `02:00:5e:00:53:01`, or the name of one that contains it,
/// `enx02005e005301`. Broadcast and zero addresses are not meant.
fn is_hardware_address(text: &str) -> bool {
    let digits = match text.strip_prefix("enx") {
        Some(digits) => digits.to_owned(),
        None if text.split(':').all(|part| part.len() == 2) => text.replace(':', ""),
        None => return false,
    };
    digits.len() == 12
        && digits.bytes().all(|b| b.is_ascii_hexdigit())
        && !digits.bytes().all(|b| b == b'0')
        && !digits.bytes().all(|b| b.eq_ignore_ascii_case(&b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redaction(meant: &[&str]) -> Redaction {
        let mut identity = Identity::default();
        identity.add_hosts("ssh alice@board7.example.com,ssh pipe");
        identity.add_host_name("tower");
        identity.add_home("/srv/people/alice");
        Redaction::new(identity, &meant.iter().map(|w| (*w).to_owned()).collect())
    }

    #[test]
    fn names_and_addresses_get_labels_that_stay_the_same() {
        let mut redaction = redaction(&["pipe"]);
        redaction.learn_homes("in /Users/bob/x");
        for (text, shown) in [
            ("host 'ssh alice@board7.example.com': lost", "host 'host-1': lost"),
            ("board7: Connection refused by tower.", "host-3: Connection refused by host-5."),
            ("/srv/people/alice/runs, /srv/people/alice2", "~/runs, /srv/people/alice2"),
            ("alice, malice and alice_b", "user-1, malice and alice_b"),
            ("in /Users/bob/x; bob's", "in /Users/user-2/x; user-2's"),
            ("192.0.2.7:80, 192.0.2.70 and 192.0.2.7.", "address-1:80, address-2 and address-1."),
            ("udp:192.0.2.7", "udp:address-1"),
            ("[fe80::1%eth0]:80 fe80::1", "[address-3]:80 address-3"),
            ("eth:02:00:5E:00:53:01 enx02005e005301", "eth:address-4 address-5"),
            ("192.0.2.0/24", "address-6/24"),
            // Not addresses, or addresses that every machine has.
            ("127.0.0.1:80 ::1 0.0.0.0 [::]:80", "127.0.0.1:80 ::1 0.0.0.0 [::]:80"),
            (
                "6.18.44-fc 14:03:07.117Z pipe/64 <1.1.1>",
                "6.18.44-fc 14:03:07.117Z pipe/64 <1.1.1>",
            ),
            ("std::net 25.6 µs: ok", "std::net 25.6 µs: ok"),
        ] {
            assert_eq!(redaction.text(text), shown);
        }
        let replaced = redaction.replaced();
        assert_eq!((replaced.users, replaced.addresses), (2, 6));
        assert_eq!(replaced.left, ["pipe"]);
    }
}
