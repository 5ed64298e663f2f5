//! Determines which mechanisms are candidates for a question, and why the others are not.

use crossway_mech::{Caps, Family, Probe, Transport, Wait, registry};
use serde::Serialize;

use super::objection::Objection;
use super::property::{Fact, Property, Subject, Wish};
use super::question::Question;
use crossway_lab::catalogue::Entry;
use crossway_lab::faults::FaultRecord;
use crossway_records::cases::wait_name;

/// A mechanism with a way of waiting.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// The mechanism's id.
    pub mechanism: &'static str,
    /// How the mechanism's ends wait.
    pub wait: Wait,
    /// The mechanism's capabilities.
    pub caps: Caps,
    /// Whether the mechanism is an external program and so needs a library beyond system calls.
    pub contender: bool,
    /// The mechanism's position in `crossway list`; decides which of two candidates is simpler if all other criteria
    /// are equal.
    pub order: usize,
    /// What is known about the properties named in the question.
    pub facts: Vec<(Property, Fact)>,
}

impl Candidate {
    /// The candidate's name in tables: the mechanism's id, followed by the way of waiting in parentheses unless the
    /// ends block.
    pub fn label(&self) -> String {
        match self.wait {
            Wait::Block => self.mechanism.to_owned(),
            wait => format!("{} ({})", self.mechanism, wait_name(&wait)),
        }
    }

    /// How much of a program that uses `now` changes if it uses this candidate instead.
    pub fn change_from(&self, now: Option<&str>) -> Change {
        let used = now.and_then(registry::find);
        let Some(used) = used.filter(|used| used.id != self.mechanism) else {
            return Change::Nothing;
        };
        let same = |kind: fn(Transport) -> bool| {
            let of = |entry: &registry::Entry| {
                entry.carrier.family != Family::Uring && kind(entry.carrier.transport)
            };
            of(used) && registry::find(self.mechanism).is_some_and(of)
        };
        let has_sockets = |transport| {
            use Transport::{Sctp, Smc, Tcp, Tipc, Udp, Unix, Vsock};
            matches!(transport, Tcp | Unix | Udp | Sctp | Smc | Vsock | Tipc)
        };
        let framed = (used.caps)().boundaries != self.caps.boundaries;
        match (same(has_sockets), same(|transport| transport == Transport::Pipe)) {
            (true, _) if framed => Change::Framing,
            (true, _) | (_, true) => Change::Opening,
            _ => Change::Calls,
        }
    }

    /// Number of the question's preferences that the candidate satisfies, minus the number that it violates.
    pub fn preferences(&self, question: &Question) -> i32 {
        self.facts
            .iter()
            .map(|(property, fact)| match (question.wish(*property), fact.holds) {
                (Wish::Prefer, Some(true)) | (Wish::Avoid, Some(false)) => 1,
                (Wish::Prefer, Some(false)) | (Wish::Avoid, Some(true)) => -1,
                _ => 0,
            })
            .sum()
    }
}

/// How much of a program changes if it uses another mechanism, the least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// Nothing: it is the mechanism in use, or there is none yet.
    Nothing,
    /// How it opens the channel: one kind of pipe, or of socket with or without message boundaries, for another.
    Opening,
    /// Also how it divides its messages: sockets with message boundaries for sockets without, or the reverse.
    Framing,
    /// The calls by which it sends and receives.
    Calls,
}

/// A candidate that must not be recommended, with the reason.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RuledOut {
    /// The candidate's label, or the mechanism's id if its way of waiting does not matter.
    pub candidate: String,
    /// The reason.
    pub objection: Objection,
    /// The reason in words.
    pub why: String,
    /// The evidence: a capability, a probe, a fault test, a record.
    pub basis: String,
}

impl RuledOut {
    /// Rules a candidate out.
    pub(super) fn new(
        candidate: String,
        objection: Objection,
        basis: impl Into<String>,
    ) -> RuledOut {
        RuledOut { candidate, why: objection.to_string(), objection, basis: basis.into() }
    }
}

/// The candidates of a question, and the mechanisms that were ruled out before any measurement.
#[derive(Clone, Debug, Default)]
pub struct Field {
    /// Mechanisms that may be recommended.
    pub candidates: Vec<Candidate>,
    /// Mechanisms that must not be recommended.
    pub ruled_out: Vec<RuledOut>,
    /// Requirements and preferences about which there is no evidence here for any candidate, in sentences.
    pub unanswered: Vec<String>,
    /// The requirements in `unanswered`, as phrases: `the required property crash-survival`.
    pub open_requirements: Vec<String>,
    /// Mechanisms about which fault records would answer something that the question asks. They meet, or may meet, all
    /// of its other requirements.
    pub untested: Vec<&'static str>,
    /// Why there are no candidates, in words: the requirement, the pair of requirements or the set of requirements that
    /// no mechanism meets. If some mechanisms meet all requirements, it is why these cannot be measured. `None` if
    /// there are candidates, or if no such reason is known.
    pub conflict: Option<String>,
}

