//! `crossway report`: a run's results as an HTML page, on the terminal, as Markdown, JSON, a chart or a bundle.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use crossway_records::records_io::{RESULTS, read_records};
use crossway_records::shell;
use crossway_report::bundle::{self, Identity, Replaced};
use crossway_report::terminal::{self, Told};
use crossway_report::units::count;
use crossway_report::{Run as Records, html, json, svg};

use super::Run;
use crate::args::{self, RUN};
use crate::output;
use crate::ui::Ui;

/// Make a self-contained HTML page of a run's results
///
/// Without options, writes the page to report.html in the run's folder and prints a short summary:
/// the answer and one table of the best and the best-known mechanisms. The other formats go to
/// standard output unless -o names a file.
#[derive(clap::Args)]
pub(crate) struct Report {
    /// Run to report: its folder, its results.jsonl, its name, or `latest` [default: latest]
    #[arg(value_name = RUN, add = args::known_runs())]
    dir: Option<PathBuf>,
    /// Write the page, or the selected format, to this file
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print all figures, formatted for a terminal, instead of the short summary
    #[arg(long, group = "form")]
    terminal: bool,
    /// Print the summary as Markdown, e.g. for a README
    #[arg(long, group = "form")]
    markdown: bool,
    /// Print the aggregated figures as JSON
    #[arg(long, group = "form")]
    json: bool,
    /// Print one chart as SVG
    #[arg(long, group = "form", value_name = "CHART", value_parser = svg::CHARTS)]
    chart: Option<String>,
    /// Pack records, plan, machine and page into one archive, to attach to an issue; names of hosts and users and all
    /// addresses are replaced by labels. Writes bundle.tar.gz to the run's folder unless -o names a file
    #[arg(long, group = "form")]
    bundle: bool,
    /// Keep names and addresses in the bundle
    #[arg(long, requires = "bundle")]
    with_names: bool,
    /// Whether the run has just been measured: the warnings before it have been printed, and the
    /// command has no option for the page's place
    #[arg(skip)]
    just_measured: bool,
}

/// What to do if the user's file cannot be written.
const ANOTHER_FILE: &str = "name another file with -o";

impl Run for Report {
    fn run(self, ui: &Ui) -> anyhow::Result<ExitCode> {
        let dir = args::run_or_latest(self.dir.as_deref(), ui)?;
        if self.bundle {
            return self.write_bundle(&dir);
        }
        let run = Records::read(&dir)?;
        if self.json {
            self.emit(&format!("{:#}\n", json::document(&run)))?;
        } else if let Some(id) = &self.chart {
            let chart = svg::chart(&run, id).with_context(|| {
                format!("{} has no records for the chart '{id}'", dir.display())
            })?;
            self.emit(&chart)?;
        } else if self.markdown {
            self.emit(&terminal::markdown(&run))?;
        } else if self.terminal {
            self.emit(&terminal::terminal(&run, ui.colour && self.output.is_none(), ui.width))?;
        } else {
            let page = beside(&dir, "report.html");
            let remedy = match self.just_measured {
                true => format!(
                    "the records are complete; write the page elsewhere: crossway report {} -o FILE",
                    shell::word(&dir)
                ),
                false => ANOTHER_FILE.to_owned(),
            };
            let page = self.write_to(page, &remedy, |out| Ok(html::write(&run, out)?))?;
            let told = if self.just_measured { Told::Before } else { Told::NotYet };
            print!("{}", terminal::brief(&run, ui.colour, ui.width, told));
            println!("Report with intervals and charts: {}", page.display());
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Report {
    /// Returns the options that write the page to the run's folder and print the summary, as after a measurement.
    pub(super) fn page_of(dir: &Path) -> Report {
        Report {
            dir: Some(dir.to_owned()),
            output: None,
            terminal: false,
            markdown: false,
            json: false,
            chart: None,
            bundle: false,
            with_names: false,
            just_measured: true,
        }
    }

    fn write_bundle(&self, dir: &Path) -> anyhow::Result<ExitCode> {
        let file = beside(dir, "bundle.tar.gz");
        if !dir.is_dir() && !dir.ends_with(RESULTS) {
            bail!("a bundle is made of a run's folder; {} is a file beside it", dir.display());
        }
        let dir = match beside(dir, "") {
            here if here.as_os_str().is_empty() => PathBuf::from("."),
            dir => dir,
        };
        let redaction = match self.with_names {
            true => {
                read_records(&dir)?;
                None
            }
            false => Some(bundle::names_in(&dir, Identity::here())?),
        };
        let mut replaced = Replaced::default();
        let file = self.write_to(file, ANOTHER_FILE, |out| {
            replaced = bundle::write(&dir, redaction, out)?;
            Ok(())
        })?;
        println!("Bundle: {}", file.display());
        if self.with_names {
            println!("It contains names and addresses as they were recorded.");
            return Ok(ExitCode::SUCCESS);
        }
        let Replaced { hosts, users, addresses, left } = replaced;
        println!(
            "Replaced by labels: {}, {}, {}. Look into the archive before you publish it: names of programs, and names \
             in texts that programs printed, are in it.",
            count(hosts, "name of a host", "names of hosts"),
            count(users, "name of a user", "names of users"),
            count(addresses, "address", "addresses"),
        );
        for name in left {
            eprintln!(
                "warning: the name '{name}' was left, because records use the same word for something else"
            );
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Writes the file that the user has named or, without one, `usual`. Returns its path.
    fn write_to(
        &self,
        usual: PathBuf,
        remedy: &str,
        fill: impl FnOnce(&mut BufWriter<File>) -> anyhow::Result<()>,
    ) -> anyhow::Result<PathBuf> {
        match &self.output {
            Some(named) => output::write(named, remedy, fill).map(|()| named.clone()),
            None => output::replace(&usual, remedy, fill).map(|()| usual),
        }
    }

    fn emit(&self, text: &str) -> anyhow::Result<()> {
        match &self.output {
            Some(path) => {
                output::write(path, ANOTHER_FILE, |out| Ok(out.write_all(text.as_bytes())?))
            }
            None => {
                print!("{text}");
                Ok(())
            }
        }
    }
}

/// Returns the path of a file in the run's folder.
fn beside(records: &Path, name: &str) -> PathBuf {
    let dir = if records.is_dir() { records } else { records.parent().unwrap_or(Path::new("")) };
    dir.join(name)
}
