//! Properties of mechanisms that a question can ask for, and what is known about them.
//!
//! The five levels of preference ([`Wish`]) are those of RFC 9622 (section 6.2), the abstract interface to transport
//! services. What is known about a property comes from the capabilities that the conformance suite checks and from
//! fault records of this machine; anything else is unknown and reported as such.

use crossway_mech::{Boundaries, Caps, Order, Privilege, Reliability, Wait};
use serde::Serialize;

use super::question::Question;
use crossway_lab::catalogue::Entry;
use crossway_lab::faults::{Fault, FaultRecord, Outcome, Remover};
use crossway_records::record::Status;

/// How strongly a property is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wish {
    /// Mechanisms without the property are ruled out.
    Require,
    /// Among mechanisms that are otherwise equal, those with the property are preferred.
    Prefer,
    /// The property does not matter.
    NoPreference,
    /// Among mechanisms that are otherwise equal, those without the property are preferred.
    Avoid,
    /// Mechanisms with the property are ruled out.
    Prohibit,
}

impl Wish {
    /// All wishes, from wanted to unwanted.
    pub const ALL: [Wish; 5] =
        [Wish::Require, Wish::Prefer, Wish::NoPreference, Wish::Avoid, Wish::Prohibit];

    /// The wish's name in questions.
    pub fn word(self) -> &'static str {
        match self {
            Wish::Require => "require",
            Wish::Prefer => "prefer",
            Wish::NoPreference => "no-preference",
            Wish::Avoid => "avoid",
            Wish::Prohibit => "prohibit",
        }
    }
}

/// A property of a mechanism, or of the way in which the mechanism's ends wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Property {
    /// Messages arrive in the order in which they were sent.
    Order,
    /// An accepted message is delivered, or an end gets an error.
    Delivery,
    /// One send corresponds to one receive.
    Boundaries,
    /// A sender waits while its receiver falls behind; nothing is dropped.
    BackPressure,
    /// A blocking send can be given a deadline.
    SendDeadline,
    /// After a crash of the peer at any moment, the other end can continue: it does not hang, die or read garbage.
    CrashSurvival,
    /// An end is notified of its peer's crash, within a given time if the question states one.
    CrashDetection,
    /// A peer that overwrites everything that the channel shares with garbage can neither hang nor kill nor deceive the
    /// other end.
    Isolation,
    /// A crash leaves nothing behind that has to be removed manually.
    CleanUp,
    /// Ends occupy a CPU while they wait.
    Spinning,
    /// The mechanism needs root privileges, or permission to trace the peer or to send frames of
    /// one's own.
    Root,
    /// The mechanism needs a kernel module that may have to be loaded.
    KernelModule,
    /// An end has a descriptor for poll and epoll.
    Pollable,
    /// The payload can be written and read in the mechanism's own buffer.
    ZeroCopy,
    /// The mechanism works between hosts as well.
    CrossesHosts,
    /// The mechanism works in an unprivileged container.
    UnprivilegedContainer,
    /// The mechanism works if each end has its own /dev/shm.
    PrivateDevShm,
    /// The mechanism can be used from one of the languages that the question names.
    Language,
    /// The mechanism links no library, or only libraries under one of the licences that the question names.
    Licence,
}

/// What is known about a property.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fact {
    /// Whether the property holds; `None` if that is not known here.
    pub holds: Option<bool>,
    /// The evidence, or how to find out.
    pub basis: String,
}

impl Fact {
    fn new(holds: bool, basis: &str) -> Fact {
        Fact { holds: Some(holds), basis: basis.to_owned() }
    }

    /// Whether the fact is unknown only because the mechanism's faults were never tested on this machine.
    pub(super) fn lacks_faults(&self) -> bool {
        self.holds.is_none() && self.basis == NO_FAULTS
    }
}

impl Property {
    /// All properties, in display order.
    pub const ALL: [Property; 19] = [
        Property::Order,
        Property::Delivery,
        Property::Boundaries,
        Property::BackPressure,
        Property::SendDeadline,
        Property::CrashSurvival,
        Property::CrashDetection,
        Property::Isolation,
        Property::CleanUp,
        Property::Spinning,
        Property::Root,
        Property::KernelModule,
        Property::Pollable,
        Property::ZeroCopy,
        Property::CrossesHosts,
        Property::UnprivilegedContainer,
        Property::PrivateDevShm,
        Property::Language,
        Property::Licence,
    ];

