//! Parses how much is sent by how many, and the workload that measures it.

use toml::Table;

use super::Pattern;
use super::parts::float;
use crossway_lab::plan::{At, PlanError, size_bytes};
use crossway_records::inputs::Workload;

/// Maximum number of peers of a fan-in or fan-out, and of clients.
const MOST_PEERS: u64 = 64;
/// Maximum number of requests that a client has in flight.
const MOST_IN_FLIGHT: u64 = 256;
/// Shortest period between two bursts, in microseconds. The sender sleeps between bursts and begins them some 20 us late
/// or more, which would be a large part of a shorter period. At higher rates, each burst consists of several messages.
pub(super) const LEAST_PERIOD_US: f64 = 200.0;
/// Lowest rate that a question may state, messages per second; of several clients, each has at least this rate.
const LEAST_PER_S: f64 = 0.01;
/// Highest rate that a question with another pattern than fan-in or fan-out may state, messages per second.
const MOST_PER_S: f64 = 1e7;

/// How much is sent by how many.
#[derive(Clone, Copy)]
pub(super) struct Traffic {
    pub(super) peers: u32,
    pub(super) clients: u32,
    pub(super) in_flight: u32,
    pub(super) reply_bytes: Option<u64>,
    pub(super) rate_per_s: Option<f64>,
}

pub(super) fn traffic(at: &At<'_>, top: &Table, pattern: Pattern) -> Result<Traffic, PlanError> {
    let fans = matches!(pattern, Pattern::FanIn | Pattern::FanOut);
    let peers = match top.get("peers") {
        Some(value) if fans => at.key("peers").number(value, 2, MOST_PEERS)? as u32,
        Some(value) => at.key("peers").number(value, 1, 1).map(|n| n as u32).map_err(|_| {
            at.key("peers").bad(format!(
                "'{}' always has two processes; only fan-in and fan-out have a number of peers, and request-reply has \
                 clients",
                pattern.word()
            ))
        })?,
        None if fans => 4,
        None => 1,
    };
    let of_requests = |key: &str, most: u64| -> Result<u32, PlanError> {
        let Some(value) = top.get(key) else { return Ok(1) };
        let number = at.key(key).number(value, 1, most)? as u32;
        if number > 1 && pattern != Pattern::RequestReply {
            let why = format!("only pattern = \"request-reply\" has {key}; omit it");
            return Err(at.key(key).bad(why));
        }
        Ok(number)
    };
    let clients = of_requests("clients", MOST_PEERS)?;
    let in_flight = of_requests("in_flight", MOST_IN_FLIGHT)?;
    let reply_bytes = match top.get("reply_bytes") {
        Some(_) if pattern != Pattern::RequestReply => {
            return Err(at.key("reply_bytes").bad(
                "only pattern = \"request-reply\" supports a reply size of its own; omit it",
            ));
        }
        Some(value) => Some(size_bytes(&at.key("reply_bytes"), value, 1)?),
        None => None,
    };
    let rate = top.get("rate_per_s").map(|v| float(&at.key("rate_per_s"), v, LEAST_PER_S, 1e9));
    let rate_per_s = rate.transpose()?;
    if rate_per_s.is_some_and(|rate| rate < LEAST_PER_S * f64::from(clients)) {
        return Err(at.key("rate_per_s").bad(format!(
            "of {clients} clients, each must send at least {LEAST_PER_S} requests per second; state at least {} for all \
             together",
            LEAST_PER_S * f64::from(clients)
        )));
    }
    if rate_per_s.is_some() && pattern == Pattern::ConnectPerExchange {
        return Err(at
            .key("rate_per_s")
            .bad("exchanges are measured one after another; omit the rate"));
    }
    let traffic = Traffic { peers, clients, in_flight, reply_bytes, rate_per_s };
    // What runs at full speed has no schedule.
    let is_timed = traffic.workload(pattern, false, 1).facts().timed();
    if !is_timed && rate_per_s.is_some_and(|rate| rate > MOST_PER_S) {
        return Err(at.key("rate_per_s").bad(format!(
            "more than {MOST_PER_S} messages per second cannot be sent on a schedule; omit the rate to find out \
             what is possible"
        )));
    }
    Ok(traffic)
}

impl Traffic {
    /// Whether the messages are those of a fan that are sent at fixed times, because their latency
    /// is asked for.
    pub(super) fn paces(
        &self,
        pattern: Pattern,
        wants_latency: bool,
        at: &At<'_>,
    ) -> Result<bool, PlanError> {
        let towards = match pattern {
            Pattern::FanOut => "to each receiver",
            Pattern::FanIn => "from each sender",
            _ => return Ok(false),
        };
        let Some(rate) = self.rate_per_s.filter(|_| wants_latency) else { return Ok(false) };
        let most = 1e6 / LEAST_PERIOD_US;
        if rate / f64::from(self.peers) > most {
            return Err(at.key("rate_per_s").bad(format!(
                "the latency of a {} is measured for at most {most} messages per second {towards}, {} together; state a \
                 lower rate, or omit what asks for latency",
                pattern.word(),
                most * f64::from(self.peers),
            )));
        }
        Ok(true)
    }

    /// The workload that measures a pattern with messages of `bytes` bytes.
    pub(super) fn workload(&self, pattern: Pattern, paced: bool, bytes: u64) -> Workload {
        let Traffic { peers, clients, in_flight, .. } = *self;
        // The stated rate of a fan is that of all pairs of processes together.
        let period_us = match self.rate_per_s.filter(|_| paced) {
            Some(rate) => (f64::from(peers) * 1e6 / rate).round().max(1.0) as u32,
            None => 0,
        };
        match (pattern, self.rate_per_s) {
            (Pattern::RequestReply, rate) if clients > 1 || in_flight > 1 => {
                let period_ns = rate.map_or(0, |rate| period_ns(rate / f64::from(clients)));
                Workload::Clients { clients, in_flight, period_ns }
            }
            (Pattern::RequestReply, None) => Workload::PingPong,
            (Pattern::RequestReply, Some(rate)) => {
                Workload::Requests { period_ns: period_ns(rate) }
            }
            (Pattern::ConnectPerExchange, _) => Workload::Exchange,
            (Pattern::FanOut, _) => Workload::FanOut { receivers: peers, period_us },
            (Pattern::FanIn, _) => Workload::FanIn { senders: peers, receiver_us: 0, period_us },
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
}

/// The time between two requests at a rate per second, nanoseconds.
fn period_ns(rate: f64) -> u64 {
    (1e9 / rate).round().max(1.0) as u64
}

/// Number of messages in each burst of a stream with this rate, in messages per second.
pub(super) fn per_burst(rate: f64) -> f64 {
    (rate * LEAST_PERIOD_US / 1e6).ceil().max(1.0)
}
