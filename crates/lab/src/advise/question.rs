//! The requirements that `crossway advise` answers: a TOML file, or the same keys from the command line.
//!
//! docs/ADVISE.md explains every key. An unknown key or value is an error that names the file, the key and what is allowed.

use std::collections::BTreeMap;

use toml::{Table, Value};

use super::property::{Property, Wish};
use crate::inputs::{Load, Placement, Workload};
use crate::plan::{At, PlacementAxis, PlanError, load, placement, size_bytes};

/// Most different message sizes in one question; each is measured for every candidate.
const MOST_SIZES: usize = 8;
/// Most peers of a fan-in or fan-out.
const MOST_PEERS: u64 = 64;
/// Shortest period between two bursts, in microseconds, that a sender can keep by sleeping; faster rates send several
/// messages per burst.
const LEAST_PERIOD_US: f64 = 200.0;

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
    "optimise",
    "goal",
    "properties",
    "language",
];

/// Who talks to whom, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// One process asks and waits for the reply.
    RequestReply,
    /// Messages flow one way.
    Stream,
    /// One sender, several receivers.
    FanOut,
    /// Several senders, one receiver.
    FanIn,
    /// Connect, ask, get the reply, close.
    ConnectPerExchange,
}

impl Pattern {
    const ALL: [(&'static str, Pattern); 5] = [
        ("request-reply", Pattern::RequestReply),
        ("stream", Pattern::Stream),
        ("fan-out", Pattern::FanOut),
        ("fan-in", Pattern::FanIn),
        ("connect-per-exchange", Pattern::ConnectPerExchange),
    ];

    /// The word for it in questions.
    pub fn word(self) -> &'static str {
        Self::ALL.iter().find(|(_, p)| *p == self).map_or("", |(word, _)| word)
    }
}

/// Where the other process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Site {
    /// On this host.
    SameHost,
    /// In another container of this host's kernel.
    OtherContainer,
    /// On another host.
    OtherHost,
}

impl Site {
    const ALL: [(&'static str, Site); 3] = [
        ("same-host", Site::SameHost),
        ("other-container", Site::OtherContainer),
        ("other-host", Site::OtherHost),
    ];

    /// The word for it in questions.
    pub fn word(self) -> &'static str {
        Self::ALL.iter().find(|(_, s)| *s == self).map_or("", |(word, _)| word)
    }
}

/// What is made as small as possible among the candidates that meet every goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Objective {
    /// Latency at the goal's percentile, or the median.
    Latency,
    /// Time per message at full speed.
    Throughput,
    /// CPU time per message, of both ends.
    Cpu,
}

impl Objective {
    const ALL: [(&'static str, Objective); 3] = [
        ("latency", Objective::Latency),
        ("throughput", Objective::Throughput),
        ("cpu", Objective::Cpu),
    ];

    /// The word for it in questions.
    pub fn word(self) -> &'static str {
        Self::ALL.iter().find(|(_, o)| *o == self).map_or("", |(word, _)| word)
    }
}

/// A percentile of a latency distribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Percentile {
    /// The median.
    P50,
    /// 90 %.
    P90,
    /// 99 %.
    P99,
    /// 99.9 %.
    P999,
    /// The largest.
    Max,
}

impl Percentile {
    const ALL: [(&'static str, Percentile); 5] = [
        ("p50_us", Percentile::P50),
        ("p90_us", Percentile::P90),
        ("p99_us", Percentile::P99),
        ("p999_us", Percentile::P999),
        ("max_us", Percentile::Max),
    ];

    /// As tables show it.
    pub fn name(self) -> &'static str {
        match self {
            Percentile::P50 => "p50",
            Percentile::P90 => "p90",
            Percentile::P99 => "p99",
            Percentile::P999 => "p99.9",
            Percentile::Max => "max",
        }
    }
}

/// What must be kept.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Goals {
    /// Largest latency in microseconds, by percentile.
    pub latency_us: Vec<(Percentile, f64)>,
    /// Largest CPU time of both ends together, in percent of one CPU.
    pub cpu_percent: Option<f64>,
    /// Largest memory in bytes. No record holds the memory of a mechanism, so this goal is reported as unanswered.
    pub memory_bytes: Option<u64>,
}

/// A size and how often it occurs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share {
    /// Bytes of one message.
    pub bytes: u64,
    /// Its share of all messages; all shares add up to 1.
    pub share: f64,
}

