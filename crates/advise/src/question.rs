//! The requirements that `crossway advise` works from: a TOML file, or the same keys on the command line.
//!
//! docs/ADVISE.md explains every key. An unknown key or value is an error that names the file, the key and what is
//! allowed.

mod parts;
mod sentence;
mod values;

use std::collections::BTreeMap;

use parts::{Wishes, float, goals, sizes, wishes, word};
use toml::Table;

pub use crossway_records::percentile::Percentile;
pub(super) use values::goal;
pub use values::{Goals, Pattern, Share, Site};

use super::property::{Property, Wish};
use crossway_lab::plan::{At, PlacementAxis, PlanError, load, placement, share, size_bytes};
use crossway_records::figure::Figure;
use crossway_records::inputs::{Load, Placement, Workload};
use crossway_records::testbed::{HostWords, Share as Shared, Testbed, TestbedKind, Tipc};

/// Maximum number of peers of a fan-in or fan-out.
const MOST_PEERS: u64 = 64;
/// Shortest period between two bursts, in microseconds. The sender sleeps between bursts and begins them some 20 us late
/// or more, which would be a large part of a shorter period. At higher rates, each burst consists of several messages.
const LEAST_PERIOD_US: f64 = 200.0;

/// Highest rate that a question with another pattern than fan-in or fan-out may state, messages per second.
const MOST_PER_S: f64 = 1e7;

/// Keys that a question may be expected to have, and why it cannot: what is not measured, and what to ask instead.
const NOT_MEASURED: &[(&str, &str)] = &[
    (
        "clients",
        "several clients at a time are not measured; ask for one client, or for pattern = \"fan-in\" with peers: several \
         senders to one receiver, without replies",
    ),
    (
        "in_flight",
        "several requests in flight are not measured; ask for one at a time, or for pattern = \"stream\": what the channel \
         carries if nobody waits for replies",
    ),
];