/// What is known about this machine before anything is measured.
#[derive(Clone, Copy, Debug)]
pub struct Known<'a> {
    /// Whether each mechanism works here, by id.
    pub probes: &'a [(&'static str, Probe)],
    /// Fault records of this machine.
    pub faults: &'a [FaultRecord],
}

/// Applies the question's requirements to every mechanism and contender in `entries`. Those that do not work on this
/// machine are ruled out, too.
pub fn field(
    question: &Question,
    known: &Known<'_>,
    entries: impl Iterator<Item = Entry>,
) -> Field {
    let mut field = Field::default();
    let mut usable = Vec::new();
    for (order, entry) in entries.enumerate() {
        let caps = entry.caps();
        let waits = waits(question, &caps);
        let label = entry.id().to_owned();
        let mut out = |objection: Objection, basis: &str| {
            field.ruled_out.push(RuledOut::new(label.clone(), objection, basis));
        };
        if let Some(objection) = cannot_meet(question, entry) {
            out(objection, "what its ends need to meet (`crossway list NAME`)");
            continue;
        }
        if let Some((_, Probe::Missing(obstacle))) =
            known.probes.iter().find(|(id, _)| *id == entry.id())
        {
            // One reason for all of them, whatever their names.
            match entry.contender() {
                Some(contender) if !contender.is_built() => {
                    out(Objection::NotBuilt, "the contenders built on this machine");
                }
                _ => out(Objection::NotHere(obstacle.clone()), "probe on this machine"),
            }
            continue;
        }
        let subject = |wait| Subject { entry, wait, caps: &caps, faults: known.faults, question };
        if waits.is_empty() {
            let objection = match question.wishes.get(&Property::Spinning).copied() {
                Some(Wish::Require) => Objection::CannotSpin,
                wish => Objection::OnlySpins { wish },
            };
            out(objection, &subject(Wait::Block).claim());
            continue;
        }
        for wait in waits {
            let facts = question.wishes.keys().map(|p| (*p, p.of(&subject(wait)))).collect();
            let contender = entry.is_contender();
            usable.push(Candidate { mechanism: entry.id(), wait, caps, contender, order, facts });
        }
    }
    let conflict = conflict(question, &usable);
    field.untested = untested(question, &usable);
    for property in question.wishes.keys().copied() {
        let wish = question.wish(property);
        let wanted = match wish {
            Wish::Require => true,
            Wish::Prohibit => false,
            _ => continue,
        };
        let fact_of =
            |c: &Candidate| c.facts.iter().find(|(p, _)| *p == property).map(|(_, f)| f.clone());
        let known_good = usable.iter().any(|c| fact_of(c).is_some_and(|f| f.holds == Some(wanted)));
        let mut kept = Vec::new();
        for candidate in usable {
            let Some(fact) = fact_of(&candidate) else { continue };
            match fact.holds {
                Some(holds) if holds == wanted => kept.push(candidate),
                // If some are known to have it, candidates for which it is unknown are ruled out.
                None if !known_good => kept.push(candidate),
                holds => {
                    let objection = Objection::Property {
                        property,
                        asked: question.property_words(property),
                        required: wanted,
                        known: holds.is_some(),
                    };
                    field.ruled_out.push(RuledOut::new(candidate.label(), objection, fact.basis));
                }
            }
        }
        if !known_good && !kept.is_empty() {
            let verb = if wanted { "required" } else { "prohibited" };
            let facts: Vec<Fact> = kept.iter().filter_map(fact_of).collect();
            field.unanswered.push(format!(
                "{} is {verb}, but there is no evidence about it for any candidate{}",
                property.name(),
                why_unknown(&facts)
            ));
            let words = question.property_words(property);
            field.open_requirements.push(format!("the {verb} property {words}"));
        }
        usable = kept;
    }
    for property in question.wishes.keys().copied() {
        let wish = question.wish(property);
        let fact_of =
            |c: &Candidate| c.facts.iter().find(|(p, _)| *p == property).map(|(_, f)| f.clone());
        let facts: Vec<Fact> = usable.iter().filter_map(fact_of).collect();
        if matches!(wish, Wish::Prefer | Wish::Avoid)
            && !facts.is_empty()
            && facts.iter().all(|fact| fact.holds.is_none())
        {
            field.unanswered.push(format!(
                "{} has no effect on the choice, since there is no evidence about it for any candidate{}",
                property.name(),
                why_unknown(&facts)
            ));
        }
    }
    field.conflict = conflict.filter(|_| usable.is_empty());
    field.candidates = usable;
    field
}

