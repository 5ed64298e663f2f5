//! The question that a flow asks, in the form of a question file.

use toml::{Table, Value};

use super::{Flow, median};
use crossway_lab::plan::{number, table};
use crossway_records::inputs::ReplayShape;
use crossway_records::sorting::SortSmall;
use crossway_records::testbed::Share;

/// Below this part of the time, exchanges have a rate of their own instead of following each other.
const IN_SUCCESSION: f64 = 0.3;
/// Sizes that are less frequent than this part of the messages are left out of a question.
const RARE: f64 = 0.002;
/// Largest number of sizes in a question; rarer ones are left out.
const MOST_SIZES: usize = 100;

impl Flow {
    /// The question about this flow: its sizes as a histogram, its pattern, its rate if it has one of its own, and the
    /// placement that was seen.
    pub fn question(&self) -> Table {
        let mut question = Table::new();
        let about = format!("Recorded: {}; {}", self.words(), self.kinship.words());
        question.insert("about".into(), about.into());
        if let Some(now) = self.mechanism() {
            question.insert("now".into(), now.into());
        }
        self.enter_place(&mut question);
        let exchanges = self.shape == ReplayShape::Exchanges;
        let pattern = if exchanges { "request-reply" } else { "stream" };
        question.insert("pattern".into(), pattern.into());
        question.insert("size_bytes".into(), self.sizes());
        if let Some(reply) = median(&self.replies).filter(|_| exchanges) {
            question.insert("reply_bytes".into(), number(reply));
        }
        let per_s = self.exchanges as f64 * 1e9 / self.span_ns.max(1) as f64;
        let own_rate = match self.shape {
            ReplayShape::Exchanges => self.concurrency().is_some_and(|open| open < IN_SUCCESSION),
            ReplayShape::Stream => true,
            ReplayShape::Bulk => false,
        };
        if own_rate {
            question
                .insert("rate_per_s".into(), Value::Float((per_s * 10.0).round().max(1.0) / 10.0));
        }
        if let [Some(a), Some(b)] = self.cpus {
            let placement = if a == b { "same-core" } else { "other-core" };
            question.insert("placement".into(), placement.into());
        }
        question
    }

    /// Enters by what the two processes can meet: whether they inherit descriptors, and which namespaces are common. If
    /// neither is known, they have nothing but an address, as programs that were started apart.
    fn enter_place(&self, question: &mut Table) {
        let apart = !self.kinship.shares_descriptors();
        if apart {
            question.insert("started".into(), "apart".into());
        }
        let Some([a, b]) = self.namespaces else { return };
        let common = [
            (a.network == b.network, Share::Network),
            (a.ipc == b.ipc, Share::Ipc),
            (a.pid == b.pid, Share::Pid),
            // Two mount namespaces may have folders in common, but the recording does not show them.
            (a.mount == b.mount, Share::Volume),
            (a.mount == b.mount, Share::Shm),
        ];
        let has_network = common[0].0;
        if common.iter().all(|(is, _)| *is) || (has_network && !apart) {
            return;
        }
        if !has_network {
            question.insert("where".into(), "other-container".into());
        }
        let shares: Vec<Value> =
            common.iter().filter(|(is, _)| *is).map(|(_, share)| share.name().into()).collect();
        if !shares.is_empty() {
            question.insert("shares".into(), Value::Array(shares));
        }
    }

    /// The sizes of the requests with their shares, without the rare ones.
    fn sizes(&self) -> Value {
        let all: u64 = self.requests.values().sum();
        let mut sizes: Vec<(u64, u64)> = self
            .requests
            .iter()
            .map(|(size, count)| ((*size).max(1), *count))
            .filter(|(_, count)| *count as f64 >= all as f64 * RARE)
            .collect();
        sizes.sort_small_by_key(|(_, count)| std::cmp::Reverse(*count));
        sizes.truncate(MOST_SIZES);
        match sizes[..] {
            [] => number(median(&self.requests).unwrap_or(1).max(1)),
            [(size, _)] => number(size),
            _ => Value::Array(
                sizes
                    .into_iter()
                    .map(|(size, count)| {
                        let share = Value::Float(count as f64 / all as f64);
                        table([("bytes", number(size)), ("share", share)])
                    })
                    .collect(),
            ),
        }
    }
}
