//! Parses the keywords and values of iproute2's `tipc`: `tolerance 500 link L`, `media udp name UDP1 remoteip
//! 10.0.0.2`.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use anyhow::{bail, ensure};
use crossway_tipc_client::admin::Settings;

/// Default port of TIPC over UDP.
pub(super) const UDP_PORT: u16 = 6118;

/// Keywords and values of a command line that are not yet parsed; they may come in any order, as with iproute2.
#[derive(Debug)]
pub(super) struct Words(Vec<String>);

impl Words {
    pub(super) fn new(words: Vec<String>) -> Self {
        Self(words)
    }

    /// Removes a keyword; returns whether it was present.
    pub(super) fn flag(&mut self, keyword: &str) -> bool {
        let at = self.0.iter().position(|word| word == keyword);
        at.map(|at| self.0.remove(at)).is_some()
    }

    /// Removes a keyword and its value; returns the value, or `None` if the keyword is absent.
    pub(super) fn text(&mut self, keyword: &str) -> anyhow::Result<Option<String>> {
        let Some(at) = self.0.iter().position(|word| word == keyword) else { return Ok(None) };
        ensure!(at + 1 < self.0.len(), "'{keyword}' needs a value after it");
        self.0.remove(at);
        Ok(Some(self.0.remove(at)))
    }

    /// Removes a keyword and its value; returns the parsed value, or `None` if the keyword is absent.
    pub(super) fn value<T: FromStr>(&mut self, keyword: &str) -> anyhow::Result<Option<T>> {
        let Some(text) = self.text(keyword)? else { return Ok(None) };
        let bad = || anyhow::anyhow!("'{text}' is not a valid value of {keyword}");
        text.parse().map(Some).map_err(|_| bad())
    }

    /// Removes tolerance, priority and window with their values. iproute2 accepts only one of them at a time.
    pub(super) fn settings(&mut self) -> anyhow::Result<Settings> {
        Ok(Settings {
            tolerance_ms: self.value("tolerance")?,
            priority: self.value("priority")?,
            window_packets: self.value("window")?,
        })
    }

    /// Removes the first of these property names that is present as a keyword, and returns it; `None` if none is.
    pub(super) fn property<'a>(&mut self, of: &[&'a str]) -> Option<&'a str> {
        of.iter().copied().find(|property| self.flag(property))
    }

    /// Removes `media eth device D` or `media udp name N`, and returns the name of the bearer that these keywords
    /// describe; `None` without them.
    pub(super) fn bearer(&mut self) -> anyhow::Result<Option<String>> {
        let Some(media) = self.text("media")? else { return Ok(None) };
        let (keyword, what) = match check_media(&media)? {
            Media::Ethernet => ("device", "media eth device DEVICE"),
            Media::Udp => ("name", "media udp name NAME"),
        };
        match self.text(keyword)? {
            Some(name) => Ok(Some(format!("{media}:{name}"))),
            None => bail!("'{keyword}' is missing: expected `{what}`"),
        }
    }

    /// Returns the single argument that remains, if there is one; more are an error.
    pub(super) fn rest(self, usage: &str) -> anyhow::Result<Option<String>> {
        let mut words = self.0.into_iter();
        let first = words.next();
        match words.next() {
            None => Ok(first),
            Some(_) => bail!(
                "too many arguments, beginning with '{}'; expected {usage}",
                first.unwrap_or_default()
            ),
        }
    }

    /// Checks that no argument remains.
    pub(super) fn end(self, usage: &str) -> anyhow::Result<()> {
        match self.0.first() {
            None => Ok(()),
            Some(word) => bail!("'{word}' is not recognised; expected {usage}"),
        }
    }
}

/// The media that a tipcd supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Media {
    Ethernet,
    Udp,
}

pub(super) fn check_media(name: &str) -> anyhow::Result<Media> {
    match name {
        "eth" => Ok(Media::Ethernet),
        "udp" => Ok(Media::Udp),
        "ib" => bail!("a tipcd has no InfiniBand; its media are eth and udp"),
        other => bail!("there is no medium '{other}'; a tipcd has eth and udp"),
    }
}

