//! The requirements that `crossway advise` works from: a TOML file, or the same keys on the command line.
//!
//! docs/ADVISE.md explains every key. An unknown key or value is an error that names the file, the key and what is
//! allowed.

mod parts;
mod place;
mod sentence;
#[cfg(test)]
mod tests;
mod traffic;
mod values;

use std::collections::BTreeMap;

use crossway_mech::Meeting;
use parts::{Wishes, goals, sizes, wishes, word};
use place::{Place, mechanism, place};
use toml::Table;
use traffic::{LEAST_PERIOD_US, Traffic, per_burst, traffic};

pub use crossway_records::percentile::Percentile;
pub(super) use values::goal;
pub use values::{Goals, Pattern, Share, Site};

use super::property::{Property, Wish};
use crossway_lab::plan::{At, PlacementAxis, PlanError, load, placement};
use crossway_records::figure::Figure;
use crossway_records::inputs::{Load, Placement, Workload};
use crossway_records::testbed::{HostWords, Share as Shared, Testbed, TestbedKind, Tipc};

const KEYS: &[&str] = &[
    "about",
    "pattern",
    "size_bytes",
    "reply_bytes",
    "rate_per_s",
    "peers",
    "clients",
    "in_flight",
    "placement",
    "load",
    "where",
    "hosts",
    "shares",
    "started",
    "now",
    "optimise",
    "goal",
    "properties",
];

/// A question: requirements, parsed and checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    /// The file's name without extension, or `command-line`.
    pub name: String,
    /// A one-line description of the use case.
    pub about: Option<String>,
    /// The communication pattern.
    pub pattern: Pattern,
    /// Message sizes (request sizes, if there are replies), the most frequent first.
    pub sizes: Vec<Share>,
    /// Reply size in bytes; `None` if replies have the size of requests.
    pub reply_bytes: Option<u64>,
    /// Offered messages per second; `None` for as many as possible.
    pub rate_per_s: Option<f64>,
    /// Number of peers of a fan-in or fan-out.
    pub peers: u32,
    /// Number of clients of one server.
    pub clients: u32,
    /// Number of requests that each client has in flight; at a rate, the highest number.
    pub in_flight: u32,
    /// Whether the messages of a fan are sent at fixed times, because their latency is asked for.
    pub paced: bool,
    /// Placement of the processes.
    pub placement: Placement,
    /// Background load on the machine.
    pub load: Load,
    /// Location of the peer.
    pub site: Site,
    /// Command prefixes of the two hosts, as in `crossway measure --hosts`; `None` to use two network namespaces of
    /// this host.
    pub hosts: Option<String>,
    /// What the two ends have in common besides the kernel. Of ends on one host only if they were started apart; otherwise
    /// empty, and they can have anything in common.
    pub shares: Vec<Shared>,
    /// Whether the two programs were started apart, so that neither inherits descriptors from the other or from a parent
    /// of both.
    pub apart: bool,
    /// The mechanism that the programs use now, by id; `None` if they are still to be written.
    pub now: Option<&'static str>,
    /// The figure to optimise; its latency has the percentile of [`Question::percentile`].
    pub objective: Figure,
    /// The goals.
    pub goals: Goals,
    /// Properties that the mechanism must, should or must not have.
    pub wishes: BTreeMap<Property, Wish>,
    /// Maximum time until a crash of the peer must be detected, in milliseconds; `None` for no limit.
    pub detect_within_ms: Option<f64>,
    /// Languages named in the wish for [`Property::Language`].
    pub languages: Vec<String>,
    /// Whether the mechanism must be usable from all of `languages`, as for a client and a server in two of them; otherwise
    /// one is enough.
    pub all_languages: bool,
    /// Licences named in the wish for [`Property::Licence`].
    pub licences: Vec<String>,
    /// The text as parsed, stored with what is measured for the question.
    pub text: String,
}

