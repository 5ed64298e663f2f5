//! Turns calls into events: gives threads and channels their indices, finds out what each send waited for, and follows
//! the queues.

use std::collections::HashMap;

use super::End;
use crate::recording::{
    Direction, Event, Lost, Operation, Origin, RecordedChannel, RecordedProcess, Recorder,
    RecordingError, ThreadCpu, Totals,
};

/// Returns may be logged this much out of order without the clock having gone backwards, nanoseconds.
const OUT_OF_ORDER_NS: i64 = 1_000_000;

/// A call that moved bytes or waited, as an importer understands it.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// The thread's number.
    pub thread: u32,
    /// When it began, nanoseconds on any clock.
    pub at_ns: i64,
    /// How long it took, nanoseconds.
    pub took_ns: u64,
    /// What it did.
    pub operation: Operation,
    /// Bytes that were moved.
    pub size_bytes: u64,
    /// The CPU on which it returned, if known.
    pub cpu: Option<u32>,
    /// Of the time it took, that in which the thread had no CPU, if known, nanoseconds.
    pub off_cpu_ns: Option<u64>,
}

/// Where a call moved bytes: a channel, at its first or its second end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    channel: u32,
    at_first: bool,
}

struct Known {
    index: u32,
    first: String,
}

/// Bytes sent and received in one direction; `None` if more was received than sent, so that the beginning was missed.
type Queue = Option<(u64, u64)>;

/// A recording that is assembled from calls.
pub struct Assembly {
    recorder: Recorder,
    /// What was lost so far.
    pub lost: Lost,
    origin_ns: Option<i64>,
    returned_ns: i64,
    processes: HashMap<u32, u32>,
    threads: HashMap<u32, u32>,
    channels: HashMap<String, Known>,
    received: HashMap<u32, u64>,
    /// The CPU time that threads had used when the recording, or they themselves, began, by their indices.
    cpu_before_ns: HashMap<u32, u64>,
    queues: HashMap<(u32, Direction), Queue>,
}

impl Assembly {
    /// Begins with a recording that has no events.
    pub fn new(recorder: Recorder) -> Assembly {
        Assembly {
            recorder,
            lost: Lost::default(),
            origin_ns: None,
            returned_ns: i64::MIN,
            processes: HashMap::new(),
            threads: HashMap::new(),
            channels: HashMap::new(),
            received: HashMap::new(),
            cpu_before_ns: HashMap::new(),
            queues: HashMap::new(),
        }
    }

    /// The index of a process, which is new with this call or known.
    fn process(&mut self, pid: u32) -> u32 {
        *self.processes.entry(pid).or_insert_with(|| {
            let processes = &mut self.recorder.head_mut().processes;
            processes.push(RecordedProcess { pid, name: format!("process {pid}"), origin: None });
            processes.len() as u32 - 1
        })
    }

    /// The index of a thread; an unknown one is the first thread of a process.
    fn thread(&mut self, tid: u32) -> u32 {
        if let Some(index) = self.threads.get(&tid) {
            return *index;
        }
        self.add_thread(tid, tid)
    }

    fn add_thread(&mut self, tid: u32, pid: u32) -> u32 {
        let process = self.process(pid);
        let threads = &mut self.recorder.head_mut().threads;
        threads.push(process);
        let index = threads.len() as u32 - 1;
        self.threads.insert(tid, index);
        index
    }

    /// A thread of `by` started `child`: a thread of the same process, or a process of its own.
    pub fn started(&mut self, by: u32, child: u32, same_process: bool) {
        let parent = self.thread(by);
        let process = self.recorder.head_mut().threads[parent as usize];
        if same_process {
            let pid = self.recorder.head_mut().processes[process as usize].pid;
            let thread = self.add_thread(child, pid);
            self.cpu_before_ns.insert(thread, 0);
        } else {
            // The number may have belonged to a process that has ended.
            self.processes.remove(&child);
            let thread = self.add_thread(child, child);
            self.cpu_before_ns.insert(thread, 0);
            let by = &self.recorder.head_mut().processes[process as usize];
            let (name, origin) = (by.name.clone(), Origin::of_child(by.origin.as_ref(), by.pid));
            self.set_origin(child, origin);
            if !name.starts_with("process ") {
                self.rename(child, &name);
            }
        }
    }

    /// When the recording begins, a thread has used this CPU time since it began.
    pub fn had_used_cpu(&mut self, tid: u32, ns: u64) {
        let thread = self.thread(tid);
        self.cpu_before_ns.insert(thread, ns);
    }

    /// A thread has used this CPU time since the recording, or itself, began, and ended.
    pub fn used_cpu(&mut self, tid: u32, ns: u64) {
        let thread = self.thread(tid);
        self.cpu_before_ns.remove(&thread);
        self.recorder.head_mut().cpu.push(ThreadCpu { thread, ns });
    }

    /// From this time on, nanoseconds on the clock of the calls, the CPUs of the observed threads are kept from sleeping;
    /// `None`: they never were.
    pub fn awake_from(&mut self, at_ns: Option<i64>) {
        let origin = self.origin_ns.or(at_ns).unwrap_or(0);
        self.recorder.head_mut().awake_from_ns = at_ns.map(|at_ns| at_ns.saturating_sub(origin));
    }