/// Whether the ends have nothing in common by which they could meet; `None` if they may meet. Of a contender it is not known
/// what it needs.
fn cannot_meet(question: &Question, entry: Entry) -> Option<Objection> {
    let needs = entry.carrier()?.meets;
    let met = needs.iter().any(|way| question.lets_meet(*way));
    (!met).then(|| Objection::CannotMeet {
        needs: needs.to_vec(),
        shares: question.shares.clone(),
        apart: question.apart,
    })
}

/// Why facts are unknown, as the end of a sentence: the common reason, or the first candidate's.
fn why_unknown(facts: &[Fact]) -> String {
    let first = facts.first().map_or("", |fact| fact.basis.as_str());
    match facts.iter().all(|fact| fact.basis == first) {
        true => format!(": {first}"),
        false => format!(". The reason for the first candidate: {first}"),
    }
}

/// The mechanisms whose faults should be tested, without repetition.
fn untested(question: &Question, usable: &[Candidate]) -> Vec<&'static str> {
    let suits = |(property, fact): &(Property, Fact)| {
        fact.holds.is_none_or(|holds| match question.wish(*property) {
            Wish::Require => holds,
            Wish::Prohibit => !holds,
            _ => true,
        })
    };
    let lacks = |(property, fact): &(Property, Fact)| {
        fact.lacks_faults() && question.wish(*property) != Wish::NoPreference
    };
    let mut ids: Vec<&'static str> = usable
        .iter()
        .filter(|c| c.facts.iter().all(suits) && c.facts.iter().any(lacks))
        .map(|c| c.mechanism)
        .collect();
    ids.dedup();
    ids
}

/// Whether the question lets ends spin. Spinning occupies a CPU per end, so it must be required, preferred or allowed.
pub(super) fn may_spin(question: &Question) -> bool {
    let wish = question.wishes.get(&Property::Spinning);
    matches!(wish, Some(Wish::Require | Wish::Prefer | Wish::NoPreference))
}

/// The ways of waiting that the mechanism supports and the question allows.
fn waits(question: &Question, caps: &Caps) -> Vec<Wait> {
    let mut waits = Vec::new();
    if caps.can_block && question.wish(Property::Spinning) != Wish::Require {
        waits.push(Wait::Block);
    }
    if caps.can_spin && may_spin(question) {
        waits.push(Wait::Spin);
    }
    waits
}

/// Describes why no candidate meets all requirements; `None` if a candidate does. Names the first requirement that no
/// candidate meets, or the first two that candidates meet individually but not together. If there are no such
/// requirements, says that no candidate meets all of them.
fn conflict(question: &Question, usable: &[Candidate]) -> Option<String> {
    let meets = |candidate: &Candidate, property: Property| {
        let wanted = match question.wish(property) {
            Wish::Require => true,
            Wish::Prohibit => false,
            _ => return true,
        };
        candidate.facts.iter().any(|(p, f)| *p == property && f.holds.is_none_or(|h| h == wanted))
    };
    let strict: Vec<Property> = question
        .wishes
        .iter()
        .filter(|(_, wish)| matches!(wish, Wish::Require | Wish::Prohibit))
        .map(|(property, _)| *property)
        .collect();
    let with = |of: &[Property]| -> Vec<&Candidate> {
        usable.iter().filter(|c| of.iter().all(|p| meets(c, *p))).collect()
    };
    let say = |p: Property| format!("{} {}", question.wish(p).word(), p.name());
    for (at, &first) in strict.iter().enumerate() {
        if with(&[first]).is_empty() {
            return Some(format!("none meets \"{}\"; relax it", say(first)));
        }
        for &second in &strict[at + 1..] {
            if !with(&[second]).is_empty() && with(&[first, second]).is_empty() {
                let (a, b) = (with(&[first]).len(), with(&[second]).len());
                let relax = if a >= b { second } else { first };
                return Some(format!(
                    "none meets both \"{}\" (met by {a}) and \"{}\" (met by {b}); relax \"{}\" to \"{}\"",
                    say(first),
                    say(second),
                    say(relax),
                    if question.wish(relax) == Wish::Require { "prefer" } else { "avoid" }
                ));
            }
        }
    }
    (with(&strict).is_empty() && !strict.is_empty()).then(|| {
        let relax = strict.iter().max_by_key(|p| {
            with(&strict.iter().copied().filter(|q| q != *p).collect::<Vec<_>>()).len()
        });
        format!(
            "none meets all {} of them together; relax \"{}\" first",
            strict.len(),
            relax.map_or(String::new(), |p| say(*p))
        )
    })
}
