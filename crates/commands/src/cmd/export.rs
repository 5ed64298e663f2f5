//! `crossway export`.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use crossway_records::export::{COLUMNS, write_csv};
use crossway_records::record::Record;
use crossway_records::records_io::read_records;
use crossway_report::units::count;

use super::Run;
use crate::args::{self, RUN};
use crate::output;
use crate::table::Grid;
use crate::ui::{self, Ui};

/// Export a run's records as a flat table in CSV or Parquet format
#[derive(clap::Args)]
pub(crate) struct Export {
    /// Run to export: its folder, its results.jsonl, its name, or `latest` [default: latest]
    #[arg(value_name = RUN, add = args::known_runs())]
    run: Option<PathBuf>,
    /// File to write; the extension .csv or .parquet selects the format [default: CSV to standard output]
    #[arg(short, long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Format of the table, if the file's extension does not select it
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// List the columns of the table with their types and meanings
    #[arg(long)]
    columns: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    Csv,
    Parquet,
}

impl Run for Export {
    fn run(self, ui: &Ui) -> anyhow::Result<ExitCode> {
        if self.columns {
            print_columns(ui);
            return Ok(ExitCode::SUCCESS);
        }
        let format = self.format()?;
        if format == Format::Parquet && cfg!(not(feature = "parquet")) {
            bail!(
                "this program was built without Parquet: export CSV, or build it with the feature 'parquet'"
            );
        }
        let loaded = read_records(&args::run_or_latest(self.run.as_deref(), ui)?)?;
        for warning in &loaded.warnings {
            eprintln!("crossway: {warning}");
        }
        let Some(path) = &self.out else {
            write_csv(&loaded.records, std::io::stdout().lock()).map_err(ui::output_failed)?;
            return Ok(ExitCode::SUCCESS);
        };
        output::write(path, "name another file with --out", |out| match format {
            Format::Csv => Ok(write_csv(&loaded.records, out)?),
            Format::Parquet => write_parquet(&loaded.records, out),
        })?;
        eprintln!(
            "{} written to {}",
            count(loaded.records.len(), "record", "records"),
            path.display()
        );
        Ok(ExitCode::SUCCESS)
    }
}

impl Export {
    fn format(&self) -> anyhow::Result<Format> {
        let ending = self.out.as_ref().and_then(|p| p.extension()).and_then(|e| e.to_str());
        match (self.format, ending) {
            (Some(Format::Parquet), _) if self.out.is_none() => {
                bail!("Parquet is a binary format: name a file with --out")
            }
            (Some(format), _) => Ok(format),
            (None, None) if self.out.is_none() => Ok(Format::Csv),
            (None, Some("csv")) => Ok(Format::Csv),
            (None, Some("parquet")) => Ok(Format::Parquet),
            (None, _) => bail!("the file's extension is neither .csv nor .parquet: add --format"),
        }
    }
}

#[cfg(feature = "parquet")]
fn write_parquet(records: &[Record], out: impl Write + Send) -> anyhow::Result<()> {
    let records: Vec<_> = records.iter().collect();
    Ok(crossway_records::export::write_parquet(&records, out)?)
}

#[cfg(not(feature = "parquet"))]
fn write_parquet(_: &[Record], _: impl Write + Send) -> anyhow::Result<()> {
    unreachable!("refused before the file is opened")
}

fn print_columns(ui: &Ui) {
    let mut grid = Grid::of_text(["column", "type", "meaning"]);
    for column in COLUMNS {
        grid.row([column.name, &format!("{:?}", column.kind).to_lowercase(), column.about]);
    }
    println!("{}", grid.text(ui));
}
