//! Options of `crossway advise` that describe the use case; each sets a key of the question.

use anyhow::{Context, bail};
use crossway_advise::property::Property;
use crossway_lab::plan;
use toml::{Table, Value};

use crate::args;

/// The keys of a question file as command line options.
#[derive(clap::Args)]
#[command(next_help_heading = "Question")]
pub(super) struct Asked {
    /// Communication pattern: request-reply, stream, fan-out, fan-in or connect-per-exchange
    #[arg(long)]
    pattern: Option<String>,
    /// Message size in bytes or with a unit, e.g. 64 or 4KiB
    #[arg(long, value_name = "BYTES")]
    pub(super) size: Option<String>,
    /// Reply size [default: the message size]
    #[arg(long, value_name = "BYTES")]
    reply: Option<String>,
    /// Messages per second, of all clients, senders or receivers together [default: as fast as
    /// possible]
    #[arg(long, value_name = "PER_S", value_parser = args::number)]
    rate: Option<f64>,
    /// Number of peers of a fan-in or fan-out
    #[arg(long)]
    peers: Option<i64>,
    /// Number of clients that ask one server at the same time [default: 1]
    #[arg(long)]
    clients: Option<i64>,
    /// Number of requests that each client has in flight; with --rate, the highest number [default:
    /// 1]
    #[arg(long, value_name = "N")]
    in_flight: Option<i64>,
    /// Placement of the two ends on CPUs: other-core, same-core, smt-sibling, shared-cache, cross-socket or unpinned
    #[arg(long)]
    placement: Option<String>,
    /// Background load: number of CPU workers of stress-ng
    #[arg(long, value_name = "WORKERS")]
    load_cpu: Option<i64>,
    /// Location of the ends: same-host, other-container or other-host
    #[arg(long = "where", value_name = "PLACE")]
    site: Option<String>,
    /// Command prefixes of the two hosts, as for `crossway measure --hosts` [default: two network namespaces of this
    /// machine]
    #[arg(long, value_name = "PREFIX,PREFIX")]
    hosts: Option<String>,
    /// How the two programs are started: together (one by the other, or both by one program, from which they can inherit
    /// descriptors) or apart [default: together]
    #[arg(long, value_name = "HOW")]
    started: Option<String>,
    /// What two containers share, separated by commas: volume, shm, network, ipc, pid [default: only the kernel], or two
    /// programs that are started apart [default: all of these]
    #[arg(long, value_name = "SHARE", value_delimiter = ',')]
    shares: Vec<String>,
    /// What to optimise: latency, throughput or cpu
    #[arg(long)]
    optimise: Option<String>,
    /// Goal: maximum median latency in microseconds
    #[arg(long, value_name = "US", value_parser = args::number)]
    p50_us: Option<f64>,
    /// Goal: maximum 90th percentile of latency in microseconds
    #[arg(long, value_name = "US", value_parser = args::number)]
    p90_us: Option<f64>,
    /// Goal: maximum 99th percentile of latency in microseconds
    #[arg(long, value_name = "US", value_parser = args::number)]
    p99_us: Option<f64>,
    /// Goal: maximum 99.9th percentile of latency in microseconds
    #[arg(long, value_name = "US", value_parser = args::number)]
    p999_us: Option<f64>,
    /// Goal: maximum 99.99th percentile of latency in microseconds
    #[arg(long, value_name = "US", value_parser = args::number)]
    p9999_us: Option<f64>,
    /// Goal: maximum latency in microseconds
    #[arg(long, value_name = "US", value_parser = args::number)]
    max_us: Option<f64>,
    /// Goal: maximum memory for the channel's buffers, e.g. 256KiB
    #[arg(long, value_name = "BYTES")]
    memory: Option<String>,
    /// Goal: maximum CPU time of both ends together, in percent of one CPU
    #[arg(long, value_name = "PERCENT", value_parser = args::number)]
    cpu_percent: Option<f64>,
    /// Languages of the client and of the server, e.g. python,c: the mechanism must be usable from all of them
    #[arg(long, value_name = "LANGUAGE", value_delimiter = ',')]
    languages: Vec<String>,
    /// Properties that the mechanism must have, separated by commas: order, delivery, boundaries, back-pressure,
    /// send-deadline, crash-survival, crash-detection, isolation, clean-up, spinning, root, kernel-module, pollable,
    /// zero-copy, crosses-hosts, unprivileged-container, private-dev-shm; some take a value: language=c, licence=MIT,
    /// crash-detection=100ms
    #[arg(long, value_name = "PROPERTY", value_delimiter = ',')]
    require: Vec<String>,
    /// Properties to prefer among otherwise equal candidates
    #[arg(long, value_name = "PROPERTY", value_delimiter = ',')]
    prefer: Vec<String>,
    /// Properties that do not matter; with `spinning`, mechanisms that spin are candidates, too
    #[arg(long, value_name = "PROPERTY", value_delimiter = ',')]
    no_preference: Vec<String>,
    /// Properties to avoid among otherwise equal candidates
    #[arg(long, value_name = "PROPERTY", value_delimiter = ',')]
    avoid: Vec<String>,
    /// Properties that the mechanism must not have
    #[arg(long, value_name = "PROPERTY", value_delimiter = ',')]
    prohibit: Vec<String>,
}

