//! The kinds of memory in which rings can be.
//!
//! Rings in memory of a special kind have their control words in plain shared memory: they would
//! waste most of a huge page, and futex(2) refuses secret memory.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use crossway_ring::region::Dimensions;
use crossway_sys::shm::{self, Mapping};
use crossway_sys::{Errno, OsError, shm_kinds};

use crate::{Offer, OpenError, Spec};

/// A kind of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// A sealed memfd.
    Pages,
    /// A sealed memfd of huge pages (MFD_HUGETLB).
    Huge,
    /// Secret memory (memfd_secret(2)).
    Secret,
}

/// The memory of a channel.
#[derive(Debug)]
pub struct Memory {
    /// The control words, and the rings if they are not apart.
    control: OwnedFd,
    rings: Option<OwnedFd>,
}

impl Memory {
    /// Adds the memory's descriptors to an offer.
    pub fn into_offer(self, offer: Offer) -> Offer {
        let offer = offer.with_fd("memory", self.control);
        match self.rings {
            Some(rings) => offer.with_fd("rings", rings),
            None => offer,
        }
    }
}

impl Backing {
    /// The dimensions that rings have in this memory, which consists of whole pages.
    ///
    /// # Errors
    /// The kernel has no memory of this kind.
    pub fn dimensions(self, wanted: Dimensions) -> Result<Dimensions, OsError> {
        match self {
            Backing::Huge => Ok(wanted.in_pages_of(shm_kinds::huge_page_len()?)),
            Backing::Pages | Backing::Secret => Ok(wanted),
        }
    }

    /// Creates the memory. `id` appears in `/proc`.
    ///
    /// # Errors
    /// The kernel has no memory of this kind.
    pub fn create(self, id: &str, dimensions: Dimensions) -> Result<Memory, OsError> {
        let label = format!("crossway-{id}");
        let len = dimensions.rings_len();
        let rings = match self {
            Backing::Pages => None,
            Backing::Huge => Some(shm_kinds::create_huge(&label, len)?),
            Backing::Secret => Some(shm_kinds::create_secret(len)?),
        };
        Ok(Memory { control: shm::create_sealed(&label, self.control_len(dimensions))?, rings })
    }

    /// Takes the memory out of an offer. `id` names the mechanism in errors.
    ///
    /// # Errors
    /// It is not there.
    pub fn take(self, id: &'static str, offer: &mut Offer) -> Result<Memory, OpenError> {
        let control = offer.take_fd(id, "memory")?;
        let rings = match self {
            Backing::Pages => None,
            Backing::Huge | Backing::Secret => Some(offer.take_fd(id, "rings")?),
        };
        Ok(Memory { control, rings })
    }

    /// Whether the memory is of this kind, has the agreed size, and keeps it.
    ///
    /// # Errors
    /// A descriptor is none of memory.
    pub fn is_safe(self, memory: &Memory, dimensions: Dimensions) -> Result<bool, OsError> {
        let rings_are = match (&memory.rings, self) {
            (None, _) => true,
            (Some(rings), Backing::Secret) => {
                shm_kinds::is_secret(rings.as_fd(), dimensions.rings_len())?
            }
            (Some(rings), _) => shm::is_sealed(rings.as_fd(), dimensions.rings_len())?,
        };
        let control_len = self.control_len(dimensions);
        Ok(rings_are && shm::is_sealed(memory.control.as_fd(), control_len)?)
    }

    /// Maps the memory. `id` names the mechanism in errors.
    ///
    /// # Errors
    /// There is not enough memory of this kind; the error says what to do.
    pub fn map(
        self,
        id: &'static str,
        memory: &Memory,
        dimensions: Dimensions,
        spec: &Spec,
    ) -> Result<Arc<Mapping>, OpenError> {
        let Some(rings) = &memory.rings else {
            let pieces = dimensions.pieces();
            let mapping = match spec.fault_in {
                true => Mapping::of_pieces(&memory.control, &pieces),
                false => Mapping::of_pieces_lazily(&memory.control, &pieces),
            };
            return Ok(Arc::new(mapping?));
        };
        let page = match self {
            Backing::Huge => shm_kinds::huge_page_len()?,
            Backing::Pages | Backing::Secret => shm::page_len(),
        };
        let mapping = Mapping::of_two(
            &memory.control,
            Dimensions::control_len(),
            rings,
            &dimensions.ring_pieces(),
            page,
            spec.fault_in,
        );
        let mapping = mapping.map_err(|error| self.explain(id, error, dimensions, page))?;
        Ok(Arc::new(mapping))
    }

    /// Says what is missing for a mapping, if it is known.
    fn explain(
        self,
        mechanism: &'static str,
        error: OsError,
        dimensions: Dimensions,
        page: usize,
    ) -> OpenError {
        let len = dimensions.rings_len();
        let is = |errno: Errno| error.errno() == errno.raw_os_error();
        let why = match self {
            Backing::Huge if is(Errno::NOMEM) => {
                let pages = shm_kinds::huge_pages();
                let (free, total) = pages.map_or((0, 0), |pages| (pages.free, pages.total));
                let needed = len / page;
                format!(
                    "its rings need {needed} free huge pages of {page} bytes, and {free} of {total} \
                     are free; run as root: sysctl -w vm.nr_hugepages={}",
                    total + needed.saturating_sub(free)
                )
            }
            Backing::Secret if is(Errno::AGAIN) => format!(
                "its rings are mapped twice, which takes {} bytes of locked memory, more than this \
                 process may have; raise the limit (ulimit -l), or run as root",
                2 * len
            ),
            _ => return error.into(),
        };
        OpenError::Unsupported { mechanism, why }
    }

    /// What helps if there is no memory of this kind; `None` for plain memory.
    pub const fn remedy(self) -> Option<&'static str> {
        match self {
            Backing::Pages => None,
            Backing::Huge => Some(
                "reserve huge pages, as root: sysctl -w vm.nr_hugepages=64 (a channel takes two at \
                 least, and four with the usual rings of 4 MiB); the kernel needs CONFIG_HUGETLBFS",
            ),
            Backing::Secret => Some(
                "use Linux 5.14 or later with CONFIG_SECRETMEM, booted with secretmem.enable=1 \
                 (before 6.5 it is off otherwise), and raise the limit of locked memory (ulimit -l)",
            ),
        }
    }

    /// Size in bytes of the memory with the control words.
    fn control_len(self, dimensions: Dimensions) -> usize {
        match self {
            Backing::Pages => dimensions.memory_len(),
            Backing::Huge | Backing::Secret => Dimensions::control_len(),
        }
    }
}
