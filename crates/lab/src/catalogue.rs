//! All that can be measured here: Crossway's own mechanisms and the contenders that are declared on this machine.
//!
//! The mechanisms are fixed when Crossway is compiled. Contenders are read from files once, at the program's start
//! ([`declare`]); whoever asks for facts of something by its id asks here.

use std::sync::OnceLock;

use crossway_mech::{Caps, Probe, registry};

use crate::contender::{Contender, DeclarationError};

static CONTENDERS: OnceLock<Vec<Contender>> = OnceLock::new();

/// Something that can be measured.
#[derive(Clone, Copy)]
pub enum Entry {
    /// One of Crossway's own.
    Mechanism(&'static registry::Entry),
    /// A program outside of it.
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

    /// One line for people.
    pub fn about(&self) -> &'static str {
        match self {
            Entry::Mechanism(entry) => entry.about,
            Entry::Contender(contender) => &contender.about,
        }
    }

    /// What it can do.
    pub fn caps(&self) -> Caps {
        match self {
            Entry::Mechanism(entry) => (entry.caps)(),
            Entry::Contender(contender) => contender.caps,
        }
    }

    /// Whether it works here: tried, not guessed.
    pub fn probe(&self) -> Probe {
        match self {
            Entry::Mechanism(entry) => (entry.probe)(),
            Entry::Contender(contender) => contender.probe(),
        }
    }

    /// What would let messages of this size through, where anything would.
    pub fn remedy_for_size(&self, len: usize) -> Option<String> {
        match self {
            Entry::Mechanism(entry) => (entry.remedy_for_size)(len),
            Entry::Contender(_) => None,
        }
    }

    /// Whether it is a program outside of Crossway.
    pub fn is_contender(&self) -> bool {
        matches!(self, Entry::Contender(_))
    }

    /// The contender, where it is one.
    pub fn contender(&self) -> Option<&'static Contender> {
        match self {
            Entry::Mechanism(_) => None,
            Entry::Contender(contender) => Some(contender),
        }
    }
}

/// Adds contenders to what can be measured; to be called once, before anything is asked.
///
/// # Errors
/// Two of them, or one of them and a mechanism, have the same id.
pub fn declare(contenders: Vec<Contender>) -> Result<(), DeclarationError> {
    for (at, contender) in contenders.iter().enumerate() {
        let file = contender.file.display().to_string();
        let former = contenders[..at].iter().find(|other| other.id == contender.id);
        let taken = match former {
            Some(former) => format!("declared in {} already", former.file.display()),
            None if registry::find(&contender.id).is_some() => "one of Crossway's own".to_owned(),
            None => continue,
        };
        let why = format!("the id is {taken}; give one of them another id");
        return Err(DeclarationError::Bad { file, id: contender.id.clone(), why });
    }
    let _ = CONTENDERS.set(contenders);
    Ok(())
}

/// The contenders that are declared, in the order of their files.
pub fn contenders() -> &'static [Contender] {
    CONTENDERS.get().map_or(&[], Vec::as_slice)
}

/// Everything: the mechanisms in the registry's order, then the contenders.
pub fn all() -> impl Iterator<Item = Entry> {
    let mechanisms = registry::ALL.iter().map(Entry::Mechanism);
    mechanisms.chain(contenders().iter().map(Entry::Contender))
}

/// What has this id.
pub fn find(id: &str) -> Option<Entry> {
    all().find(|entry| entry.id() == id)
}

/// Whether this is the id of a contender.
pub fn is_contender(id: &str) -> bool {
    contenders().iter().any(|contender| contender.id == id)
}