    /// The property's name in questions.
    pub fn name(self) -> &'static str {
        match self {
            Property::Order => "order",
            Property::Delivery => "delivery",
            Property::Boundaries => "boundaries",
            Property::BackPressure => "back-pressure",
            Property::SendDeadline => "send-deadline",
            Property::CrashSurvival => "crash-survival",
            Property::CrashDetection => "crash-detection",
            Property::Isolation => "isolation",
            Property::CleanUp => "clean-up",
            Property::Spinning => "spinning",
            Property::Root => "root",
            Property::KernelModule => "kernel-module",
            Property::Pollable => "pollable",
            Property::ZeroCopy => "zero-copy",
            Property::CrossesHosts => "crosses-hosts",
            Property::UnprivilegedContainer => "unprivileged-container",
            Property::PrivateDevShm => "private-dev-shm",
            Property::Language => "language",
            Property::Licence => "licence",
        }
    }

    /// The property with this name.
    pub fn named(name: &str) -> Option<Property> {
        Self::ALL.into_iter().find(|p| p.name() == name)
    }

    /// Whether a wish for the property lists values, as for languages and licences.
    pub fn has_values(self) -> bool {
        matches!(self, Property::Language | Property::Licence)
    }

    /// What is known about the property for a mechanism with its way of waiting.
    pub fn of(self, subject: &Subject<'_>) -> Fact {
        let caps = subject.caps;
        let claimed = |holds| Fact { holds: Some(holds), basis: subject.claim() };
        match self {
            // A declaration cannot state these; a contender may or may not have them.
            Property::SendDeadline | Property::Pollable | Property::ZeroCopy
                if subject.entry.is_contender() =>
            {
                Fact {
                    holds: None,
                    basis: "a contender's declaration cannot state this property".to_owned(),
                }
            }
            Property::Language => subject.language(),
            Property::Licence => subject.licence(),
            Property::Order => claimed(caps.order == Order::Fifo),
            Property::Delivery => claimed(caps.reliability == Reliability::Reliable),
            Property::Boundaries => claimed(caps.boundaries == Boundaries::Message),
            Property::SendDeadline => claimed(caps.send_deadline),
            Property::Pollable => claimed(caps.waitable_fd),
            Property::ZeroCopy => claimed(caps.in_place),
            Property::CrossesHosts => claimed(caps.crosses_hosts),
            Property::Root => claimed(matches!(
                caps.privilege,
                Privilege::Ptrace | Privilege::NetRaw | Privilege::Root
            )),
            Property::KernelModule => claimed(caps.privilege == Privilege::Module),
            Property::Spinning => Fact {
                holds: Some(!matches!(subject.wait, Wait::Block)),
                basis: "the way its ends wait".to_owned(),
            },
            Property::BackPressure if caps.reliability == Reliability::Lossy => claimed(false),
            Property::BackPressure => subject.tested(&[Fault::FullQueue], |r| {
                matches!(r.outcome, Some(Outcome::Resumed | Outcome::Unaffected))
                    && r.sent_lost.unwrap_or(0) == 0
            }),
            Property::CrashSurvival => subject.tested(&[Fault::Kill], |r| {
                !matches!(r.outcome, Some(Outcome::Hung | Outcome::Died | Outcome::Deceived))
            }),
            Property::CrashDetection if !caps.detects_peer_death => claimed(false),
            Property::CrashDetection => {
                let most_ns = subject.question.detect_within_ms.map(|ms| ms * 1e6);
                subject.tested(&[Fault::Kill], |r| {
                    let told = matches!(r.outcome, Some(Outcome::Detected));
                    let in_time = most_ns
                        .is_none_or(|most| r.detected_after_ns.is_some_and(|ns| ns as f64 <= most));
                    told && in_time
                })
            }
            Property::Isolation => subject.tested(&[Fault::Garbage, Fault::WrongLength], |r| {
                !matches!(r.outcome, Some(Outcome::Hung | Outcome::Died | Outcome::Deceived))
            }),
            Property::CleanUp => subject.tested(&[Fault::Kill], |r| {
                let by_hand = |l: &crossway_lab::faults::Leftover| l.remover == Remover::ByHand;
                !r.left_behind.as_ref().is_some_and(|left| left.iter().any(by_hand))
            }),
            Property::PrivateDevShm if subject.question.has_private_dev_shm() => Fact::new(
                true,
                "measured between containers, each with its own /dev/shm; a mechanism that fails there is ruled out",
            ),
            Property::UnprivilegedContainer | Property::PrivateDevShm => Fact {
                holds: None,
                basis: "no record covers this property; test it in the container itself".to_owned(),
            },
        }
    }
}

/// The mechanism to judge, and the question.
#[derive(Clone, Copy)]
pub struct Subject<'a> {
    /// The mechanism or contender.
    pub entry: Entry,
    /// How the mechanism's ends wait.
    pub wait: Wait,
    /// The mechanism's declared capabilities.
    pub caps: &'a Caps,
    /// The fault records of this machine.
    pub faults: &'a [FaultRecord],
    /// The question.
    pub question: &'a Question,
}

/// The basis of a fact that only fault records can decide if there are none. It is the same text for all mechanisms.
const NO_FAULTS: &str = "no fault record on this machine";

