//! The catalogue of what can be measured: Crossway's own mechanisms and the contenders declared on this machine.
//!
//! The mechanisms are fixed when Crossway is compiled. Contenders are read from files once, when the program starts
//! ([`declare`]). Facts about either are looked up here by id.

use std::sync::OnceLock;

use crossway_mech::{Caps, Carrier, Probe, registry};

pub use crossway_mech::{Boundaries, Family, NodeKind, Transport};

use crate::contender::{Contender, DeclarationError};

static CONTENDERS: OnceLock<Vec<Contender>> = OnceLock::new();

/// Something that can be measured.
#[derive(Clone, Copy)]
pub enum Entry {
    /// One of Crossway's own mechanisms.
    Mechanism(&'static registry::Entry),
    /// An external program.
    Contender(&'static Contender),
}

impl Entry {
    /// The stable id.
    pub fn id(&self) -> &'static str {
        match self {
            Entry::Mechanism(entry) => entry.id,
            Entry::Contender(contender) => &contender.id,
        }
    }

    /// A one-line description.
    pub fn about(&self) -> &'static str {
        match self {
            Entry::Mechanism(entry) => entry.about,
            Entry::Contender(contender) => &contender.about,
        }
    }

    /// The family with which the report groups the entry.
    pub fn family(&self) -> Family {
        match self {
            Entry::Mechanism(entry) => entry.carrier.family,
            Entry::Contender(contender) => contender.family,
        }
    }

    /// What carries the entry's messages; `None` for a contender, since Crossway does not know what its program uses.
    pub fn carrier(&self) -> Option<Carrier> {
        match self {
            Entry::Mechanism(entry) => Some(entry.carrier),
            Entry::Contender(_) => None,
        }
    }

    /// The entry's capabilities.
    pub fn caps(&self) -> Caps {
        match self {
            Entry::Mechanism(entry) => (entry.caps)(),
            Entry::Contender(contender) => contender.caps,
        }
    }

    /// Tests whether the entry works on this machine.
    pub fn probe(&self) -> Probe {
        match self {
            Entry::Mechanism(entry) => (entry.probe)(),
            Entry::Contender(contender) => contender.probe(),
        }
    }

    /// The step that makes messages of this size possible, in words; `None` if there is none.
    pub fn remedy_for_size(&self, len: usize) -> Option<String> {
        match self {
            Entry::Mechanism(entry) => (entry.remedy_for_size)(len),
            Entry::Contender(_) => None,
        }
    }

    /// Whether the entry is an external program.
    pub fn is_contender(&self) -> bool {
        matches!(self, Entry::Contender(_))
    }

    /// The contender, if it is one.
    pub fn contender(&self) -> Option<&'static Contender> {
        match self {
            Entry::Mechanism(_) => None,
            Entry::Contender(contender) => Some(contender),
        }
    }
}

/// Adds contenders to the catalogue; call it once, before the catalogue is used.
///
/// # Errors
/// Two contenders, or a contender and a mechanism, have the same id.
pub fn declare(contenders: Vec<Contender>) -> Result<(), DeclarationError> {
    for (at, contender) in contenders.iter().enumerate() {
        let file = contender.file.display().to_string();
        let former = contenders[..at].iter().find(|other| other.id == contender.id);
        let taken = match former {
            Some(former) => format!("already declared in {}", former.file.display()),
            None if registry::find(&contender.id).is_some() => {
                "used by one of Crossway's own mechanisms".to_owned()
            }
            None => continue,
        };
        let why = format!("the id is {taken}; choose another id");
        return Err(DeclarationError::Bad { file, id: contender.id.clone(), why });
    }
    let _ = CONTENDERS.set(contenders);
    Ok(())
}

/// The declared contenders, in the order of their files.
pub fn contenders() -> &'static [Contender] {
    CONTENDERS.get().map_or(&[], Vec::as_slice)
}

/// All entries: the mechanisms in the registry's order, then the contenders.
pub fn all() -> impl Iterator<Item = Entry> {
    let mechanisms = registry::ALL.iter().map(Entry::Mechanism);
    mechanisms.chain(contenders().iter().map(Entry::Contender))
}

/// The entry with this id.
pub fn find(id: &str) -> Option<Entry> {
    all().find(|entry| entry.id() == id)
}

/// Whether this is the id of a contender.
pub fn is_contender(id: &str) -> bool {
    contenders().iter().any(|contender| contender.id == id)
}
