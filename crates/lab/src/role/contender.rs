//! A role played by a contender: translates between the controller's orders and the program's lines.
//!
//! Nothing that the program reports is trusted if it can be determined otherwise. The content is checked by a checksum
//! that the program computes from what it reads. The times that the program reports must lie between the order to start
//! and the answer to it. CPU time is taken from the kernel.

use std::time::Duration;

use crossway_mech::Facts;
use crossway_sys::clock::monotonic_ns;
use crossway_sys::family;
use crossway_sys::usage::{Usage, process_cpu_ns};

use super::RoleError;
use crate::contender::content::{Content, ContentKey, SharedFile};
use crate::contender::program::{Program, ProgramError};
use crate::contender::protocol::{Ask, Checksum, Reply, VERSION};
use crate::contender::{Launch, SHM_PREFIX};
use crate::control::{
    Answer, Counters, OfferText, Order, Outcome, Part, ServerUse, Task, Window, Wire,
};
use crate::verify;
use crossway_loops::Distribution;
use crossway_records::inputs::{Span, Wait, Workload};

/// Time limit for closing, and a second one of the same length for exiting. Their sum is below the controller's time
/// limit.
const CLOSE_LIMIT: Duration = Duration::from_secs(9);
/// Maximum fraction by which the sum of the round-trip samples may differ from the duration of the window. The samples
/// follow one another without a gap, so the two should be nearly equal.
const SAMPLES_MISS: f64 = 0.2;

/// Executes the controller's orders with a contender's program.
pub(super) fn live(task: Task, launch: &Launch, wire: &mut Wire) -> Result<(), RoleError> {
    let (mut role, offers) = Role::begin(task, launch)?;
    wire.say(&Answer::Offers { offers, warnings: Vec::new() }, &[])?;
    let Err(error) = serve(&mut role, wire) else { return close(role, wire) };
    // Report to the controller before the program is killed, so that its report arrives before any reaction of the
    // peer's program.
    if let Some(answer) = error.answer() {
        wire.say(&answer, &[])?;
    }
    Err(RoleError::AlreadyReported)
}

/// Executes orders until the order to close.
fn serve(role: &mut Role, wire: &mut Wire) -> Result<(), RoleError> {
    loop {
        let (order, _) = wire.hear::<Order>()?;
        let answer = match order {
            Order::Begin { .. } => return Err(RoleError::Wrong("a second task".to_owned())),
            Order::Connect { offers } => {
                let mut words = offers.into_iter().next().unwrap_or_default().words;
                if let Some(prefix) = words.remove(SHM_PREFIX) {
                    role.program.share_memory(prefix)?;
                }
                role.open("connect", &Ask::Connect { words })?
            }
            Order::Accept => role.open("accept", &Ask::Accept)?,
            Order::Verify { sends, sender, .. } => role.verify(sends, sender)?,
            Order::Prepare { window } => role.prepare(window)?,
            Order::Go { .. } => role.go()?,
            Order::Act { .. } => {
                return Err(RoleError::Wrong(
                    "the contender protocol does not support fault injection".to_owned(),
                ));
            }
            Order::Stop => {
                let why = "the contender protocol does not support open-ended measurement";
                return Err(RoleError::Wrong(why.to_owned()));
            }
            Order::Close => return Ok(()),
        };
        wire.say(&answer, &[])?;
    }
}

fn close(role: Role, wire: &mut Wire) -> Result<(), RoleError> {
    role.close()?;
    wire.say(&Answer::Closed, &[])?;
    Ok(())
}

struct Role {
    task: Task,
    launch: Launch,
    program: Program,
    checksum: Checksum,
    facts: Facts,
    servers: Vec<u32>,
    payload: SharedFile,
    prepared: Option<Prepared>,
}

/// A window that is ready to start.
struct Prepared {
    window: Window,
    /// The content that the other end sends; `None` if the other end does not send.
    expected: Option<Content>,
}

