//! What the map answers by itself: which pairs of processes on this host pay for a network they do not need.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Carrier, Map, Party};

/// Processes that are named in the command of an answer, at most.
const PIDS_SHOWN: usize = 6;

/// A sentence about two processes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Answer {
    /// The processes at the clients' and at the servers' ends.
    pub from: Vec<u32>,
    /// As `from`, for the servers' ends.
    pub to: Vec<u32>,
    /// Number of their channels of this kind.
    pub channels: usize,
    /// The sentence.
    pub text: String,
}

/// The answers for a map, those with the most channels first.
pub fn answers(map: &Map) -> Vec<Answer> {
    let mut pairs: BTreeMap<(Carrier, &[Party], &[Party]), usize> = BTreeMap::new();
    for channel in map.channels.iter().filter(|channel| channel.moved_to.is_none()) {
        if matches!(channel.carrier, Carrier::TcpLocal | Carrier::UdpLocal | Carrier::Sctp) {
            *pairs.entry((channel.carrier, &channel.from, &channel.to)).or_default() += 1;
        }
    }
    let mut found: Vec<Answer> = pairs
        .into_iter()
        .filter_map(|((carrier, from, to), channels)| {
            let (from_pids, to_pids) = (all_pids(from)?, all_pids(to)?);
            let what = match carrier {
                Carrier::TcpLocal => "TCP, although both are on this host",
                Carrier::UdpLocal => "UDP, although both are on this host",
                _ => "SCTP, although both are on this host",
            };
            let run = match carrier {
                Carrier::TcpLocal => " `crossway run -- PROGRAM` spares most of it without a change to the programs.",
                _ => "",
            };
            let many = if channels == 1 { String::new() } else { format!(" ({channels} times)") };
            let pids: Vec<String> =
                from_pids.iter().chain(&to_pids).take(PIDS_SHOWN).map(u32::to_string).collect();
            let text = format!(
                "{} and {} talk by {what}{many}. Every message passes through the network stack of the kernel twice; a \
                 UNIX socket or shared memory does not. What would that save here? `crossway observe {} --record talk \
                 --time 5`, then `crossway advise --observed talk`.{run}",
                names(map, from),
                names(map, to),
                pids.join(" "),
            );
            Some(Answer { from: from_pids, to: to_pids, channels, text })
        })
        .collect();
    found.sort_by_key(|answer| std::cmp::Reverse(answer.channels));
    found
}

/// The numbers of the parties if all of them are processes.
fn all_pids(parties: &[Party]) -> Option<Vec<u32>> {
    parties
        .iter()
        .map(|party| match party {
            Party::Process { pid } => Some(*pid),
            _ => None,
        })
        .collect()
}

/// Names of parties, at most three in full.
fn names(map: &Map, parties: &[Party]) -> String {
    let mut names: Vec<String> = parties.iter().take(3).map(|p| map.party(p)).collect();
    if parties.len() > 3 {
        names.push(format!("{} more", parties.len() - 3));
    }
    names.join(", ")
}
