//! Hosts as they are named on the command line, by the command prefix that runs a program there.

use std::net::IpAddr;

use super::LOCAL;

/// A host as named on the command line: a command prefix, and optionally the address at which other hosts reach it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostWords {
    /// The host's name: the command prefix as written; `local` without a prefix.
    pub name: String,
    /// The command prefix, one argument per element; empty for this machine.
    pub prefix: Vec<String>,
    /// The host's address; `None` if it was not stated and must be discovered.
    pub address: Option<IpAddr>,
}

/// A list of hosts is malformed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "--hosts: {why}; write each host as the command prefix that runs a command there: --hosts 'ssh a,ssh b'"
)]
pub struct BadHosts {
    why: String,
}

impl HostWords {
    /// Parses one host: a command prefix with quotes as in a shell, or `local` or nothing for this machine, optionally
    /// followed by `=ADDRESS`.
    ///
    /// # Errors
    /// A quote is not closed, the last character is a backslash, or what looks like an address is invalid.
    pub fn parse(text: &str) -> Result<HostWords, BadHosts> {
        let bad = |why: String| BadHosts { why };
        let text = text.trim();
        let (words, address) = match text.rsplit_once('=') {
            // `--key=value` and `NAME=value` are part of the prefix.
            Some((words, address)) if is_meant_as_address(address) => match address.parse() {
                Ok(address) => (words.trim(), Some(address)),
                Err(_) => return Err(bad(format!("'{address}' is not an IP address"))),
            },
            _ => (text, None),
        };
        let prefix = shlex::split(words).ok_or_else(|| {
            bad(format!("in {text}, a quote is not closed, or the last character is a backslash"))
        })?;
        let here = prefix.is_empty() || prefix == [LOCAL];
        Ok(HostWords {
            name: if here { LOCAL.to_owned() } else { words.to_owned() },
            prefix: if here { Vec::new() } else { prefix },
            address,
        })
    }

    /// The name of the host that `text` describes in the syntax of [`HostWords::parse`]; `text` itself if it is
    /// malformed.
    pub(super) fn name_of(text: &str) -> String {
        HostWords::parse(text).map_or_else(|_| text.to_owned(), |host| host.name)
    }

    /// The kind of the command prefix: the second word if that is `guest` or `net` (of Crossway itself) or `netns` (of
    /// `ip`), otherwise the first word without its path; `local` without a prefix.
    pub fn prefix_kind(&self) -> String {
        let Some(first) = self.prefix.first() else { return LOCAL.to_owned() };
        let name = first.rsplit('/').next().unwrap_or(first);
        match self.prefix.get(1).map(String::as_str) {
            Some(second @ ("guest" | "net")) => second.to_owned(),
            Some("netns") => "netns".to_owned(),
            _ => name.to_owned(),
        }
    }

    /// Splits a list of hosts at the commas outside quotes.
    ///
    /// # Errors
    /// A host cannot be parsed, or is named twice.
    pub fn list(text: &str) -> Result<Vec<String>, BadHosts> {
        let mut hosts = vec![String::new()];
        let mut quote = None;
        for c in text.chars() {
            match (c, quote) {
                (',', None) => {
                    hosts.push(String::new());
                    continue;
                }
                ('\'' | '"', None) => quote = Some(c),
                (c, Some(open)) if c == open => quote = None,
                _ => {}
            }
            if let Some(host) = hosts.last_mut() {
                host.push(c);
            }
        }
        let hosts: Vec<String> = hosts.iter().map(|host| host.trim().to_owned()).collect();
        let mut names = Vec::new();
        for host in &hosts {
            let name = HostWords::parse(host)?.name;
            if names.contains(&name) {
                return Err(BadHosts { why: format!("'{name}' is named twice") });
            }
            names.push(name);
        }
        Ok(hosts)
    }
}

/// Whether the text looks like an address: only hexadecimal digits, and dots (IPv4) or colons (IPv6).
fn is_meant_as_address(text: &str) -> bool {
    text.contains(['.', ':']) && text.chars().all(|c| c.is_ascii_hexdigit() || ".:".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_words_between_commas() {
        let hosts = HostWords::list("ssh a, ssh -p 22 b=10.0.0.2 ,").unwrap();
        let hosts: Vec<_> = hosts.iter().map(|h| HostWords::parse(h).unwrap()).collect();
        assert_eq!(hosts[0].prefix, ["ssh", "a"]);
        assert_eq!(hosts[1].name, "ssh -p 22 b");
        assert_eq!(hosts[1].address, Some("10.0.0.2".parse().unwrap()));
        assert_eq!((hosts[2].name.as_str(), hosts[2].prefix.len()), ("local", 0));
        let quoted = HostWords::parse("mpirun --mca btl 'tcp,self' --host=n1").unwrap();
        assert_eq!(quoted.prefix[3], "tcp,self");
        assert_eq!(quoted.address, None);
        assert_eq!(HostWords::parse("env A=1").unwrap().prefix, ["env", "A=1"]);
        assert_eq!(HostWords::parse(r"ssh my\ host").unwrap().prefix, ["ssh", "my host"]);
        assert_eq!(HostWords::list("mpirun --mca btl 'tcp,self' -np 1,ssh b").unwrap().len(), 2);
        assert_eq!(HostWords::parse("ssh b=::1").unwrap().address, Some("::1".parse().unwrap()));
    }

    #[test]
    fn what_cannot_be_read_is_refused_by_name() {
        for (text, why) in [
            ("ssh a,ssh a", "'ssh a' is named twice"),
            ("ssh a=10.0.0", "'10.0.0' is not an IP address"),
            ("ssh 'a", "a quote is not closed"),
            (",", "'local' is named twice"),
        ] {
            let error = HostWords::list(text).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn prefixes_have_kinds() {
        let kind = |text: &str| HostWords::parse(text).unwrap().prefix_kind();
        assert_eq!(kind(""), "local");
        assert_eq!(kind("ip netns exec n"), "netns");
        assert_eq!(kind("/x/crossway guest exec g --"), "guest");
        assert_eq!(kind("/usr/bin/ssh a"), "ssh");
    }
}
