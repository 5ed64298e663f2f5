//! Recordings made by hand, for tests.

use std::collections::BTreeSet;

use crate::recording::{
    Direction, Event, Head, Method, Operation, RecordedChannel, RecordedProcess, Recording,
};

/// A recording of channels between processes.
#[derive(Debug)]
pub struct Tape {
    /// The recording so far.
    pub recording: Recording,
}

impl Tape {
    /// An empty one of a channel with this carrier between a client, with the threads 0 and 2, and a server, with the
    /// thread 1, by a recorder with this cost for each call.
    pub fn new(carrier: &str, cost_ns: Option<u64>) -> Tape {
        Tape::of(carrier, cost_ns, &[0, 1, 0], &[[0, 1], [0, 1]])
    }

    /// An empty one of channels with this carrier: the process of each thread, and those at the first and the second end
    /// of each channel.
    pub fn of(carrier: &str, cost_ns: Option<u64>, threads: &[u32], channels: &[[u32; 2]]) -> Tape {
        let names = ["client", "server", "upstream"];
        let process = |(number, name): (u32, &&str)| RecordedProcess {
            pid: 10 * number,
            name: (*name).to_owned(),
            origin: None,
        };
        let channel = |[from, to]: &[u32; 2]| RecordedChannel {
            carrier: carrier.to_owned(),
            name: String::new(),
            from: BTreeSet::from([*from]),
            to: BTreeSet::from([*to]),
        };
        let processes = threads.iter().max().map_or(0, |most| *most as usize + 1);
        let head = Head {
            totals: Some(Default::default()),
            processes: (1..).zip(&names[..processes]).map(process).collect(),
            threads: threads.to_vec(),
            channels: channels.iter().map(channel).collect(),
            ..Head::new(
                "test",
                1,
                Method {
                    name: "test".to_owned(),
                    cost_ns_per_call: cost_ns,
                    cost_note: String::new(),
                    blind_to: String::new(),
                },
            )
        };
        Tape { recording: Recording::new(head) }
    }

    /// A call by a thread; `channel` is `None` for a wait.
    pub fn call(
        &mut self,
        thread: u32,
        operation: Operation,
        channel: Option<u32>,
        (at_ns, call_ns): (i64, u64),
        size_bytes: u64,
    ) {
        let sends = operation == Operation::Send;
        let head = &self.recording.head;
        let process = head.threads[thread as usize];
        let is_first = channel.is_none_or(|c| head.channels[c as usize].from.contains(&process));
        let direction = if sends == is_first { Direction::Forward } else { Direction::Backward };
        self.recording.events.push(Event {
            at_ns,
            thread,
            operation,
            channel,
            direction,
            size_bytes,
            call_ns,
            queued_bytes: None,
            cpu: Some(thread),
            off_cpu_ns: None,
            after: None,
        });
    }

    /// A thread sends.
    pub fn sends(&mut self, thread: u32, at_ns: i64, call_ns: u64, size: u64) {
        self.call(thread, Operation::Send, Some(0), (at_ns, call_ns), size);
    }

    /// A thread receives.
    pub fn receives(&mut self, thread: u32, at_ns: i64, call_ns: u64, size: u64) {
        self.call(thread, Operation::Receive, Some(0), (at_ns, call_ns), size);
    }

    /// A thread waits for something else.
    pub fn waits(&mut self, thread: u32, at_ns: i64, call_ns: u64) {
        self.call(thread, Operation::Wait, None, (at_ns, call_ns), 0);
    }
}

/// Exchanges of 64 and 1000 bytes, each 100 us: the server computes 5 us, the client 30 us.
pub fn exchanges(count: i64, carrier: &str, cost_ns: Option<u64>) -> Tape {
    let mut tape = Tape::new(carrier, cost_ns);
    for number in 0..count {
        let at = number * 100_000;
        // The server's receive returns before the client's send does.
        tape.receives(1, at - 30_000, 40_000, 64);
        tape.sends(0, at, 12_000, 64);
        tape.sends(1, at + 15_000, 5_000, 1000);
        tape.receives(0, at + 13_000, 57_000, 1000);
    }
    tape
}
