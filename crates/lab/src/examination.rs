//! The conformance suite for contenders: what must hold before their figures are meaningful.

use std::time::{Duration, Instant};

use crossway_mech::{Bind, Probe};
use crossway_sys::clock::Ticker;
use crossway_sys::lease;
use crossway_sys::topology::Topology;

use crate::case::{self, Case};
use crate::contender::{Contender, End, ProgramError};
use crate::launcher::{LaunchError, Launcher, RoleSite};
use crate::plan::{Plan, PlanError};
use crate::trial::{self, Setting};
use crossway_records::inputs::Workload;

/// Message sizes at which programs often fail: smaller than a sequence number, not a multiple of a word, one word, one
/// cache line, one page, larger than a socket's buffer.
const SIZES: &str = "[0, 1, 7, 8, 9, 64, 1000, 4096, 65536, 65537, 1048576]";
/// Number of messages in one direction; more than any queue holds.
const MESSAGES: u32 = 3000;
/// Number of round trips. Only one message is in flight at a time, so that no queue fills.
const ROUND_TRIPS: u64 = 300;
/// Number of messages of large sizes, of which [`MESSAGES`] would take too long.
const MESSAGES_OF_LARGE: u64 = 60;
/// Messages of this size and above are large.
const LARGE: u64 = 32 << 10;
/// The size that is tested twice. The second time, the channel is opened without a verification, as in later trials of
/// a run.
const REOPENED: u64 = 64;
/// Size of the messages that an end sends or awaits when its peer is killed, bytes.
const SIZE_BYTES: u64 = 4096;
/// Size of the memory with the payload, bytes.
const WORKING_SET_BYTES: u64 = 256 << 10;
/// Time limit for an end to notice that the other end was killed.
const DEATH_LIMIT: Duration = Duration::from_secs(15);
/// Time limit of any other step.
const STEP_LIMIT: Duration = Duration::from_secs(20);

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The check passed.
    Holds,
    /// The check does not apply, for this reason.
    Left(String),
    /// The check failed, for this reason.
    Broken(String),
}

/// Runs all checks and calls `tell` with each result as soon as it is known. Returns whether none failed.
///
/// # Errors
/// The suite itself cannot be set up.
pub fn examine(
    contender: &'static Contender,
    launcher: &Launcher,
    run: &lease::Run,
    mut tell: impl FnMut(&str, &Verdict),
) -> Result<bool, PlanError> {
    let greeting = match contender.probe() {
        Probe::Ready { .. } => Verdict::Holds,
        Probe::Missing(obstacle) => Verdict::Broken(obstacle.to_string()),
    };
    tell("it starts and sends its greeting", &greeting);
    if greeting != Verdict::Holds {
        return Ok(false);
    }
    let mut all_hold = true;
    let mut note = |name: &str, verdict: Verdict| {
        all_hold &= !matches!(verdict, Verdict::Broken(_));
        tell(name, &verdict);
    };
    for case in cases(&contender.id)? {
        let kind = match case.inputs.workload {
            Workload::PingPong => "both ways",
            _ => "one way",
        };
        let name =
            format!("{} B {kind}: content, order and number of messages", case.inputs.size_bytes);
        note(&name, carry(contender, &case, launcher, run));
    }
    for sends in [false, true] {
        let end = if sends { "a sender" } else { "a receiver" };
        let verdict =
            notice_death(contender, sends).unwrap_or_else(|e| Verdict::Broken(e.to_string()));
        note(&format!("{end} notices that its peer was killed"), verdict);
    }
    Ok(all_hold)
}

