//! MPI over TIPC, the future work of the cluster study (item C12).

use crossway_lab::mpi::{Library, Way};
use crossway_records::record::Status;
use crossway_records::stats::Estimate;

use super::super::call::{Call, above, all};
use super::super::evidence::{Evidence, inverse};
use super::super::{Claim, Figure, Finding};
use super::PLAN;
use crate::sections::mpi::{HALO, SMALL, libraries, results};
use crate::units::{Quantity, count, three_digits};

/// Judges the study's expectation C12, that MPI gains from TIPC.
pub(super) fn over_tipc(evidence: &Evidence<'_>) -> Finding {
    let claim = Claim {
        id: "C12",
        title: "MPI over TIPC",
        says: "As future work, the study wants MPICH2, Open MPI and PVM to use TIPC.",
        rule: "This tests whether an application would gain by it. Open MPI and MPICH, unmodified, connect two ranks \
               on two hosts by TCP, and in turn by TIPC in its place (`crossway run --via tipc`). The application \
               exchanges the edges of a grid's two strips in each of its steps. Confirmed: with each library, it takes \
               clearly less time over TIPC. Not confirmed: with one, it clearly takes as long or longer.",
    };
    let records = &evidence.run.mpi;
    let trouble = records.iter().find(|r| r.status != Status::Ok);
    let gains: Vec<(Library, Estimate)> = libraries(records)
        .into_iter()
        .filter_map(|library| {
            HALO.times_of_tcp(records, library, Way::Tipc).map(|ratio| (library, ratio))
        })
        .collect();
    if gains.is_empty() {
        let why = trouble.and_then(|r| r.reason.as_deref()).map_or_else(
            || format!("MPI was not run; run `crossway measure {PLAN}` as root"),
            |reason| format!("MPI could not be run over both: {reason}"),
        );
        return claim.without_records(why);
    }
    let call = match (all(gains.iter().map(|(_, ratio)| above(&inverse(ratio), 1.0))), trouble) {
        // Trials that failed may be those in which it is slow.
        (Call::Holds, Some(_)) => Call::Lacking,
        (call, _) => call,
    };
    let mut figures = Vec::new();
    for (library, ratio) in &gains {
        let name = library.name();
        let over_tcp: Vec<f64> =
            results(records, *library, Way::Tcp).iter().map(|r| r.halo_in_mpi).collect();
        let more = [
            ("time of the application, multiple of TCP's", Quantity::Number, Some(*ratio)),
            ("its share in MPI over TCP", Quantity::Share, Estimate::of(&over_tcp)),
            (
                "8 B, one way, multiple of TCP's",
                Quantity::Number,
                SMALL.times_of_tcp(records, *library, Way::Tipc),
            ),
        ];
        figures.extend(more.into_iter().filter_map(|(what, quantity, value)| {
            Some(Figure::new(format!("{name}: {what}"), quantity, value?))
        }));
    }
    let told: Vec<String> = gains
        .iter()
        .map(|(library, ratio)| {
            format!("{} times as long with {}", three_digits(ratio.value), library.name())
        })
        .collect();
    let failed = records.iter().filter(|r| r.status == Status::Failed).count();
    let why = format!(
        "over TIPC the application takes {}{}",
        told.join(", "),
        match trouble.filter(|_| failed > 0).and_then(|r| r.reason.as_deref()) {
            Some(reason) => format!("; {} failed: {reason}", count(failed, "trial", "trials")),
            None => String::new(),
        }
    );
    claim.judged("between two virtual hosts with a tipcd each", figures, call, why)
}