impl Role {
    fn begin(task: Task, launch: &Launch) -> Result<(Role, Vec<OfferText>), RoleError> {
        if !task.inputs.workload.facts().contenders {
            let why = format!(
                "the contender protocol does not support the workload {}",
                task.inputs.workload.word()
            );
            return Err(RoleError::Unsupported(why));
        }
        let mut program = Program::start(launch, task.cpu).map_err(failed)?;
        let greeting = program.greeting(launch.deadline).map_err(failed)?;
        let listens = task.listeners > 0;
        let inputs = &task.inputs;
        let begin = Ask::Begin {
            protocol: VERSION,
            part: task.part.name().to_owned(),
            listens,
            size_bytes: inputs.size_bytes,
            wait: match inputs.wait {
                Wait::Spin => "spin".to_owned(),
                Wait::Block | Wait::Hybrid { .. } => "block".to_owned(),
            },
            cpu: task.cpu,
            bind: task.bind.address.map_or_else(|| "127.0.0.1".to_owned(), |a| a.to_string()),
            dir: program.dir().to_owned(),
            shm_prefix: program.shm_prefix().to_owned(),
            capacity_bytes: inputs.capacity_bytes,
            socket_buffer_bytes: inputs.socket_buffer_bytes,
        };
        let (words, servers) = match ask(&mut program, launch.deadline, "begin", &begin)? {
            Reply::Offer { words, servers } => (words, servers),
            other => return Err(out_of_turn("begin", "offer", &other)),
        };
        let own = family::descendants(program.pid());
        if let Some(stranger) = servers.iter().find(|pid| !own.contains(pid)) {
            return Err(RoleError::Wrong(format!(
                "its program reported process {stranger} as a server, but did not start that process"
            )));
        }
        let content = Content::new(
            inputs.size_bytes as usize,
            task.working_set_bytes,
            key(&task, launch, 0, true),
        );
        let payload = SharedFile::new("crossway-payload", content.bytes().len())?;
        let mut offers = Vec::new();
        if listens {
            let mut words = words;
            words.insert(SHM_PREFIX.to_owned(), program.shm_prefix().to_owned());
            offers.push(OfferText { words, fds: Vec::new() });
        }
        let role = Role {
            launch: launch.clone(),
            task,
            program,
            checksum: greeting.checksum,
            facts: Facts::new(),
            servers,
            payload,
            prepared: None,
        };
        Ok((role, offers))
    }

    fn open(&mut self, name: &'static str, order: &Ask) -> Result<Answer, RoleError> {
        match self.ask(name, order)? {
            Reply::Opened { facts } => self.facts = facts,
            other => return Err(out_of_turn(name, "opened", &other)),
        }
        Ok(Answer::Opened { facts: self.facts.clone() })
    }

    fn ask(&mut self, name: &'static str, order: &Ask) -> Result<Reply, RoleError> {
        ask(&mut self.program, self.launch.deadline, name, order)
    }

    /// Makes the program send the agreed messages, or receive them into a file, which is then compared byte by byte.
    fn verify(&mut self, sends: bool, sender: u16) -> Result<Answer, RoleError> {
        let agreed = verify::agreed(&self.task.inputs, sender);
        let lengths: Vec<u64> = agreed.iter().map(|m| m.len() as u64).collect();
        let total: usize = agreed.iter().map(Vec::len).sum();
        let file = SharedFile::new("crossway-verify", total)?;
        if sends {
            file.write(&agreed.concat())?;
        }
        let order = Ask::Verify { sends, lengths: lengths.clone(), path: file.path() };
        let got = match self.ask("verify", &order)? {
            Reply::Verified { lengths } => lengths,
            other => return Err(out_of_turn("verify", "verified", &other)),
        };
        if !sends {
            let mut bytes = vec![0; total];
            file.read(&mut bytes)?;
            if got.len() != lengths.len() {
                let (got, wanted) = (got.len(), lengths.len());
                let why = format!(
                    "verification: the number of received messages is {got} instead of {wanted}"
                );
                return Err(RoleError::Wrong(why));
            }
            let mut rest = bytes.as_slice();
            for (number, (wanted, len)) in agreed.iter().zip(&got).enumerate() {
                let taken = rest.len().min(*len as usize);
                let (message, after) = rest.split_at(taken);
                verify::compare(number, message, wanted)?;
                rest = after;
            }
        }
        Ok(Answer::Verified { messages: agreed.len() as u32, crc: verify::chain(&agreed) })
    }