    /// When the recording ends: asks for the CPU time, since it began, of each thread that has not ended.
    pub fn ask_cpu(&mut self, used: impl Fn(u32) -> Option<u64>) {
        for (tid, thread) in &self.threads {
            if let Some(before) = self.cpu_before_ns.remove(thread)
                && let Some(ns) = used(*tid)
            {
                let ns = ns.saturating_sub(before);
                self.recorder.head_mut().cpu.push(ThreadCpu { thread: *thread, ns });
            }
        }
        self.recorder.head_mut().cpu.sort_unstable_by_key(|cpu| cpu.thread);
    }

    /// The process of a thread has this name from now on.
    pub fn rename(&mut self, tid: u32, name: &str) {
        let thread = self.thread(tid);
        let head = self.recorder.head_mut();
        let process = head.threads[thread as usize];
        head.processes[process as usize].name = name.to_owned();
    }

    /// The process of a thread comes from there.
    pub fn set_origin(&mut self, tid: u32, origin: Origin) {
        let thread = self.thread(tid);
        let head = self.recorder.head_mut();
        let process = head.threads[thread as usize];
        head.processes[process as usize].origin = Some(origin);
    }

    /// The place that an end of a channel is, from now on.
    pub fn place(&mut self, end: &End) -> Place {
        let head = self.recorder.head_mut();
        let known = self.channels.entry(end.channel.clone()).or_insert_with(|| {
            head.channels.push(RecordedChannel {
                carrier: end.carrier.to_owned(),
                name: String::new(),
                from: Default::default(),
                to: Default::default(),
            });
            // The writing end of a pipe is its first one, whoever comes first.
            let first = if end.end == "reader" { "writer".to_owned() } else { end.end.clone() };
            Known { index: head.channels.len() as u32 - 1, first }
        });
        let channel = &mut head.channels[known.index as usize];
        if channel.name.is_empty() {
            channel.name.clone_from(&end.name);
        }
        Place { channel: known.index, at_first: known.first == end.end }
    }

    /// Adds a call that has returned. `place`: where it moved bytes; `None` for a wait on no channel in particular.
    ///
    /// # Errors
    /// The recording cannot be written.
    pub fn add(&mut self, call: Call, place: Option<Place>) -> Result<(), RecordingError> {
        let thread = self.thread(call.thread);
        let origin = self.origin_ns.get_or_insert(call.at_ns);
        let mut at_ns = call.at_ns.saturating_sub(*origin);
        let returned = at_ns.saturating_add_unsigned(call.took_ns);
        if returned < self.returned_ns.saturating_sub(OUT_OF_ORDER_NS) {
            self.lost.clock_backwards += 1;
            at_ns = self.returned_ns.saturating_sub_unsigned(call.took_ns);
            // The clock goes on from its new time.
            *origin = call.at_ns.saturating_sub(at_ns);
        } else {
            self.returned_ns = self.returned_ns.max(returned);
        }
        let mut event = Event {
            at_ns,
            thread,
            operation: call.operation,
            channel: None,
            direction: Direction::Forward,
            size_bytes: call.size_bytes,
            call_ns: call.took_ns,
            queued_bytes: None,
            cpu: call.cpu,
            off_cpu_ns: call.off_cpu_ns,
            after: None,
        };
        if let Some(place) = place {
            self.use_channel(&mut event, place);
        }
        let row = self.recorder.events();
        match call.operation {
            Operation::Send => {
                let back = self.received.get(&thread).map(|received| row - received);
                event.after = back.and_then(|back| u32::try_from(back).ok());
            }
            Operation::Receive => {
                self.received.insert(thread, row);
            }
            Operation::Wait => {}
        }
        self.recorder.add(event)
    }

    /// Fills in the channel, the direction and the queue.
    fn use_channel(&mut self, event: &mut Event, place: Place) {
        let head = self.recorder.head_mut();
        let process = head.threads[event.thread as usize];
        let channel = &mut head.channels[place.channel as usize];
        let at_first = place.at_first;
        if at_first {
            channel.from.insert(process)
        } else {
            channel.to.insert(process)
        };
        let sends = event.operation == Operation::Send;
        event.channel = Some(place.channel);
        event.direction = if sends == at_first { Direction::Forward } else { Direction::Backward };
        let both = !channel.from.is_empty() && !channel.to.is_empty();
        let queue = self.queues.entry((place.channel, event.direction)).or_insert(Some((0, 0)));
        if let Some((sent, received)) = queue {
            if sends {
                *sent += event.size_bytes;
            } else {
                *received += event.size_bytes;
            }
            match sent.checked_sub(*received) {
                Some(queued) => event.queued_bytes = Some(queued).filter(|_| both),
                None => *queue = None,
            }
        }
    }

    /// Writes events that have waited for a second.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn flush_if_due(&mut self) -> Result<(), RecordingError> {
        self.recorder.flush_if_due()
    }

    /// Writes what is left, and the totals.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn finish(self) -> Result<Totals, RecordingError> {
        self.recorder.finish(self.lost)
    }
}
