//! What each role of a replay does, in its order.

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

/// What a step is in an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Exchange {
    /// The send with which it begins.
    #[serde(rename = "b")]
    Begins,
    /// The receive with which it ends.
    #[serde(rename = "e")]
    Ends,
}

/// A step of one role: one message that it sends or receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// The message's number; messages of all channels and directions are numbered in the order in which they were sent.
    #[serde(rename = "m")]
    pub message: u32,
    /// Its size, bytes.
    #[serde(rename = "s")]
    pub size: u32,
    /// The channel: its number in the script; in what a role gets, its number at this role.
    #[serde(rename = "c", default, skip_serializing_if = "is_zero")]
    pub channel: u16,
    /// When it is sent; `None` for a message that this role receives.
    #[serde(rename = "w", default, skip_serializing_if = "Option::is_none")]
    pub when: Option<When>,
    /// Of a message that this role receives: when it is due if it has a time, nanoseconds after the begin.
    #[serde(rename = "d", default, skip_serializing_if = "Option::is_none")]
    pub due_ns: Option<u64>,
    /// Of a message that this role receives: whether the program waited in poll, epoll or select before; the role polls.
    #[serde(rename = "p", default, skip_serializing_if = "std::ops::Not::not")]
    pub polled: bool,
    /// What it is in an exchange that this role begins.
    #[serde(rename = "x", default, skip_serializing_if = "Option::is_none")]
    pub exchange: Option<Exchange>,
}

fn is_zero(number: &u16) -> bool {
    *number == 0
}

/// The steps of all roles.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Script {
    /// The steps of each role, beginning with the one that sends first.
    pub roles: Vec<Vec<Step>>,
    /// The two roles of each channel: the one that connects, and the one that listens, whose number is higher. In the
    /// order in which they are opened: a role connects to others before it accepts others.
    pub channels: Vec<[u16; 2]>,
    /// The conversation of each channel: the first channel that belongs to it.
    pub conversations: Vec<u16>,
    /// Number of messages on all channels, in both directions.
    pub messages: u32,
    /// The messages with which an exchange begins, ascending.
    pub begins: Vec<u32>,
    /// Duration of one round, nanoseconds: messages with a time of their own are due so much later in the next one.
    pub span_ns: u64,
}

/// What one role gets of a script.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoleScript {
    /// Its steps.
    pub steps: Vec<Step>,
    /// The number in the script of each of its channels, in the order in which it opens them.
    pub channels: Vec<u16>,
    /// Number of channels of all roles.
    pub channels_of_all: u16,
    /// The conversation of each of its channels: the first one that belongs to it, by its number at this role.
    pub conversations: Vec<u16>,
    /// The largest message of the script, bytes.
    pub largest: u32,
    /// Number of messages of all roles.
    pub messages: u32,
    /// Duration of one round, nanoseconds.
    pub span_ns: u64,
}

impl Script {
    /// What a role gets.
    pub fn of_role(&self, role: usize) -> RoleScript {
        let channels: Vec<u16> = (0..)
            .zip(&self.channels)
            .filter(|(_, roles)| roles.iter().any(|of| usize::from(*of) == role))
            .map(|(channel, _)| channel)
            .collect();
        let own = |number: u16| channels.partition_point(|channel| *channel < number) as u16;
        let steps =
            self.roles[role].iter().map(|step| Step { channel: own(step.channel), ..*step });
        RoleScript {
            steps: steps.collect(),
            conversations: channels
                .iter()
                .map(|channel| own(self.conversations[usize::from(*channel)]))
                .collect(),
            largest: self.roles.iter().flatten().map(|step| step.size).max().unwrap_or(0),
            messages: self.messages,
            span_ns: self.span_ns,
            channels_of_all: self.channels.len() as u16,
            channels,
        }
    }

    /// The roles that begin exchanges and serve nobody else's: the time of these exchanges is what a user waits for.
    pub fn clients(&self) -> Vec<bool> {
        let mut clients = vec![false; self.roles.len()];
        let mut serves = clients.clone();
        for (role, step) in self.roles.iter().enumerate().flat_map(|(role, steps)| {
            steps.iter().filter(|s| s.exchange.is_some()).map(move |step| (role, step))
        }) {
            clients[role] = true;
            serves[usize::from(self.channels[usize::from(step.channel)][1])] = true;
        }
        clients.iter().zip(serves).map(|(begins, serves)| *begins && !serves).collect()
    }

    /// The largest message of each direction, bytes: of the roles that connect, and of those that listen (0: none).
    pub fn largest(&self) -> [u32; 2] {
        let mut largest = [0; 2];
        for (role, step) in self.roles.iter().zip(0_u16..).flat_map(|(steps, role)| {
            steps.iter().filter(|s| s.when.is_some()).map(move |step| (role, step))
        }) {
            let way = usize::from(self.channels[usize::from(step.channel)][0] != role);
            largest[way] = step.size.max(largest[way]);
        }
        largest
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

    /// CRC-32 of the steps.
    pub fn fingerprint(&self) -> u32 {
        let mut hash = crc32fast::Hasher::new();
        let several = self.channels.len() > 1;
        for (role, step) in (0_u16..)
            .zip(&self.roles)
            .flat_map(|(role, steps)| steps.iter().map(move |s| (role, s)))
        {
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
            if step.polled {
                hash.update(b"p");
            }
            if several {
                hash.update(&role.to_le_bytes());
                hash.update(&step.channel.to_le_bytes());
            }
        }
        hash.finalize()
    }
}

impl RoleScript {
    /// How often a step is performed among the first `messages` messages, which may be several rounds.
    pub fn times(&self, step: &Step, messages: u64) -> u64 {
        let all = u64::from(self.messages).max(1);
        messages / all + u64::from(u64::from(step.message) < messages % all)
    }
}