/// Requirements, parsed and checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    /// The file's name without extension, or `command-line`.
    pub name: String,
    /// One line on the case.
    pub about: Option<String>,
    /// Who talks to whom.
    pub pattern: Pattern,
    /// Sizes of messages (of requests, where there are replies), the most frequent first.
    pub sizes: Vec<Share>,
    /// Size of replies where it differs.
    pub reply_bytes: Option<u64>,
    /// Messages per second that are offered; `None`: as fast as possible.
    pub rate_per_s: Option<f64>,
    /// Number of peers of a fan-in or fan-out.
    pub peers: u32,
    /// Where the processes run.
    pub placement: Placement,
    /// Other work on the machine.
    pub load: Load,
    /// Where the peer is.
    pub site: Site,
    /// Command prefixes of the two hosts, as `crossway measure --hosts` takes them; `None`: two network namespaces.
    pub hosts: Option<String>,
    /// What is optimised.
    pub objective: Objective,
    /// What must be kept.
    pub goals: Goals,
    /// What the mechanism must, should or must not have.
    pub wishes: BTreeMap<Property, Wish>,
    /// A crash of the peer must be detected within this time, in milliseconds.
    pub detect_within_ms: Option<f64>,
    /// Language of the programs.
    pub language: Option<String>,
    /// The text as parsed, kept beside what is measured for it.
    pub text: String,
}

impl Question {
    /// Parses a question; `file` is how errors call it.
    ///
    /// # Errors
    /// The text is no TOML, a key is unknown or missing, or holds what it may not.
    pub fn parse(name: &str, file: &str, text: &str) -> Result<Question, PlanError> {
        let top: Table = toml::from_str(text).map_err(|e| PlanError::NotToml {
            file: file.to_owned(),
            why: e.to_string().trim_end().replace('\n', "\n  "),
        })?;
        Self::from_table(name, file, &top)
    }

