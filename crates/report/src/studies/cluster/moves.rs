//! A process that moves to another node and back while it serves a client (item C9 of the cluster study).

use crossway_lab::channel::{Checked, Transport};
use crossway_records::record::Status;
use crossway_records::stats::{Estimate, TRIALS_AT_LEAST};

use super::super::call::Call;
use super::super::evidence::Evidence;
use super::super::{Claim, Figure, Finding};
use super::PLAN;
use crate::units::{Quantity, count};

/// Judges the study's claim C9, about a process that may move to another node.
pub(super) fn transparency(evidence: &Evidence<'_>) -> Finding {
    let claim = Claim {
        id: "C9",
        title: "A process that may move",
        says: "Pipes or shared memory would be faster within a node, but a process may migrate, so nobody knows \
               whether its peer is local. The study therefore uses one \
               protocol everywhere, which does not depend on the location.",
        rule: "This tests whether one protocol is needed everywhere. Two programs are connected by name through a \
               Crossway channel; the listening one moves from the client's node to another and back while messages \
               flow, and each message is echoed and checked. Not confirmed: in each of at least five trials, the \
               channel left local transports for the network and came back to local ones, and each message arrived \
               exactly once, in order. Confirmed: in one trial, the channel did not do so, or a message was lost, \
               duplicated, reordered or damaged.",
    };
    let records = &evidence.run.moves;
    let results: Vec<&Checked> = records.iter().filter_map(|r| r.result.as_ref()).collect();
    let trouble = records.iter().find(|r| r.status != Status::Ok);
    if results.is_empty() {
        let why = trouble.and_then(|r| r.reason.as_deref()).map_or_else(
            || format!("no process was moved; run `crossway measure {PLAN}` as root"),
            |reason| format!("no process could be moved: {reason}"),
        );
        return claim.without_records(why);
    }
    let wrong = results.iter().filter(|r| !(r.is_exact() && went_and_came_back(r))).count();
    let call = match (wrong, trouble, results.len()) {
        (1.., ..) => Call::Holds,
        (0, None, TRIALS_AT_LEAST..) => Call::Fails,
        _ => Call::Open(Some(TRIALS_AT_LEAST as u32)),
    };
    let sum = |of: fn(&Checked) -> u64| results.iter().map(|r| of(r)).sum::<u64>();
    let (sent, received) = (sum(|r| r.sent), sum(|r| r.received));
    let (lost, duplicated) = (sum(|r| r.lost), sum(|r| r.duplicated));
    let why = format!(
        "in {}, {sent} messages were sent and {received} came back; {lost} lost, {duplicated} duplicated, {} \
         reordered, {} damaged{}",
        count(results.len(), "trial", "trials"),
        sum(|r| r.reordered),
        sum(|r| r.damaged),
        trouble
            .and_then(|r| r.reason.as_deref())
            .map_or_else(String::new, |reason| format!("; a trial failed: {reason}")),
    );
    claim.judged("between two hosts with a tipcd each", figures(&results), call, why)
}

fn is_local(transport: Transport) -> bool {
    Transport::LOCAL.contains(&transport)
}

/// Returns whether the channel of a trial used local transports before the first and after the second move, and the
/// network between the two.
fn went_and_came_back(checked: &Checked) -> bool {
    let [away, back] = checked.moves.as_slice() else { return false };
    let mut kinds: Vec<bool> = Vec::new();
    for leg in checked.legs.iter().filter(|leg| leg.messages > 0) {
        if kinds.last() != Some(&is_local(leg.transport)) {
            kinds.push(is_local(leg.transport));
        }
    }
    is_local(away.from)
        && !is_local(away.to)
        && !is_local(back.from)
        && is_local(back.to)
        && kinds == [true, false, true]
}

fn figures(results: &[&Checked]) -> Vec<Figure> {
    let of = |value: &dyn Fn(&Checked) -> Option<f64>| {
        Estimate::of(&results.iter().filter_map(|r| value(r)).collect::<Vec<f64>>())
    };
    let pause = |nth: usize| move |r: &Checked| r.moves.get(nth).map(|m| m.pause_ns as f64);
    let rate = |wanted: fn(Transport) -> bool| {
        move |r: &Checked| {
            let legs = r.legs.iter().filter(|leg| wanted(leg.transport));
            let (messages, seconds) = legs.fold((0, 0.0), |(messages, seconds), leg| {
                (messages + leg.messages, seconds + leg.seconds)
            });
            (seconds > 0.0).then(|| messages as f64 / seconds)
        }
    };
    [
        ("echoes while both programs are on one node", Quantity::MessageRate, of(&rate(is_local))),
        ("echoes while they are on two nodes", Quantity::MessageRate, of(&rate(|t| !is_local(t)))),
        (
            "pause in the messages during the move to the other node",
            Quantity::Duration,
            of(&pause(0)),
        ),
        ("pause in the messages during the move back", Quantity::Duration, of(&pause(1))),
        ("messages lost in a trial", Quantity::Number, of(&|r| Some(r.lost as f64))),
        ("messages duplicated in a trial", Quantity::Number, of(&|r| Some(r.duplicated as f64))),
    ]
    .into_iter()
    .filter_map(|(what, quantity, value)| Some(Figure::new(what, quantity, value?)))
    .collect()
}