/// The cases to test: all workloads that the protocol supports, with all of [`SIZES`].
fn cases(id: &str) -> Result<Vec<Case>, PlanError> {
    let text = format!(
        "[group.content]\nmechanisms = \"{id}\"\nworkload = [\"throughput\", \"ping-pong\"]\nsize_bytes = {SIZES}\n\
         placement = \"unpinned\"\ntrials = 1\nmessages = {MESSAGES}\nwarmup_ms = 1\n"
    );
    let plan = Plan::parse("conformance", "conformance", &text)?;
    let topology = Topology::read().unwrap_or_default();
    let mut cases = case::expand(&plan, &topology, &[]);
    for case in &mut cases {
        let inputs = &mut case.inputs;
        if inputs.size_bytes >= LARGE {
            inputs.messages = Some(MESSAGES_OF_LARGE);
        } else if inputs.workload == Workload::PingPong {
            inputs.messages = Some(ROUND_TRIPS);
        }
        if inputs.size_bytes == REOPENED {
            inputs.trials = 2;
        }
    }
    Ok(cases)
}

/// Runs all trials of a case, each of which opens, verifies, warms up, measures and closes the channel.
fn carry(
    contender: &'static Contender,
    case: &Case,
    launcher: &Launcher,
    run: &lease::Run,
) -> Verdict {
    if let Some(excluded) = &case.excluded {
        return Verdict::Left(excluded.why.clone());
    }
    for trial in 0..case.inputs.trials {
        let setting = Setting {
            mechanism: case.mechanism,
            contender: Some(contender.launch(lease::random_number())),
            caps: contender.caps,
            inputs: &case.inputs,
            replay: case.replay.as_deref(),
            ticker: Ticker::Monotonic,
            clock_step_ns: 1.0,
            working_set_bytes: WORKING_SET_BYTES,
            verify: trial == 0,
            bind: Bind::default(),
            onlooker: None,
            contained: false,
        };
        let brought =
            match trial::run(&setting, RoleSite::Local { launcher, run, containers: None }) {
                Ok(brought) => brought,
                Err(LaunchError::Unsupported(why)) => return Verdict::Left(why),
                Err(error) => return Verdict::Broken(error.to_string()),
            };
        let sent: u64 = brought.outcomes.iter().map(|o| o.sent).sum();
        let received: u64 = brought.outcomes.iter().map(|o| o.received).sum();
        let out_of_order: u64 = brought.outcomes.iter().map(|o| o.out_of_order).sum();
        if sent != received || received == 0 {
            return Verdict::Broken(format!("{sent} messages were sent and {received} received"));
        }
        if out_of_order > 0 {
            return Verdict::Broken(format!(
                "{out_of_order} of {received} messages arrived out of order"
            ));
        }
    }
    Verdict::Holds
}

/// Checks whether one end exits, or reports a failure, after the other end was killed.
fn notice_death(contender: &Contender, sends: bool) -> Result<Verdict, ProgramError> {
    if !contender.caps.detects_peer_death {
        return Ok(Verdict::Left("its declaration has detects_peer_death = false".to_owned()));
    }
    let launch = contender.launch(lease::random_number());
    let mut survivor = End::start(&launch, true, sends, SIZE_BYTES, STEP_LIMIT)?;
    let mut victim = End::start(&launch, false, !sends, SIZE_BYTES, STEP_LIMIT)?;
    victim.share_memory(&survivor)?;
    End::join(&mut survivor, &mut victim, STEP_LIMIT).map_err(|(_, error)| error)?;
    // More messages than any queue takes, so that a sender, too, waits for its dead peer.
    survivor.go(1 << 40, STEP_LIMIT)?;
    // It should be at work; a death before it waits must be noticed as well.
    std::thread::sleep(Duration::from_millis(50));
    drop(victim);
    let killed = Instant::now();
    match survivor.done(DEATH_LIMIT) {
        Err(ProgramError::Failed { .. } | ProgramError::Ended(_)) => Ok(Verdict::Holds),
        Err(ProgramError::Silent { .. }) => Ok(Verdict::Broken(format!(
            "it was still waiting {:?} after its peer had been killed; if the library does not detect that, declare detects_peer_death = false",
            killed.elapsed()
        ))),
        Err(other) => Err(other),
        Ok(_) => {
            Ok(Verdict::Broken("it answered 'done', although its peer had been killed".to_owned()))
        }
    }
}