    /// The same from a table, e.g. a file's with the command line's keys over it.
    ///
    /// # Errors
    /// As [`Question::parse`].
    pub fn from_table(name: &str, file: &str, top: &Table) -> Result<Question, PlanError> {
        let at = At::top(file);
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
                    "'{}' has two processes; peers belong to fan-in and fan-out",
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
                return Err(at
                    .key("reply_bytes")
                    .bad("only pattern = \"request-reply\" has replies of a size of their own"));
            }
            Some(value) => Some(size_bytes(&at.key("reply_bytes"), value, 1)?),
            None => None,
        };
        let rate_per_s = number("rate_per_s", 0.01, 1e9)?;
        if rate_per_s.is_some() && pattern == Pattern::ConnectPerExchange {
            return Err(at
                .key("rate_per_s")
                .bad("exchanges are measured one after the other; leave the rate out"));
        }
        let site = match top.get("where") {
            Some(value) => word(&at.key("where"), value, &Site::ALL)?,
            None => Site::SameHost,
        };
        let hosts = text_of("hosts")?.map(str::to_owned);
        if hosts.is_some() && site != Site::OtherHost {
            return Err(at.key("hosts").bad("hosts belong to where = \"other-host\""));
        }
        let goals = match top.get("goal") {
            Some(value) => goals(&at.key("goal"), value)?,
            None => Goals::default(),
        };
        let (wishes, detect_within_ms) = match top.get("properties") {
            Some(value) => wishes(&at.key("properties"), value)?,
            None => (BTreeMap::new(), None),
        };
        let objective = match top.get("optimise") {
            Some(value) => word(&at.key("optimise"), value, &Objective::ALL)?,
            None => usual_objective(pattern, rate_per_s, &goals),
        };
        // A stream at full speed and the fans are timed as a whole, so they have no latency per message.
        let untimed = fans || (pattern == Pattern::Stream && rate_per_s.is_none());
        if untimed && (objective == Objective::Latency || !goals.latency_us.is_empty()) {
            let remedy =
                if fans { "set optimise = \"throughput\" or \"cpu\"" } else { "state rate_per_s" };
            return Err(at.key("goal").bad(format!(
                "latency cannot be judged for pattern = \"{}\" at full speed: {remedy}",
                pattern.word()
            )));
        }
        Ok(Question {
            name: name.to_owned(),
            about: text_of("about")?.map(str::to_owned),
            pattern,
            sizes: match top.get("size_bytes") {
                Some(value) => sizes(&at.key("size_bytes"), value)?,
                None => {
                    return Err(at.key("size_bytes").bad("missing; how large are the messages?"));
                }
            },
            reply_bytes,
            rate_per_s,
            peers,
            placement: match top.get("placement") {
                Some(value) => match placement(&at.key("placement"), value)? {
                    PlacementAxis::One(placement) => placement,
                    PlacementAxis::EveryPair | PlacementAxis::EveryPairAndSelf => {
                        return Err(at.key("placement").bad("a question has one placement"));
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
            load: top
                .get("load")
                .map(|v| load(&at.key("load"), v))
                .transpose()?
                .unwrap_or_default(),
            site,
            hosts,
            objective,
            goals,
            wishes,
            detect_within_ms,
            language: text_of("language")?.map(str::to_owned),
            text: top.to_string(),
        })
    }

    /// The workload that asks it, for messages of one size.
    pub fn workload(&self, bytes: u64) -> Workload {
        match self.pattern {
            Pattern::RequestReply => Workload::PingPong,
            Pattern::ConnectPerExchange => Workload::Exchange,
            Pattern::FanOut => Workload::FanOut { receivers: self.peers },
            Pattern::FanIn => Workload::FanIn { senders: self.peers, receiver_us: 0 },
            Pattern::Stream => match self.rate_per_s {
                None => Workload::Throughput,
                Some(rate) => {
                    let per_burst = (rate * LEAST_PERIOD_US / 1e6).ceil().max(1.0);
                    Workload::Paced {
                        burst_bytes: bytes.max(1) * per_burst as u64,
                        period_us: (per_burst * 1e6 / rate).round().max(1.0) as u64,
                    }
                }
            },
        }
    }

    /// The percentile that latency is judged by: the strictest goal's, else the median.
    pub fn percentile(&self) -> Percentile {
        self.goals.latency_us.iter().map(|(p, _)| *p).max().unwrap_or(Percentile::P50)
    }

    /// What is wished of a property.
    pub fn wish(&self, property: Property) -> Wish {
        self.wishes.get(&property).copied().unwrap_or(Wish::NoPreference)
    }

    /// The question in one sentence.
    pub fn sentence(&self) -> String {
        let size = |bytes: u64| match bytes {
            b if b >= 1 << 20 && b % (1 << 20) == 0 => format!("{} MiB", b >> 20),
            b if b >= 1 << 10 && b % (1 << 10) == 0 => format!("{} KiB", b >> 10),
            b => format!("{b} B"),
        };
        let sizes: Vec<String> = self
            .sizes
            .iter()
            .map(|s| {
                if self.sizes.len() == 1 {
                    size(s.bytes)
                } else {
                    format!("{} ({:.0} %)", size(s.bytes), s.share * 100.0)
                }
            })
            .collect();
        let mut text = match self.pattern {
            Pattern::RequestReply => {
                let reply = self
                    .reply_bytes
                    .map_or_else(String::new, |b| format!(", replies of {}", size(b)));
                format!("requests of {}{reply}", sizes.join(", "))
            }
            Pattern::Stream => format!("a stream of {} messages", sizes.join(", ")),
            Pattern::FanOut => {
                format!("one sender of {} messages to {} receivers", sizes.join(", "), self.peers)
            }
            Pattern::FanIn => {
                format!("{} senders of {} messages to one receiver", self.peers, sizes.join(", "))
            }
            Pattern::ConnectPerExchange => {
                format!("a connection for each exchange of {}", sizes.join(", "))
            }
        };
        text += &match self.rate_per_s {
            Some(rate) => format!(", {rate} per second"),
            None => ", as fast as possible".to_owned(),
        };
        text += &format!(", {}", self.site.word());
        if self.site != Site::OtherHost {
            text += &format!(", {}", self.placement.word());
        }
        text += &format!(
            ", {}",
            match crate::cases::load_name(&self.load) {
                idle if idle == "idle" => "machine idle".to_owned(),
                load => format!("load {load}"),
            }
        );
        text
    }
}

/// With a goal the speed is given, and what is left to save is CPU time.
fn usual_objective(pattern: Pattern, rate: Option<f64>, goals: &Goals) -> Objective {
    match pattern {
        _ if !goals.latency_us.is_empty() => Objective::Cpu,
        Pattern::RequestReply | Pattern::ConnectPerExchange => Objective::Latency,
        Pattern::Stream if rate.is_some() => Objective::Latency,
        _ if rate.is_some() => Objective::Cpu,
        _ => Objective::Throughput,
    }
}

fn word<T: Copy>(at: &At<'_>, value: &Value, all: &[(&'static str, T)]) -> Result<T, PlanError> {
    let text = at.text(value)?;
    all.iter().find(|(name, _)| *name == text).map(|(_, value)| *value).ok_or_else(|| {
        let allowed: Vec<_> = all.iter().map(|(name, _)| *name).collect();
        at.bad(format!("unknown value '{text}'; allowed: {}", allowed.join(", ")))
    })
}