    fn prepare(&mut self, window: Window) -> Result<Answer, RoleError> {
        let size = self.task.inputs.size_bytes as usize;
        let content = |own: bool| {
            let key = key(&self.task, &self.launch, window.number, own);
            Content::new(size, self.task.working_set_bytes, key)
        };
        let sends = self.task.part != Part::Receiver;
        let mut payload = None;
        let mut first = 0;
        if sends {
            let own = content(true);
            self.payload.write(own.bytes())?;
            payload = Some(own.described(self.payload.path()));
            first = own.first;
        }
        let expected = (self.task.part != Part::Sender).then(|| content(false));
        let batch = u64::from(window.batch.max(1));
        let order = Ask::Prepare { messages: window.messages, batch, first, payload };
        match self.ask("prepare", &order)? {
            Reply::Ready => {}
            other => return Err(out_of_turn("prepare", "ready", &other)),
        }
        self.prepared = Some(Prepared { window, expected });
        Ok(Answer::Ready)
    }

    fn go(&mut self) -> Result<Answer, RoleError> {
        let Prepared { window, expected } = self
            .prepared
            .take()
            .ok_or_else(|| RoleError::Wrong("the order 'go' came before 'prepare'".to_owned()))?;
        let before = self.used();
        let servers_before = self.servers_ns();
        let told_ns = monotonic_ns();
        self.program.tell("go", &Ask::Go).map_err(failed)?;
        // The controller enforces the time limit of the window.
        let reply = self.program.hear("go", None).map_err(failed)?;
        let answered_ns = monotonic_ns();
        let used = self.used().since(&before);
        let Reply::Done { start_ns, end_ns, sent, received, out_of_order } = reply else {
            return Err(out_of_turn("go", "done", &reply));
        };
        if !(told_ns <= start_ns && start_ns <= end_ns && end_ns <= answered_ns) {
            return Err(RoleError::Wrong(format!(
                "its program reports that it worked from {start_ns} to {end_ns} ns, which is not between 'go' at \
                 {told_ns} ns and its answer at {answered_ns} ns (CLOCK_MONOTONIC); its figures are refused"
            )));
        }
        let mut outcome = Outcome {
            start_ns,
            end_ns,
            sent,
            received,
            bytes: received * self.task.inputs.size_bytes,
            out_of_order,
            user_ns: used.user_ns(),
            system_ns: used.system_ns,
            switches_voluntary: used.switches_voluntary,
            switches_involuntary: used.switches_involuntary,
            faults_minor: used.faults_minor,
            faults_major: used.faults_major,
            facts: self.facts.clone(),
            counters: Counters {
                missing: Some("not counted for programs outside of Crossway".to_owned()),
                ..Counters::default()
            },
            ..Outcome::default()
        };
        outcome.server = self.servers.first().map(|pid| ServerUse {
            pid: *pid,
            cpu_ns: servers_before.zip(self.servers_ns()).map(|(a, b)| b.saturating_sub(a)),
        });
        self.account(&window, expected.as_ref(), &mut outcome)?;
        Ok(Answer::Done { outcome: Box::new(outcome) })
    }