/// The licence of Crossway's own code, which programs link if the mechanism has user-space code.
const OWN_LICENCE: &str = "MIT OR Apache-2.0";

impl Subject<'_> {
    /// The evidence for a capability.
    pub(super) fn claim(&self) -> String {
        match self.entry.contender() {
            None => "capability, checked by the conformance suite".to_owned(),
            Some(c) => format!(
                "declared in {}, which `crossway contender test {}` checks",
                c.file.display(),
                c.id
            ),
        }
    }

    /// Whether one of Crossway's own mechanisms needs user-space code besides system calls: rings in shared memory,
    /// LINX, TIPC through `tipcd`.
    fn in_user_space(&self) -> bool {
        let node = self.entry.carrier().and_then(|carrier| carrier.node);
        self.caps.in_place || node.is_some()
    }

    fn language(&self) -> Fact {
        let Some(contender) = self.entry.contender() else {
            return match self.in_user_space() {
                false => self.satisfied(
                    Property::Language,
                    "a kernel interface, usable from every language that can make system calls",
                ),
                // The sockets of tipcd and LINX have C interfaces, but it is not recorded which languages can use
                // them.
                true if self.usable_from(&["rust".to_owned()]) => {
                    Fact::new(true, "Crossway's Rust code")
                }
                true => Fact {
                    holds: None,
                    basis: "its code in user space is Rust; it is not recorded whether other languages can use it"
                        .to_owned(),
                },
            };
        };
        let file = contender.file.display();
        if contender.languages.is_empty() {
            return Fact { holds: None, basis: format!("{file} states no languages") };
        }
        let basis = format!("{file}: {}", contender.languages.join(", "));
        Fact::new(self.usable_from(&contender.languages), &basis)
    }

    /// Whether these languages are enough for the question: one of those that it names, or all of them.
    fn usable_from(&self, has: &[String]) -> bool {
        let Question { languages, all_languages, .. } = self.question;
        let mut wanted = languages.iter();
        if *all_languages {
            wanted.all(|l| has.contains(l))
        } else {
            wanted.any(|l| has.contains(l))
        }
    }

    fn licence(&self) -> Fact {
        let wanted = &self.question.licences;
        let named = |one: &str| wanted.iter().any(|w| w.eq_ignore_ascii_case(one.trim()));
        // With alternative licences, the user may choose: one that is wanted, or one that is not unwanted, is enough.
        let names = |expression: &str| match self.unwanted(Property::Licence) {
            false => expression.split(" OR ").any(named),
            true => expression.split(" OR ").all(named),
        };
        match self.entry.contender() {
            None if !self.in_user_space() => {
                self.satisfied(Property::Licence, "a kernel interface: no library is linked")
            }
            None => Fact::new(names(OWN_LICENCE), &format!("Crossway's own code: {OWN_LICENCE}")),
            Some(contender) => match &contender.licence {
                None => Fact {
                    holds: None,
                    basis: format!("{} states no licence", contender.file.display()),
                },
                Some(stated) => {
                    Fact::new(names(stated), &format!("{}: {stated}", contender.file.display()))
                }
            },
        }
    }

    /// A fact in favour of the mechanism: the property holds if the question wants it, and does not hold if the
    /// question does not want it.
    fn satisfied(&self, property: Property, basis: &str) -> Fact {
        Fact::new(!self.unwanted(property), basis)
    }

    fn unwanted(&self, property: Property) -> bool {
        matches!(self.question.wish(property), Wish::Avoid | Wish::Prohibit)
    }

    /// Evidence from fault records: the property holds if all measured attempts with these faults satisfy `good`; it is
    /// unknown if there are none.
    fn tested(&self, faults: &[Fault], good: impl Fn(&FaultRecord) -> bool) -> Fact {
        let mine = || {
            self.faults.iter().filter(|r| {
                r.mechanism == self.entry.id()
                    && r.status == Status::Ok
                    && faults.contains(&r.fault)
            })
        };
        let count = mine().count();
        if count == 0 {
            return Fact { holds: None, basis: NO_FAULTS.to_owned() };
        }
        match mine().find(|r| !good(r)) {
            None => {
                Fact { holds: Some(true), basis: format!("fault tests on this machine: {count}") }
            }
            Some(bad) => {
                let after = bad
                    .detected_after_ns
                    .map_or(String::new(), |ns| format!(" after {:.3} ms", ns as f64 / 1e6));
                Fact {
                    holds: Some(false),
                    basis: format!(
                        "in the fault test '{}' of {} (state: {}), the outcome for the survivor was '{}'{after} \
                         (run {})",
                        word(bad.fault),
                        bad.mechanism,
                        word(bad.state),
                        bad.outcome.map_or_else(|| "not judged".to_owned(), word),
                        bad.run
                    ),
                }
            }
        }
    }
}

/// The name of a value in records.
fn word(value: impl Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|v| v.as_str().map(str::to_owned)).unwrap_or_default()
}
