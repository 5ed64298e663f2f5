//! The section that compares MPI over TCP with MPI over TIPC.

use crossway_lab::mpi::{Library, MpiRecord, MpiResult, Way};
use crossway_records::stats::{Estimate, median, ratio_interval};

use crate::run::Run;
use crate::section::Section;
use crate::sheet::{Cell, Row, Sheet};
use crate::units::{Quantity, count};

/// A figure of the ranks.
#[derive(Clone, Copy)]
pub(crate) struct MpiFigure {
    pub(crate) name: &'static str,
    quantity: Quantity,
    of: fn(&MpiResult) -> f64,
}

/// The application whose strips exchange their edges.
pub(crate) const HALO: MpiFigure =
    MpiFigure { name: "grid with halo", quantity: Quantity::Duration, of: |r| r.halo_ns };
/// Half a round trip of a small message.
pub(crate) const SMALL: MpiFigure =
    MpiFigure { name: "8 B, one way", quantity: Quantity::Duration, of: |r| r.small_one_way_ns };

const FIGURES: [MpiFigure; 5] = [
    SMALL,
    MpiFigure { name: "64 KiB, one way", quantity: Quantity::Duration, of: |r| r.large_one_way_ns },
    MpiFigure {
        name: "8 B, 64 in flight",
        quantity: Quantity::MessageRate,
        of: |r| r.small_msgs_per_s,
    },
    MpiFigure {
        name: "64 KiB, 64 in flight",
        quantity: Quantity::ByteRate,
        of: |r| r.large_bytes_per_s,
    },
    HALO,
];

/// The trials of one library and way that passed.
pub(crate) fn results(records: &[MpiRecord], library: Library, way: Way) -> Vec<MpiResult> {
    let here = |r: &&MpiRecord| r.library == Some(library) && r.way == Some(way);
    records.iter().filter(here).filter_map(|r| r.result).collect()
}

/// The libraries with at least one trial that passed.
pub(crate) fn libraries(records: &[MpiRecord]) -> Vec<Library> {
    let measured =
        |library: &Library| Way::ALL.iter().any(|way| !results(records, *library, *way).is_empty());
    Library::ALL.into_iter().filter(measured).collect()
}

impl MpiFigure {
    /// How much more time it takes this way than over TCP: 2 is twice as long, or half the rate.
    pub(crate) fn times_of_tcp(
        self,
        records: &[MpiRecord],
        library: Library,
        way: Way,
    ) -> Option<Estimate> {
        let time = |r: &MpiResult| match self.quantity {
            Quantity::Duration => (self.of)(r),
            _ => 1.0 / (self.of)(r),
        };
        let of = |way| results(records, library, way).iter().map(time).collect::<Vec<f64>>();
        let (this, tcp) = (of(way), of(Way::Tcp));
        let interval = ratio_interval(&this, &tcp, 0.95)?;
        Some(Estimate {
            value: median(&this)? / median(&tcp)?,
            low: interval.low,
            high: interval.high,
            n: this.len().min(tcp.len()),
        })
    }
}

/// What the table says, in one line for each library that was measured over both.
pub(crate) fn lines(records: &[MpiRecord]) -> Vec<String> {
    let times = |figure: MpiFigure, library| {
        let times = figure.times_of_tcp(records, library, Way::Tipc)?;
        Some(Quantity::Number.show_two(times.value))
    };
    let line = |library: Library| {
        let (halo, small) = (times(HALO, library)?, times(SMALL, library)?);
        Some(format!(
            "{} over TIPC: {halo} times as long as over TCP in an application, {small} times for 8 B",
            library.name()
        ))
    };
    libraries(records).into_iter().filter_map(line).collect()
}

/// The table of all libraries and ways; nothing if no trial passed.
pub(crate) fn section(run: &Run) -> Option<Section> {
    let libraries = libraries(&run.mpi);
    let trials = run.mpi.iter().filter(|r| r.result.is_some()).map(|r| r.trial).max()? as usize + 1;
    let mut rows = Vec::new();
    for library in libraries {
        for way in Way::ALL {
            let here = results(&run.mpi, library, way);
            if here.is_empty() {
                continue;
            }
            let mut cells = vec![Cell::text(library.name()), Cell::text(way.name())];
            cells.extend(FIGURES.map(|figure| match way {
                Way::Tcp => {
                    let values: Vec<f64> = here.iter().map(figure.of).collect();
                    Cell::figure(figure.quantity, Estimate::of(&values))
                }
                _ => Cell::figure(Quantity::Number, figure.times_of_tcp(&run.mpi, library, way)),
            }));
            let share: Vec<f64> = here.iter().map(|r| r.halo_in_mpi).collect();
            cells.push(Cell::figure(Quantity::Share, Estimate::of(&share)));
            rows.push(Row { class: None, cells });
        }
    }
    let mut heads = vec!["MPI".to_owned(), "Carried by".to_owned()];
    heads.extend(FIGURES.map(|figure| figure.name.to_owned()));
    heads.push("of it in MPI".to_owned());
    Some(Section {
        id: "mpi",
        title: "MPI over TCP and over TIPC",
        paragraphs: vec![format!(
            "Two ranks of an unmodified MPI on two virtual hosts, in {}, each way in turn; every byte was checked. \
             Figures of TIPC are times as multiples of the same library's over TCP: less than 1 is faster. One node: \
             both ranks use one tipcd, so that there is no link between them.",
            count(trials, "round", "rounds")
        )],
        tables: vec![Sheet {
            title: "Two ranks".to_owned(),
            heads,
            rows,
            sortable: false,
            notes: Vec::new(),
        }],
        ..Section::default()
    })
}