    /// Requests the results of the window from the program and checks them against what is known about the window.
    fn account(
        &mut self,
        window: &Window,
        expected: Option<&Content>,
        outcome: &mut Outcome,
    ) -> Result<(), RoleError> {
        let (checksum, histogram) = match self.ask("result", &Ask::Result)? {
            Reply::Result { checksum, histogram } => (checksum, histogram),
            other => return Err(out_of_turn("result", "result", &other)),
        };
        let asked = window.messages;
        if outcome.sent > asked || outcome.received > asked {
            let (sent, received) = (outcome.sent, outcome.received);
            return Err(RoleError::Wrong(format!(
                "its program reports {sent} messages sent and {received} received, but the window has {asked} messages; \
                 its figures are refused"
            )));
        }
        if let Some(expected) = expected {
            let said = checksum.as_deref().and_then(|text| u64::from_str_radix(text, 16).ok());
            let right = expected.checksum(outcome.received, self.checksum);
            if said != Some(right) {
                let said = checksum.unwrap_or_else(|| "nothing".to_owned());
                return Err(RoleError::Wrong(format!(
                    "the checksum of the {} messages that it received should be {right:x}, but its program reports \
                     {said}: the program did not read every byte, or the messages were damaged or not written; its \
                     figures are refused",
                    outcome.received
                )));
            }
        }
        if self.task.part == Part::Client && self.task.inputs.workload == Workload::PingPong {
            let batch = u64::from(window.batch.max(1));
            let samples: u64 = histogram.iter().map(|(_, count)| count).sum();
            let sum_ns: f64 = histogram.iter().map(|(ns, count)| *ns as f64 * *count as f64).sum();
            let wall_ns = (outcome.end_ns - outcome.start_ns) as f64;
            // The samples of a warm-up are discarded, and it may be so short that the delivery of its orders counts.
            let add_up =
                !window.measured || (sum_ns / wall_ns.max(1.0) - 1.0).abs() <= SAMPLES_MISS;
            if samples != asked / batch || !add_up {
                return Err(RoleError::Wrong(format!(
                    "its program reports {samples} samples with a sum of {sum_ns:.0} ns instead of {} samples with a \
                     sum near the duration of the window, {wall_ns:.0} ns; its figures are refused",
                    asked / batch
                )));
            }
            let mut distribution = Distribution::new();
            for (ns, count) in histogram {
                distribution.record_many(ns / batch, count);
            }
            outcome.histograms.push((Span::RoundTrip, distribution.encode()));
        }
        Ok(())
    }

    /// CPU time used so far by the program and its children, without its servers.
    fn used(&self) -> Usage {
        let own = family::descendants(self.program.pid());
        std::iter::once(self.program.pid())
            .chain(own.into_iter().filter(|pid| !self.servers.contains(pid)))
            .filter_map(Usage::of_process)
            .fold(Usage::default(), |sum, one| sum.plus(&one))
    }

    fn servers_ns(&self) -> Option<u64> {
        self.servers.iter().map(|pid| process_cpu_ns(*pid)).sum()
    }

    fn close(mut self) -> Result<(), RoleError> {
        self.program.tell("close", &Ask::Close).map_err(failed)?;
        let limit = self.launch.deadline.min(CLOSE_LIMIT);
        match self.program.hear("close", Some(limit)).map_err(failed)? {
            Reply::Closed => self.program.finish(limit).map_err(failed),
            other => Err(out_of_turn("close", "closed", &other)),
        }
    }
}

/// The key of the content that this role sends (if `own` is true) or receives.
fn key(task: &Task, launch: &Launch, window: u32, own: bool) -> ContentKey {
    let connects = task.listeners == 0;
    ContentKey {
        secret: launch.secret,
        from_connector: connects == own,
        sender: if own { task.index } else { task.first_peer },
        window,
    }
}

fn ask(
    program: &mut Program,
    deadline: Duration,
    name: &'static str,
    order: &Ask,
) -> Result<Reply, RoleError> {
    program.tell(name, order).map_err(failed)?;
    program.hear(name, Some(deadline)).map_err(failed)
}

fn out_of_turn(order: &'static str, wanted: &'static str, got: &Reply) -> RoleError {
    failed(ProgramError::OutOfTurn { order: Some(order), wanted, got: got.name() })
}

fn failed(error: ProgramError) -> RoleError {
    match error {
        ProgramError::Failed { reason, unsupported: true } => RoleError::Unsupported(reason),
        error @ (ProgramError::Ended(_)
        | ProgramError::Silent { .. }
        | ProgramError::Failed { .. }
        | ProgramError::Os(_)) => RoleError::Program(error.to_string()),
        error => RoleError::Wrong(error.to_string()),
    }
}