fn float(at: &At<'_>, value: &Value, least: f64, most: f64) -> Result<f64, PlanError> {
    value
        .as_float()
        .or_else(|| value.as_integer().map(|n| n as f64))
        .filter(|n| (least..=most).contains(n))
        .ok_or_else(|| at.bad(format!("a number from {least} to {most} is needed")))
}

/// One size, or a mix of `{ bytes, share }`.
fn sizes(at: &At<'_>, value: &Value) -> Result<Vec<Share>, PlanError> {
    let Value::Array(parts) = value else {
        return Ok(vec![Share { bytes: size_bytes(at, value, 1)?, share: 1.0 }]);
    };
    if parts.is_empty() || parts.len() > MOST_SIZES {
        return Err(at.bad(format!("a mix has 1 to {MOST_SIZES} sizes")));
    }
    let mut shares = Vec::new();
    for part in parts {
        let table = part.as_table().ok_or_else(|| at.bad("a mix is a list of { bytes, share }"))?;
        at.only(table, &["bytes", "share"])?;
        let (Some(bytes), Some(share)) = (table.get("bytes"), table.get("share")) else {
            return Err(at.bad("each part of a mix needs bytes and share"));
        };
        shares.push(Share {
            bytes: size_bytes(&at.key("bytes"), bytes, 1)?,
            share: float(&at.key("share"), share, 1e-6, 1e9)?,
        });
    }
    let total: f64 = shares.iter().map(|s| s.share).sum();
    shares.iter_mut().for_each(|s| s.share /= total);
    shares.sort_by(|a, b| b.share.total_cmp(&a.share));
    Ok(shares)
}

fn goals(at: &At<'_>, value: &Value) -> Result<Goals, PlanError> {
    let table = at.table(value)?;
    let mut allowed: Vec<&str> = Percentile::ALL.iter().map(|(key, _)| *key).collect();
    allowed.extend(["cpu_percent", "memory_bytes"]);
    at.only(table, &allowed)?;
    let mut goals = Goals::default();
    for (key, percentile) in Percentile::ALL {
        if let Some(value) = table.get(key) {
            goals.latency_us.push((percentile, float(&at.key(key), value, 0.001, 1e9)?));
        }
    }
    let mut former: Option<(Percentile, f64)> = None;
    for &(percentile, us) in &goals.latency_us {
        if let Some((lower, most)) = former.filter(|(_, most)| us < *most) {
            return Err(at.bad(format!(
                "{} of {us} us contradicts {} of {most} us, which is never larger: relax the first or tighten the second",
                percentile.name(),
                lower.name()
            )));
        }
        former = Some((percentile, us));
    }
    goals.cpu_percent = table
        .get("cpu_percent")
        .map(|v| float(&at.key("cpu_percent"), v, 0.001, 1e5))
        .transpose()?;
    goals.memory_bytes =
        table.get("memory_bytes").map(|v| size_bytes(&at.key("memory_bytes"), v, 1)).transpose()?;
    Ok(goals)
}

/// `property = "require"`, and `crash-detection = { wish = "require", within_ms = 100 }`.
fn wishes(
    at: &At<'_>,
    value: &Value,
) -> Result<(BTreeMap<Property, Wish>, Option<f64>), PlanError> {
    let table = at.table(value)?;
    let names: Vec<&str> = Property::ALL.iter().map(|p| p.name()).collect();
    at.only(table, &names)?;
    let all_wishes = Wish::ALL.map(|wish| (wish.word(), wish));
    let mut wishes = BTreeMap::new();
    let mut within = None;
    for property in Property::ALL {
        let Some(value) = table.get(property.name()) else { continue };
        let here = at.key(property.name());
        let wish = match value.as_table().filter(|_| property == Property::CrashDetection) {
            Some(inner) => {
                here.only(inner, &["wish", "within_ms"])?;
                let (Some(wish), Some(ms)) = (inner.get("wish"), inner.get("within_ms")) else {
                    return Err(here.bad("{ wish, within_ms } needs both"));
                };
                within = Some(float(&here.key("within_ms"), ms, 0.001, 1e7)?);
                word(&here.key("wish"), wish, &all_wishes)?
            }
            None => word(&here, value, &all_wishes)?,
        };
        wishes.insert(property, wish);
    }
    Ok((wishes, within))
}