/// Removes the keywords `media ...` and their values. Returns the bearer to enable, in the syntax of tipcd's own
/// command line, and the name of the bearer's interface, if one is given; `None` without these keywords.
pub(super) fn bearer_to_enable(
    words: &mut Words,
) -> anyhow::Result<Option<(String, Option<String>)>> {
    let Some(media) = words.text("media")? else { return Ok(None) };
    match check_media(&media)? {
        Media::Ethernet => {
            let Some(device) = words.text("device")? else {
                bail!("'device' is missing: expected `media eth device DEVICE`");
            };
            Ok(Some((format!("eth:{device}"), None)))
        }
        Media::Udp => {
            let name = words.text("name")?;
            let local: Option<IpAddr> = words.value("localip")?;
            let Some(local) = local else {
                bail!("'localip' is missing: expected `media udp name NAME localip ADDRESS`");
            };
            let station = |ip: IpAddr, port: Option<u16>| match port {
                Some(port) => SocketAddr::new(ip, port).to_string(),
                None => ip.to_string(),
            };
            let mut bearer = format!("udp:{}", station(local, words.value("localport")?));
            let remote_port = words.value("remoteport")?;
            match words.value("remoteip")? {
                Some(remote) => bearer.push_str(&format!(",{}", station(remote, remote_port))),
                None => ensure!(remote_port.is_none(), "'remoteport' needs 'remoteip' as well"),
            }
            Ok(Some((bearer, name)))
        }
    }
}

/// Parses an address. An address without a port gets the default port of TIPC over UDP.
pub(super) fn endpoint(text: &str) -> Result<SocketAddr, String> {
    text.parse::<SocketAddr>()
        .or_else(|_| text.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, UDP_PORT)))
        .map_err(|_| {
            "expected an IP address, or ADDRESS:PORT with an IPv6 address in brackets".into()
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Words {
        Words::new(text.split(' ').map(str::to_owned).collect())
    }

    #[test]
    fn bearers_of_the_manual_become_those_of_tipcd() {
        for (text, bearer, name) in [
            ("media eth device eth0", "eth:eth0", None),
            ("media udp name UDP1 localip 10.0.0.1", "udp:10.0.0.1", Some("UDP1")),
            (
                "media udp name UDP1 localip 10.0.0.1 localport 6200 remoteip 10.0.0.2 remoteport 6300",
                "udp:10.0.0.1:6200,10.0.0.2:6300",
                Some("UDP1"),
            ),
            ("media udp localip fd00::1 remoteip fd00::2", "udp:fd00::1,fd00::2", None),
            ("media udp localip fd00::1 localport 7000", "udp:[fd00::1]:7000", None),
        ] {
            let mut of = words(text);
            let (found, named) = bearer_to_enable(&mut of).unwrap().unwrap();
            assert_eq!((found.as_str(), named.as_deref()), (bearer, name), "{text}");
            of.end("").unwrap();
        }
    }

    #[test]
    fn what_is_missing_or_too_much_is_named() {
        let error = |text: &str| bearer_to_enable(&mut words(text)).unwrap_err().to_string();
        assert!(error("media eth").contains("media eth device DEVICE"));
        assert!(error("media ib device ib0").contains("no InfiniBand"));
        assert!(error("media udp name x").contains("'localip' is missing"));
        assert!(error("media udp localip 10.0.0.1 remoteport 1").contains("needs 'remoteip'"));
        assert!(error("media").contains("'media' needs a value"));
        let mut of = words("tolerance fast link L");
        assert!(of.settings().unwrap_err().to_string().contains("'fast' is not a valid value"));
        assert!(words("colour red").end("link LINK").unwrap_err().to_string().contains("'colour'"));
    }

    #[test]
    fn a_setting_and_a_bearer_stand_in_any_order() {
        let mut of = words("priority 5 media udp name UDP1 window 40");
        assert_eq!(of.bearer().unwrap().as_deref(), Some("udp:UDP1"));
        let settings = of.settings().unwrap();
        assert_eq!((settings.priority, settings.window_packets), (Some(5), Some(40)));
        of.end("").unwrap();
    }
}