impl Question {
    /// Parses a question called `name`; `file` is what error messages call the question's file.
    ///
    /// # Errors
    /// The text is not valid TOML, or a key is unknown, missing, has an invalid value, or contradicts another key.
    pub fn parse(name: &str, file: &str, text: &str) -> Result<Question, PlanError> {
        let top: Table = toml::from_str(text).map_err(|e| PlanError::NotToml {
            file: file.to_owned(),
            why: e.to_string().trim_end().replace('\n', "\n  "),
        })?;
        Self::from_table(name, file, &top)
    }

    /// Builds a question from a table, e.g. a file's keys overridden by those of the command line.
    ///
    /// # Errors
    /// Returns the errors of [`Question::parse`].
    pub fn from_table(name: &str, file: &str, top: &Table) -> Result<Question, PlanError> {
        let at = At::top(file);
        at.only(top, KEYS)?;
        let text_of = |key: &str| top.get(key).map(|v| at.key(key).text(v)).transpose();
        let pattern = match top.get("pattern") {
            Some(value) => word(&at.key("pattern"), value, &Pattern::ALL)?,
            None => Pattern::RequestReply,
        };
        let Traffic { peers, clients, in_flight, reply_bytes, rate_per_s } =
            traffic(&at, top, pattern)?;
        let Place { site, hosts, shares, apart } = place(&at, top)?;
        let load =
            top.get("load").map(|v| load(&at.key("load"), v)).transpose()?.unwrap_or_default();
        if site != Site::SameHost && !load.is_idle() {
            return Err(at.key("load").bad(format!(
                "background load is possible only if both ends are on one host; omit it for where = \"{}\"",
                site.word()
            )));
        }
        let goals = match top.get("goal") {
            Some(value) => goals(&at.key("goal"), value)?,
            None => Goals::default(),
        };
        let Wishes { wishes, detect_within_ms, languages, all_languages, licences } =
            match top.get("properties") {
                Some(value) => wishes(&at.key("properties"), value)?,
                None => Wishes::default(),
            };
        let private = wishes.get(&Property::PrivateDevShm);
        if shares.contains(&Shared::Shm) && private == Some(&Wish::Require) {
            return Err(at.key("shares").bad(
                "containers that share \"shm\" contradict \"require private-dev-shm\"; remove one of the two",
            ));
        }
        let optimise = top.get("optimise");
        let wants_latency =
            !goals.latency_us.is_empty() || optimise.and_then(|v| v.as_str()) == Some("latency");
        let traffic = Traffic { peers, clients, in_flight, reply_bytes, rate_per_s };
        let paced = traffic.paces(pattern, wants_latency, &at)?;
        let measure = traffic.workload(pattern, paced, 1).facts().measure;
        let latency = Figure::latency(measure, goals.percentile());
        let cpu = Figure::cpu(measure);
        let objectives =
            [("latency", latency), ("throughput", Some(Figure::MessageRate)), ("cpu", Some(cpu))];
        let objective = match optimise {
            Some(value) => word(&at.key("optimise"), value, &objectives)?,
            // A latency goal already fixes the required speed.
            None if !goals.latency_us.is_empty() => Some(cpu),
            None if rate_per_s.is_some() => latency.or(Some(cpu)),
            None => latency.or(Some(Figure::MessageRate)),
        };
        // A stream and a fan at full speed are timed as a whole and have no latency per message.
        let judged = objective.filter(|_| latency.is_some() || goals.latency_us.is_empty());
        let Some(objective) = judged else {
            let key = if goals.latency_us.is_empty() { "optimise" } else { "goal" };
            return Err(at.key(key).bad(format!(
                "latency cannot be judged for pattern = \"{}\", because its messages are sent at full speed: state \
                 rate_per_s",
                pattern.word()
            )));
        };
        Ok(Question {
            name: name.to_owned(),
            about: text_of("about")?.map(str::to_owned),
            pattern,
            sizes: match top.get("size_bytes") {
                Some(value) => sizes(&at.key("size_bytes"), value)?,
                None => {
                    return Err(at
                        .key("size_bytes")
                        .bad("missing; state the size of the messages"));
                }
            },
            reply_bytes,
            rate_per_s,
            peers,
            clients,
            in_flight,
            paced,
            placement: match top.get("placement") {
                Some(value) => match placement(&at.key("placement"), value)? {
                    PlacementAxis::One(placement) => placement,
                    PlacementAxis::EveryPair | PlacementAxis::EveryPairAndSelf => {
                        return Err(at
                            .key("placement")
                            .bad("expected a single placement, not every pair of CPUs"));
                    }
                },
                None => {
                    if site == Site::OtherHost {
                        Placement::Unpinned
                    } else {
                        Placement::OtherCore
                    }
                }
            },
            load,
            site,
            hosts,
            shares,
            apart,
            now: top.get("now").map(|value| mechanism(&at.key("now"), value)).transpose()?,
            objective,
            goals,
            wishes,
            detect_within_ms,
            languages,
            all_languages,
            licences,
            text: top.to_string(),
        })
    }

