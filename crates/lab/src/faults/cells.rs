//! The cells of the matrix: what is tested for each mechanism.

use super::{Fault, Side, State};

/// One fault, injected into one end in one state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cell {
    pub(super) fault: Fault,
    pub(super) state: State,
    pub(super) affected: Side,
    /// Number of attempts.
    pub(super) trials: u32,
}

/// Number of attempts per kill. Several are needed, because the effect of a kill depends on its timing.
const KILLS: u32 = 3;

const STATES: [(Fault, State); 15] = [
    (Fault::Kill, State::Idle),
    (Fault::Kill, State::Sending),
    (Fault::Kill, State::Receiving),
    (Fault::Kill, State::Full),
    (Fault::Kill, State::NotReceiving),
    (Fault::Kill, State::WritingInPlace),
    (Fault::Kill, State::ReadingInPlace),
    (Fault::Stop, State::Sending),
    (Fault::Stop, State::Receiving),
    (Fault::Garbage, State::Idle),
    (Fault::WrongLength, State::Sending),
    (Fault::FullQueue, State::Sending),
    (Fault::FullDescriptorTable, State::Opening),
    (Fault::FullDescriptorTable, State::Receiving),
    (Fault::LockedMemory, State::Opening),
];

/// Faults that affect the whole machine instead of one end.
const SHARED: [(Fault, State); 2] =
    [(Fault::FullDisk, State::Opening), (Fault::FullShm, State::Opening)];

/// All cells.
pub(super) fn all() -> Vec<Cell> {
    let mut cells = Vec::new();
    for (fault, state) in STATES {
        let trials = if fault == Fault::Kill { KILLS } else { 1 };
        for affected in [Side::Listener, Side::Connector] {
            cells.push(Cell { fault, state, affected, trials });
        }
    }
    for (fault, state) in SHARED {
        cells.push(Cell { fault, state, affected: Side::Listener, trials: 1 });
    }
    cells
}

impl Cell {
    /// The end that is observed: the other end, or the affected end itself if the queue is full or a resource is
    /// exhausted.
    pub(super) fn survivor(&self) -> Side {
        match self.fault {
            Fault::Kill | Fault::Stop | Fault::Garbage | Fault::WrongLength => {
                self.affected.other()
            }
            _ => self.affected,
        }
    }
}
