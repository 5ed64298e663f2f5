//! The sizes of a channel's buffers in a trial's record.

use std::collections::BTreeMap;

use serde::Deserialize;

/// Sizes of a channel's buffers, as reported by the system when the channel was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
pub(super) struct Buffers {
    so_sndbuf_bytes: Option<i64>,
    pub(super) so_rcvbuf_bytes: Option<i64>,
    pipe_bytes: Option<i64>,
    pool_bytes: Option<i64>,
    ring_bytes: Option<i64>,
    queue_bytes: Option<i64>,
    queue_messages: Option<i64>,
    max_message_bytes: Option<i64>,
}

impl Buffers {
    pub(super) fn of(facts: &BTreeMap<String, i64>) -> Buffers {
        let fact = |name| facts.get(name).copied();
        Buffers {
            so_sndbuf_bytes: fact("so_sndbuf_bytes"),
            so_rcvbuf_bytes: fact("so_rcvbuf_bytes"),
            pipe_bytes: fact("pipe_bytes"),
            pool_bytes: fact("pool_bytes"),
            ring_bytes: fact("ring_bytes"),
            queue_bytes: fact("queue_bytes"),
            queue_messages: fact("queue_messages"),
            max_message_bytes: fact("max_message_bytes"),
        }
    }

    /// The total size of the buffers in bytes, both directions together; `None` if none is known.
    pub(super) fn both_ways(&self) -> Option<f64> {
        let messages = self.queue_messages.zip(self.max_message_bytes).map(|(n, bytes)| n * bytes);
        let one_way = [
            self.so_sndbuf_bytes,
            self.so_rcvbuf_bytes,
            self.pipe_bytes,
            self.pool_bytes,
            self.ring_bytes,
            self.queue_bytes,
            messages,
        ];
        let known: Vec<i64> = one_way.into_iter().flatten().collect();
        (!known.is_empty()).then(|| 2.0 * known.iter().sum::<i64>() as f64)
    }
}
