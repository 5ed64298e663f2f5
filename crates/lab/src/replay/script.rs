//! What each end of a replayed channel does, in its order.

use serde::{Deserialize, Serialize};

/// When a message is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum When {
    /// At once.
    #[serde(rename = "n")]
    Now,
    /// The program computes for so long after its previous call, nanoseconds; the role keeps its CPU busy.
    #[serde(rename = "b")]
    Busy(u64),
    /// The program waits for something else for so long after its previous call, nanoseconds; the role sleeps.
    #[serde(rename = "i")]
    Idle(u64),
    /// So long after the begin, nanoseconds, whatever happened before: open loop.
    #[serde(rename = "a")]
    At(u64),
}

/// A step of one end: one message that it sends or receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// The message's number; messages of both directions are numbered in the order in which they were sent.
    #[serde(rename = "m")]
    pub message: u32,
    /// Its size, bytes.
    #[serde(rename = "s")]
    pub size: u32,
    /// When it is sent; `None` for a message that this end receives.
    #[serde(rename = "w", default, skip_serializing_if = "Option::is_none")]
    pub when: Option<When>,
    /// Of a message that this end receives: when it is due if it has a time, nanoseconds after the begin.
    #[serde(rename = "d", default, skip_serializing_if = "Option::is_none")]
    pub due_ns: Option<u64>,
}

/// The steps of both ends.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Script {
    /// The steps of the end that sends first, and of the other one.
    pub ends: [Vec<Step>; 2],
    /// Number of messages in both directions.
    pub messages: u32,
    /// The messages with which the first end begins an exchange, ascending.
    pub begins: Vec<u32>,
    /// Duration of one round, nanoseconds: messages with a time of their own are due so much later in the next one.
    pub span_ns: u64,
}

impl Script {
    /// The largest message of each direction, bytes: of the end that sends first, and of the other one (0: none).
    pub fn largest(&self) -> [u32; 2] {
        self.ends.each_ref().map(|steps| {
            steps.iter().filter(|s| s.when.is_some()).map(|s| s.size).max().unwrap_or(0)
        })
    }

    /// The number of messages up to the next begin of an exchange, at least `messages`. Without exchanges, each message
    /// may be the last one.
    pub fn whole_exchanges(&self, messages: u64) -> u64 {
        let all = u64::from(self.messages).max(1);
        let (rounds, part) = (messages / all, messages % all);
        let next = self.begins.partition_point(|begin| u64::from(*begin) < part);
        let part = match self.begins.get(next) {
            Some(begin) => u64::from(*begin),
            None if self.begins.is_empty() => part,
            None => all,
        };
        rounds * all + part
    }

    /// Number of exchanges among the first `messages` messages.
    pub fn exchanges_in(&self, messages: u64) -> u64 {
        let all = u64::from(self.messages).max(1);
        let part = self.begins.partition_point(|begin| u64::from(*begin) < messages % all);
        messages / all * self.begins.len() as u64 + part as u64
    }

    /// CRC-32 of the steps.
    pub(super) fn fingerprint(&self) -> u32 {
        let mut hash = crc32fast::Hasher::new();
        for step in self.ends.iter().flatten() {
            let (kind, ns) = match step.when {
                None => (0u8, 0),
                Some(When::Now) => (1, 0),
                Some(When::Busy(ns)) => (2, ns),
                Some(When::Idle(ns)) => (3, ns),
                Some(When::At(ns)) => (4, ns),
            };
            hash.update(&step.message.to_le_bytes());
            hash.update(&step.size.to_le_bytes());
            hash.update(&[kind]);
            hash.update(&ns.to_le_bytes());
        }
        hash.finalize()
    }
}