const KEYS: &[&str] = &[
    "about",
    "pattern",
    "size_bytes",
    "reply_bytes",
    "rate_per_s",
    "peers",
    "placement",
    "load",
    "where",
    "hosts",
    "shares",
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
    /// Placement of the processes.
    pub placement: Placement,
    /// Background load on the machine.
    pub load: Load,
    /// Location of the peer.
    pub site: Site,
    /// Command prefixes of the two hosts, as in `crossway measure --hosts`; `None` to use two network namespaces of
    /// this host.
    pub hosts: Option<String>,
    /// What two containers share besides the kernel.
    pub shares: Vec<Shared>,
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
        if let Some((key, why)) = NOT_MEASURED.iter().find(|(key, _)| top.contains_key(*key)) {
            return Err(at.key(key).bad(*why));
        }
        at.only(top, KEYS)?;
        let text_of = |key: &str| top.get(key).map(|v| at.key(key).text(v)).transpose();
        let number = |key: &str, least: f64, most: f64| {
            top.get(key).map(|v| float(&at.key(key), v, least, most)).transpose()
        };
        let pattern = match top.get("pattern") {
            Some(value) => word(&at.key("pattern"), value, &Pattern::ALL)?,
            None => Pattern::RequestReply,
        };
        let fans = matches!(pattern, Pattern::FanIn | Pattern::FanOut);
        let peers = match top.get("peers") {
            Some(value) if fans => at.key("peers").number(value, 2, MOST_PEERS)? as u32,
            Some(value) => at.key("peers").number(value, 1, 1).map(|n| n as u32).map_err(|_| {
                at.key("peers").bad(format!(
                    "'{}' always has two processes; only fan-in and fan-out have a number of peers",
                    pattern.word()
                ))
            })?,
            None => {
                if fans {
                    4
                } else {
                    1
                }
            }
        };
        let reply_bytes = match top.get("reply_bytes") {
            Some(_) if pattern != Pattern::RequestReply => {
                return Err(at.key("reply_bytes").bad(
                    "only pattern = \"request-reply\" supports a reply size of its own; omit it",
                ));
            }
            Some(value) => Some(size_bytes(&at.key("reply_bytes"), value, 1)?),
            None => None,
        };
        let rate_per_s = number("rate_per_s", 0.01, 1e9)?;
        if rate_per_s.is_some() && pattern == Pattern::ConnectPerExchange {
            return Err(at
                .key("rate_per_s")
                .bad("exchanges are measured one after another; omit the rate"));
        }
        // Fans have no schedule.
        if !fans && rate_per_s.is_some_and(|rate| rate > MOST_PER_S) {
            return Err(at.key("rate_per_s").bad(format!(
                "more than {MOST_PER_S} messages per second cannot be sent on a schedule; omit the rate to find out \
                 what is possible"
            )));
        }
        let site = match top.get("where") {
            Some(value) => word(&at.key("where"), value, &Site::ALL)?,
            None => Site::SameHost,
        };
        let hosts = text_of("hosts")?.map(str::to_owned);
        if hosts.is_some() && site != Site::OtherHost {
            return Err(at.key("hosts").bad("hosts can only be given with where = \"other-host\""));
        }
        if let Some(words) = &hosts {
            let listed = HostWords::list(words).map_err(|e| at.key("hosts").bad(e.to_string()))?;
            if listed.len() != 2 {
                return Err(at.key("hosts").bad(format!(
                    "a question has two hosts, not {}: write for example \"ssh a,ssh b\" or \"local,ssh b\"",
                    listed.len()
                )));
            }
        }
        let mut shares = match top.get("shares") {
            Some(_) if site != Site::OtherContainer => {
                let only = "only containers can share something; set where = \"other-container\"";
                return Err(at.key("shares").bad(only));
            }
            Some(value) => at.key("shares").axis(value, share)?,
            None => Vec::new(),
        };
        shares.sort_by_key(|share| share.name());
        shares.dedup();
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
        let measure = workload(pattern, rate_per_s, peers, 1).facts().measure;
        let latency = Figure::latency(measure, goals.percentile());
        let cpu = Figure::cpu(measure);
        let objectives =
            [("latency", latency), ("throughput", Some(Figure::MessageRate)), ("cpu", Some(cpu))];
        let objective = match top.get("optimise") {
            Some(value) => word(&at.key("optimise"), value, &objectives)?,
            // A latency goal already fixes the required speed.
            None if !goals.latency_us.is_empty() => Some(cpu),
            None if rate_per_s.is_some() => latency.or(Some(cpu)),
            None => latency.or(Some(Figure::MessageRate)),
        };
        // A stream at full speed and the fans are timed as a whole and have no latency per message.
        let judged = objective.filter(|_| latency.is_some() || goals.latency_us.is_empty());
        let Some(objective) = judged else {
            let remedy = if fans {
                "omit latency goals, and set optimise = \"throughput\" or \"cpu\"; the latency between one sender and one \
                 receiver is that of pattern = \"stream\" with rate_per_s"
            } else {
                "state rate_per_s"
            };
            return Err(at.key("goal").bad(format!(
                "latency cannot be judged for pattern = \"{}\", because its messages are sent at full speed: {remedy}",
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
        workload(self.pattern, self.rate_per_s, self.peers, bytes)
    }

    /// The stated rate of a question that is measured at full speed, as all fans are; a candidate must achieve at least
    /// this rate. `None` for other questions.
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

    /// The percentile by which latency is judged: the highest that has a goal, or the median if none has.
    pub fn percentile(&self) -> Percentile {
        self.goals.percentile()
    }

    /// The wish for a property; [`Wish::NoPreference`] if the question states none.
    pub fn wish(&self, property: Property) -> Wish {
        self.wishes.get(&property).copied().unwrap_or(Wish::NoPreference)
    }
}

/// The workload that measures a pattern, with a rate in messages per second if the question states
/// one.
fn workload(pattern: Pattern, rate_per_s: Option<f64>, peers: u32, bytes: u64) -> Workload {
    match (pattern, rate_per_s) {
        (Pattern::RequestReply, None) => Workload::PingPong,
        (Pattern::RequestReply, Some(rate)) => {
            Workload::Requests { period_ns: (1e9 / rate).round().max(1.0) as u64 }
        }
        (Pattern::ConnectPerExchange, _) => Workload::Exchange,
        (Pattern::FanOut, _) => Workload::FanOut { receivers: peers, period_us: 0 },
        (Pattern::FanIn, _) => Workload::FanIn { senders: peers, receiver_us: 0 },
        (Pattern::Stream, None) => Workload::Throughput,
        (Pattern::Stream, Some(rate)) => {
            let per_burst = per_burst(rate);
            Workload::Paced {
                burst_bytes: bytes.max(1) * per_burst as u64,
                period_us: (per_burst * 1e6 / rate).round().max(1.0) as u64,
            }
        }
    }
}

/// Number of messages in each burst of a stream with this rate, in messages per second.
fn per_burst(rate: f64) -> f64 {
    (rate * LEAST_PERIOD_US / 1e6).ceil().max(1.0)
}