    /// The workload of the question for messages of `bytes` bytes.
    pub fn workload(&self, bytes: u64) -> Workload {
        let Question { peers, clients, in_flight, reply_bytes, rate_per_s, .. } = *self;
        Traffic { peers, clients, in_flight, reply_bytes, rate_per_s }.workload(
            self.pattern,
            self.paced,
            bytes,
        )
    }

    /// Whether several requests are under way at a time: of several clients, or of one.
    pub fn is_shared(&self) -> bool {
        self.clients > 1 || self.in_flight > 1
    }

    /// The stated rate of a question that is measured at full speed, as fans are unless their
    /// latency is asked for; a candidate must achieve at least this rate. `None` for other
    /// questions.
    pub(super) fn rate_at_full_speed(&self) -> Option<f64> {
        self.rate_per_s.filter(|_| self.workload(1).facts().timed())
    }

    /// Describes the bursts of a stream whose rate is too high for a schedule of single messages; `None` for all other
    /// questions.
    fn bursts(&self) -> Option<String> {
        let rate = self.rate_per_s.filter(|_| self.pattern == Pattern::Stream)?;
        let messages = per_burst(rate);
        (messages > 1.0).then(|| {
            format!(
                "sent as bursts of {messages} messages every {:.0} us, since the lateness of a sender that sleeps would be a \
                 large part of a period below {LEAST_PERIOD_US} us",
                (messages * 1e6 / rate).round()
            )
        })
    }

    /// The testbed on which the question is measured; `None` if this host alone is used. The testbed has the hosts of
    /// `hosts`, if the question states them.
    pub fn testbed(&self) -> Option<Testbed> {
        let kind = match (self.site, &self.hosts) {
            (Site::SameHost, _) => return None,
            (Site::OtherContainer, _) => TestbedKind::Containers,
            (Site::OtherHost, None) => TestbedKind::Netlab,
            (Site::OtherHost, Some(_)) => TestbedKind::Hosts,
        };
        let hosts = self.hosts.as_deref().and_then(|words| HostWords::list(words).ok());
        Some(Testbed {
            tipc: if kind == TestbedKind::Netlab { vec![Tipc::Node] } else { Vec::new() },
            hosts: hosts.unwrap_or_default(),
            shares: self.shares.clone(),
            ..Testbed::of(self.site.word(), kind)
        })
    }

    /// Whether the question is measured between containers with separate `/dev/shm`.
    pub fn has_private_dev_shm(&self) -> bool {
        self.site == Site::OtherContainer && !self.shares.contains(&Shared::Shm)
    }

    /// Whether the two ends can meet in this way. Between hosts, the capability `crosses_hosts` decides instead.
    pub fn lets_meet(&self, way: Meeting) -> bool {
        match self.site {
            Site::OtherHost => true,
            Site::SameHost if !self.apart => true,
            _ => (!self.apart || way != Meeting::Descriptor) && Shared::let_meet(&self.shares, way),
        }
    }

    /// The percentile by which latency is judged: the highest that has a goal, or the median if none has.
    pub fn percentile(&self) -> Percentile {
        self.goals.percentile()
    }

    /// The wish for a property; [`Wish::NoPreference`] if the question states none.
    pub fn wish(&self, property: Property) -> Wish {
        self.wishes.get(&property).copied().unwrap_or(Wish::NoPreference)
    }
}
