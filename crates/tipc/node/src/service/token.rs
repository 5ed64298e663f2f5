//! Numbers by which epoll identifies ready descriptors. They consist of a kind, an index, and a generation that
//! distinguishes successive users of the index.

/// What a descriptor belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    /// The bearer with this number.
    Bearer(u32),
    /// Device notifications for bearers.
    Device,
    /// The thread that opens and closes bearers.
    Jobs,
    /// The service's listening socket.
    Listening,
    /// A descriptor that the user of the event loop has added.
    Other,
    /// The control connection of a program.
    Client(Place),
    /// The data descriptor of a socket.
    Socket(Place),
    /// The eventfd of a socket's lanes.
    Lane(Place),
}

/// An index in a table, with the generation of its entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Place {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

/// Mask of the bits that hold an index; also the largest index.
const INDEX_MASK: u64 = (1 << 28) - 1;

impl Token {
    pub(crate) fn encode(self) -> u64 {
        let (tag, index, generation) = match self {
            Self::Bearer(index) => (0, index, 0),
            Self::Device => (5, 0, 0),
            Self::Jobs => (6, 0, 0),
            Self::Listening => (1, 0, 0),
            Self::Other => (2, 0, 0),
            Self::Client(place) => (3, place.index, place.generation),
            Self::Socket(place) => (4, place.index, place.generation),
            Self::Lane(place) => (7, place.index, place.generation),
        };
        tag << 60 | (u64::from(index) & INDEX_MASK) << 32 | u64::from(generation)
    }

    pub(crate) fn decode(raw: u64) -> Option<Self> {
        let (index, generation) = ((raw >> 32 & INDEX_MASK) as u32, raw as u32);
        let place = Place { index, generation };
        Some(match raw >> 60 {
            0 => Self::Bearer(index),
            1 => Self::Listening,
            2 => Self::Other,
            3 => Self::Client(place),
            4 => Self::Socket(place),
            5 => Self::Device,
            6 => Self::Jobs,
            7 => Self::Lane(place),
            _ => return None,
        })
    }
}

/// A table whose indices are reused, each time with a new generation.
#[derive(Debug)]
pub(crate) struct Table<T> {
    slots: slab::Slab<(u32, T)>,
    next_generation: u32,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { slots: slab::Slab::new(), next_generation: 0 }
    }
}

impl<T> Table<T> {
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Adds the entry that `make` creates; `make` is called with the entry's place. Returns the place.
    pub(crate) fn insert(&mut self, make: impl FnOnce(Place) -> T) -> Place {
        let generation = self.next_generation;
        self.next_generation = generation.wrapping_add(1);
        let entry = self.slots.vacant_entry();
        let place = Place { index: entry.key() as u32, generation };
        entry.insert((generation, make(place)));
        place
    }

    /// All entries, with their places.
    pub(crate) fn places(&self) -> impl Iterator<Item = (Place, &T)> {
        self.slots.iter().map(|(index, (generation, tenant))| {
            (Place { index: index as u32, generation: *generation }, tenant)
        })
    }

    /// All entries, for modification.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.slots.iter_mut().map(|(_, (_, tenant))| tenant)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, place: Place) -> Option<&mut T> {
        let (generation, value) = self.slots.get_mut(place.index as usize)?;
        (*generation == place.generation).then_some(value)
    }

    #[inline]
    pub(crate) fn get(&self, place: Place) -> Option<&T> {
        let (generation, value) = self.slots.get(place.index as usize)?;
        (*generation == place.generation).then_some(value)
    }

    pub(crate) fn remove(&mut self, place: Place) -> Option<T> {
        self.get_mut(place)?;
        Some(self.slots.remove(place.index as usize).1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_comes_back_from_its_number() {
        let place = Place { index: 5, generation: u32::MAX };
        for token in [
            Token::Bearer(2),
            Token::Device,
            Token::Jobs,
            Token::Listening,
            Token::Other,
            Token::Client(place),
            Token::Socket(place),
            Token::Lane(place),
        ] {
            assert_eq!(Token::decode(token.encode()), Some(token));
        }
        assert_eq!(Token::decode(u64::MAX), None);
    }

    #[test]
    fn a_place_is_not_its_earlier_tenants() {
        let mut table = Table::default();
        let old = table.insert(|_| 'a');
        assert_eq!(table.remove(old), Some('a'));
        let new = table.insert(|_| 'b');
        assert_eq!(old.index, new.index);
        assert_eq!((table.get(old), table.get(new)), (None, Some(&'b')));
        assert_eq!(table.remove(old), None);
        assert_eq!(table.len(), 1);
    }
}
