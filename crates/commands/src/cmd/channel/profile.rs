//! `crossway channel profile`.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use crossway_channel::{Profile, Transport};
use crossway_lab::channel_profile::{self, Measured};
use crossway_lab::env::Environment;
use crossway_records::records_io::{self, read_records};

use crate::args::{self, RUN};
use crate::output;
use crate::table::{Align, Grid};
use crate::ui::Ui;

/// The command that measures the transports within a host.
const MEASURE: &str = "crossway measure quick -f 'shm-*|uds-seqpacket*'";

/// Arguments of `profile`.
#[derive(clap::Args)]
pub(super) struct Write {
    /// Run to compute the costs from: its folder, its results.jsonl, its name, or `latest`; `crossway measure quick`
    /// makes a suitable run [default: latest]
    #[arg(value_name = RUN, add = args::known_runs())]
    run: Option<PathBuf>,
    /// Write the profile to this file, for use with --profile or $CROSSWAY_CHANNEL_PROFILE
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print the profile as JSON
    #[arg(long)]
    json: bool,
}

impl Write {
    pub(super) fn run(self, ui: &Ui) -> anyhow::Result<ExitCode> {
        let path = args::run_or_latest(self.run.as_deref(), ui)?;
        let records = read_records(&path)?.records;
        let measured = channel_profile::of(&records).with_context(|| {
            format!(
                "{} has no throughput cases with at least three message sizes for any transport that channels use; measure them with: {MEASURE}",
                path.display()
            )
        })?;
        let there = records_io::read_beside::<Environment>(&path, records_io::ENVIRONMENT)?;
        if there.is_some_and(|there| {
            Environment::take().is_ok_and(|here| here.machine_id != there.machine_id)
        }) {
            ui.note(&format!(
                "{} was measured on another machine, so the costs may be wrong for this one",
                path.display()
            ));
        }
        if measured.bases.is_empty() {
            let reasons =
                measured.refused.iter().map(|(transport, why)| format!("{transport}: {why}"));
            let here = measured.refused.keys().any(|transport| !is_between_hosts(transport));
            let how = if here { format!(": {MEASURE} --trials 15") } else { String::new() };
            bail!(
                "{} has no trials that allow a statement about costs ({}); measure again while the machine is idle, \
                 with more trials{how}",
                path.display(),
                reasons.collect::<Vec<_>>().join("; ")
            );
        }
        if let Some(file) = &self.output {
            output::write(file, "name another file with -o", |out| {
                serde_json::to_writer_pretty(&mut *out, &measured.profile)?;
                Ok(out.write_all(b"\n")?)
            })?;
        }
        for (transport, why) in &measured.refused {
            ui.note(&format!("{transport} keeps its default costs: {why}"));
        }
        let bases: Vec<Transport> = measured.bases.keys().copied().collect();
        for warning in mixed(&bases, &measured.refused.keys().copied().collect::<Vec<_>>()) {
            ui.note(&warning);
        }
        if self.json {
            ui.print_json(&measured.profile)?;
        } else {
            show(&measured, ui);
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn show(measured: &Measured, ui: &Ui) {
    let heads = ["ns/message", "ns/byte", "ns/wake-up", "line", "scatter", "trials"];
    let heads = heads.map(|head| (head, Align::Right));
    let mut grid = Grid::new([("transport", Align::Left)].into_iter().chain(heads));
    for (transport, default) in Profile::default().costs {
        let cost = measured.profile.costs.get(&transport).unwrap_or(&default);
        let basis = measured.bases.get(&transport);
        let ratio =
            |worst: Option<f64>| worst.map_or("-".to_owned(), |worst| format!("{worst:.2} x"));
        grid.row([
            transport.to_string(),
            format!("{:.0}", cost.message_ns),
            format!("{:.3}", cost.byte_ns),
            format!("{:.0}", cost.wake_ns),
            ratio(basis.map(|basis| basis.distance)),
            ratio(basis.map(|basis| basis.scatter)),
            basis.map_or("default".to_owned(), |b| format!("{} + {}", b.streams, b.round_trips)),
        ]);
    }
    println!("{}", grid.text(ui));
    ui.print_wrapped(
        0,
        "line: how far the costs are from the median time of a message size, at most; scatter: the largest ratio \
         between the ends of the 95 % interval of such a median; trials: of streams + of round trips. Smaller \
         differences between transports are not established.",
    );
    for (transport, basis) in &measured.bases {
        if basis.round_trips == 0 {
            ui.print_wrapped(
                0,
                &format!(
                    "{transport}: the cost of a wake-up is the default, as there are no round trips"
                ),
            );
        }
    }
}

/// Whether channels use the transport between hosts.
fn is_between_hosts(transport: &Transport) -> bool {
    matches!(transport, Transport::Tcp | Transport::Tipc)
}

/// Warns of default costs with which a channel compares measured ones: those of the other transports within a host, or
/// of the other transport between hosts. `refused` are the transports whose trials allow no statement.
fn mixed(measured: &[Transport], refused: &[Transport]) -> Vec<String> {
    let mut warnings = Vec::new();
    for (is_between, how) in [
        (false, format!("measure them, too: {MEASURE}").as_str()),
        (true, "measure both between the same hosts"),
    ] {
        let all =
            Profile::default().costs.into_keys().filter(|t| is_between_hosts(t) == is_between);
        let (known, missing): (Vec<_>, Vec<_>) = all.partition(|t| measured.contains(t));
        if known.is_empty() || missing.is_empty() {
            continue;
        }
        let again = "measure again while the machine is idle, with more trials (--trials 15)";
        let how = if missing.iter().all(|t| refused.contains(t)) { again } else { how };
        let names: Vec<String> = missing.iter().map(Transport::to_string).collect();
        warnings.push(format!(
            "the default costs of {} are rough figures of another machine. A channel that compares them with measured \
             costs may choose the wrong transport; {how}",
            names.join(", ")
        ));
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_costs_beside_measured_ones_of_the_same_reach_are_a_warning() {
        use Transport::{ShmEventfd, ShmFutex, ShmSpin, Tcp, UdsSeqpacket};
        let local = [ShmSpin, ShmFutex, ShmEventfd, UdsSeqpacket];
        assert_eq!(mixed(&local, &[]), [""; 0]);
        let [warning] = &mixed(&local[..2], &[ShmEventfd])[..] else { panic!("one warning") };
        assert!(warning.starts_with("the default costs of shm-eventfd, uds-seqpacket are rough"));
        assert!(warning.ends_with(MEASURE), "{warning}");
        let refused = [ShmEventfd, UdsSeqpacket];
        let [warning] = &mixed(&local[..2], &refused)[..] else { panic!("one warning") };
        assert!(warning.ends_with("(--trials 15)"), "they were measured: {warning}");
        let [warning] = &mixed(&[Tcp], &[])[..] else { panic!("one warning") };
        assert!(warning.starts_with("the default costs of tipc are rough"), "{warning}");
    }
}