impl Asked {
    /// Overrides the keys of the question file with those given as options.
    pub(super) fn enter(&self, table: &mut Table) -> anyhow::Result<()> {
        let texts = [
            ("pattern", &self.pattern),
            ("placement", &self.placement),
            ("where", &self.site),
            ("hosts", &self.hosts),
            ("started", &self.started),
            ("optimise", &self.optimise),
            ("size_bytes", &self.size),
            ("reply_bytes", &self.reply),
        ];
        for (key, value) in texts {
            if let Some(text) = value {
                table.insert(key.into(), Value::String(text.clone()));
            }
        }
        // What a recording's processes have in common does not limit programs that inherit descriptors.
        if self.started.as_deref() == Some("together") && !table.contains_key("where") {
            table.remove("shares");
        }
        if let Some(rate) = self.rate {
            table.insert("rate_per_s".into(), Value::Float(rate));
        }
        let counts =
            [("peers", self.peers), ("clients", self.clients), ("in_flight", self.in_flight)];
        for (key, value) in counts {
            if let Some(value) = value {
                table.insert(key.into(), Value::Integer(value));
            }
        }
        if let Some(workers) = self.load_cpu {
            table.insert("load".into(), plan::table([("cpu", Value::Integer(workers))]));
        }
        if !self.shares.is_empty() {
            let words = self.shares.iter().map(|word| word.clone().into()).collect();
            table.insert("shares".into(), Value::Array(words));
        }
        let goals = [
            ("p50_us", self.p50_us),
            ("p90_us", self.p90_us),
            ("p99_us", self.p99_us),
            ("p999_us", self.p999_us),
            ("p9999_us", self.p9999_us),
            ("max_us", self.max_us),
            ("cpu_percent", self.cpu_percent),
        ];
        for (key, value) in goals {
            if let Some(value) = value {
                below(table, "goal")?.insert(key.into(), Value::Float(value));
            }
        }
        if let Some(bytes) = &self.memory {
            below(table, "goal")?.insert("memory_bytes".into(), Value::String(bytes.clone()));
        }
        if !self.languages.is_empty() {
            let all: Vec<Value> = self.languages.iter().map(|l| l.clone().into()).collect();
            let wish = plan::table([("wish", "require".into()), ("all_of", all.into())]);
            let name = Property::Language.name();
            let properties = below(table, "properties")?;
            properties.insert(name.to_owned(), wish);
        }
        let wishes = [
            ("require", &self.require),
            ("prefer", &self.prefer),
            ("no-preference", &self.no_preference),
            ("avoid", &self.avoid),
            ("prohibit", &self.prohibit),
        ];
        let mut stated: Vec<(Property, &str)> = Vec::new();
        for (wish, words) in wishes {
            for word in words {
                let (property, value) = parsed(wish, word)?;
                let name = property.name();
                if property == Property::Language && !self.languages.is_empty() {
                    bail!(
                        "--languages and --{wish} {word} state the same property; keep one of them"
                    );
                }
                if let Some((_, other)) = stated.iter().find(|(p, w)| *p == property && *w != wish)
                {
                    bail!("--{other} {name} contradicts --{wish} {name}; keep one of them");
                }
                let again = stated.contains(&(property, wish));
                stated.push((property, wish));
                let properties = below(table, "properties")?;
                let Some(value) = value else {
                    properties.insert(name.to_owned(), Value::String(wish.to_owned()));
                    continue;
                };
                let mut inner = Table::new();
                inner.insert("wish".to_owned(), wish.into());
                if property == Property::CrashDetection {
                    let ms = args::seconds(value)
                        .map_err(|why| anyhow::anyhow!("--{wish} {word}: {why}"))?
                        * 1e3;
                    inner.insert("within_ms".to_owned(), Value::Float(ms));
                } else {
                    // Given twice, the property may have either value.
                    let former = properties.get(name).and_then(|v| v.get("any_of"));
                    let former = former.filter(|_| again).and_then(Value::as_array);
                    let mut any_of = former.cloned().unwrap_or_default();
                    any_of.push(value.into());
                    inner.insert("any_of".to_owned(), Value::Array(any_of));
                }
                properties.insert(name.to_owned(), Value::Table(inner));
            }
        }
        Ok(())
    }
}

/// Parses a property and its value, if it has one: `order`, `language=c`, `crash-detection=100ms`. Error messages name
/// the option `--wish`.
fn parsed<'w>(wish: &str, word: &'w str) -> anyhow::Result<(Property, Option<&'w str>)> {
    let (name, value) = match word.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (word, None),
    };
    let Some(property) = Property::named(name) else {
        let all: Vec<_> = Property::ALL.iter().map(|p| p.name()).collect();
        bail!("--{wish}: unknown property '{name}'; allowed: {}", all.join(", "));
    };
    match (property.has_values(), property == Property::CrashDetection, value) {
        (true, _, None | Some("")) => bail!(
            "--{wish} {name} needs a value, e.g. {name}={}",
            match property {
                Property::Language => "c",
                _ => "MIT",
            }
        ),
        (false, false, Some(_)) => bail!("--{wish} {name} takes no value"),
        _ => Ok((property, value)),
    }
}

fn below<'t>(table: &'t mut Table, key: &str) -> anyhow::Result<&'t mut Table> {
    table
        .entry(key)
        .or_insert_with(|| Value::Table(Table::new()))
        .as_table_mut()
        .with_context(|| format!("'{key}' in the question's file is not a table"))
}
