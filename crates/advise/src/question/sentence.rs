//! Describes a question in words.

use super::super::property::Property;
use super::{Pattern, Question, Shared, Site};
use crossway_lab::catalogue;
use crossway_records::cases::size_words;
use crossway_records::inputs::Workload;

impl Question {
    /// A property with the value that the question names for it, as on the command line: `language=c`.
    pub fn property_words(&self, property: Property) -> String {
        let name = property.name();
        let values = match property {
            Property::Language if self.all_languages => self.languages.join(" and "),
            Property::Language => self.languages.join(","),
            Property::Licence => self.licences.join(","),
            Property::CrashDetection => {
                self.detect_within_ms.map_or_else(String::new, |ms| format!("{ms}ms"))
            }
            _ => String::new(),
        };
        if values.is_empty() { name.to_owned() } else { format!("{name}={values}") }
    }

    /// A note about the question's languages that are neither that of Crossway's own code nor named by a contender's
    /// declaration, since they may be misspelt; `None` if there are none.
    pub(in super::super) fn unknown_languages(&self) -> Option<String> {
        let declared = |language: &str| {
            let mut contenders = catalogue::contenders().iter();
            language == "rust" || contenders.any(|c| c.languages.iter().any(|l| l == language))
        };
        let unknown: Vec<&str> =
            self.languages.iter().map(String::as_str).filter(|l| !declared(l)).collect();
        // Without contenders, no declaration can confirm a spelling.
        let is_checked = !catalogue::contenders().is_empty();
        (is_checked && !unknown.is_empty()).then(|| {
            format!(
                "no contender's declaration names the language {}; check the spelling. Kernel interfaces count as \
                 usable, because it is assumed that the language can make system calls",
                unknown.join(" or ")
            )
        })
    }

    /// The question in one sentence.
    pub fn sentence(&self) -> String {
        let sizes: Vec<String> = self
            .sizes
            .iter()
            .map(|s| {
                if self.sizes.len() == 1 {
                    size_words(s.bytes)
                } else {
                    format!("{} ({:.0} %)", size_words(s.bytes), s.share * 100.0)
                }
            })
            .collect();
        let mut text = match self.pattern {
            Pattern::RequestReply => {
                let reply = self
                    .reply_bytes
                    .map_or_else(String::new, |b| format!(", replies of {}", size_words(b)));
                let clients = match self.clients {
                    1 => String::new(),
                    several => format!("{several} clients of one server, "),
                };
                let in_flight = match self.in_flight {
                    1 => String::new(),
                    several => format!(
                        ", {}{several} in flight{}",
                        if self.rate_per_s.is_some() { "at most " } else { "" },
                        if self.clients > 1 { " each" } else { "" }
                    ),
                };
                format!("{clients}requests of {}{reply}{in_flight}", sizes.join(", "))
            }
            Pattern::Stream => format!("a stream of {} messages", sizes.join(", ")),
            Pattern::FanOut => {
                format!("one sender of {} messages to {} receivers", sizes.join(", "), self.peers)
            }
            Pattern::FanIn => {
                format!("{} senders of {} messages to one receiver", self.peers, sizes.join(", "))
            }
            Pattern::ConnectPerExchange => {
                format!("a connection for each exchange of {}", sizes.join(", "))
            }
        };
        text += &match self.rate_per_s {
            Some(rate) => {
                let full_speed =
                    "measured at full speed: a candidate must achieve at least this rate"
                        .to_owned();
                let how = self.bursts().or(self.rate_at_full_speed().map(|_| full_speed));
                let how = how.map(|how| format!(" ({how})")).unwrap_or_default();
                let of = match self.pattern {
                    Pattern::FanOut => " received by all receivers together",
                    Pattern::FanIn => " from all senders together",
                    Pattern::RequestReply if self.clients > 1 => " from all clients together",
                    _ => "",
                };
                let each = match self.workload(1) {
                    Workload::Clients { clients: peers @ 2.., period_ns: 1.., .. }
                    | Workload::FanIn { senders: peers, period_us: 1.., .. } => {
                        format!(" ({} from each)", rate / f64::from(peers))
                    }
                    _ => String::new(),
                };
                format!(", {rate} per second{of}{each}{how}")
            }
            None => ", as fast as possible".to_owned(),
        };
        text += &format!(", {}", self.site.word());
        let shared: Vec<&str> = self.shares.iter().map(|share| share.name()).collect();
        if self.apart {
            text += ", programs that were started apart";
        }
        match (self.site, &self.hosts) {
            (Site::SameHost, _) if shared.is_empty() || shared.len() == Shared::ALL.len() => {}
            (Site::OtherContainer, _) if shared.is_empty() => text += " (nothing shared)",
            (Site::SameHost | Site::OtherContainer, _) => {
                text += &format!(" (shared: {})", shared.join(", "))
            }
            (Site::OtherHost, None) => text += " (two network namespaces)",
            (Site::OtherHost, Some(hosts)) => text += &format!(" ({hosts})"),
        }
        if self.site != Site::OtherHost {
            text += &format!(", {}", self.placement.word());
        }
        text += &format!(
            ", {}",
            match crossway_records::cases::load_name(&self.load) {
                idle if idle == "idle" => "no load added".to_owned(),
                load => format!("background load ({load})"),
            }
        );
        for goal in self.goals.words() {
            text += &format!(", {goal}");
        }
        text
    }
}
