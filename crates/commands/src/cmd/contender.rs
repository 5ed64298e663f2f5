//! `crossway contender`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use crossway_lab::catalogue;
use crossway_lab::contender::{self, Contender, Folders, Language};
use crossway_lab::examination::{self, Verdict};
use crossway_lab::shutdown;
use crossway_mech::{Caps, Probe};
use crossway_sys::lease;
use serde::Serialize;

use super::Run;
use crate::args;
use crate::own;
use crate::table::Grid;
use crate::ui::{self, Ui};

/// List, build, test and create contenders: external programs that are measured like Crossway's own mechanisms
///
/// A contender is declared in a TOML file: one that comes with Crossway, one in ~/.config/crossway/contenders, or one
/// given with --contender. The commands in a declaration run with your privileges, so read a declaration that you did
/// not write before you use it.
#[derive(clap::Args)]
pub(crate) struct ContenderCommand {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand)]
enum Action {
    /// List all declared contenders, or only the given ones, and whether each works here
    List {
        /// Ids of contenders [default: all]
        #[arg(add = args::contenders())]
        ids: Vec<String>,
        /// Print the list as JSON
        #[arg(long)]
        json: bool,
    },
    /// Build all contenders, or only the given ones, with the commands in their declarations
    Build {
        /// Ids of contenders [default: all]
        #[arg(add = args::contenders())]
        ids: Vec<String>,
    },
    /// Build all contenders, or only the given ones, and run the conformance suite on them
    Test {
        /// Ids of contenders, or declaration files [default: all declared contenders]
        #[arg(value_name = "ID|FILE", add = args::contenders())]
        which: Vec<String>,
    },
    /// Write a declaration and a working program into the current directory
    New {
        /// Id of the new contender, e.g. my-queue
        name: String,
        /// Programming language
        #[arg(long, value_enum, default_value_t = Lang::C)]
        lang: Lang,
    },
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Lang {
    C,
    Python,
    Go,
    Rust,
}

#[derive(Serialize)]
struct Row<'a> {
    id: &'a str,
    about: &'a str,
    family: &'a str,
    file: &'a PathBuf,
    caps: Caps,
    probe: Probe,
}

impl Run for ContenderCommand {
    fn run(self, ui: &Ui) -> anyhow::Result<ExitCode> {
        match self.action {
            Action::List { ids, json: true } if ids.is_empty() => {
                list(&catalogue::contenders().iter().collect::<Vec<_>>(), true, ui)
            }
            Action::List { ids, json } => list(&chosen(&ids)?, json, ui),
            Action::Build { ids } => build(&chosen(&ids)?),
            Action::Test { which } => test(&chosen(&which)?, ui),
            Action::New { name, lang } => {
                let language = match lang {
                    Lang::C => Language::C,
                    Lang::Python => Language::Python,
                    Lang::Go => Language::Go,
                    Lang::Rust => Language::Rust,
                };
                let here = std::env::current_dir().context("cannot find the current directory")?;
                for file in contender::write_starter(&here, &name, language)? {
                    println!("{}", file.display());
                }
                println!("Try it: crossway contender test ./{name}.toml");
                Ok(ExitCode::SUCCESS)
            }
        }
    }
}

impl ContenderCommand {
    /// Returns the declaration files among the arguments; they are read in addition to those of `--contender`.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        match &self.action {
            Action::Test { which } => {
                which.iter().filter(|word| is_file(word)).map(PathBuf::from).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Returns whether the subcommand needs the declared contenders.
    pub(crate) fn needs_contenders(&self) -> bool {
        !matches!(self.action, Action::New { .. })
    }
}

fn is_file(word: &str) -> bool {
    word.contains('/') || word.ends_with(".toml")
}

/// Resolves ids and declaration files to contenders; without arguments, returns all contenders.
fn chosen(words: &[String]) -> anyhow::Result<Vec<&'static Contender>> {
    let all = catalogue::contenders();
    if all.is_empty() {
        let program = own::program()?;
        let dirs = Folders::of_user(&program).declarations;
        let dirs: Vec<_> = dirs.iter().map(|dir| dir.display().to_string()).collect();
        bail!(
            "no contender is declared in {}; create one with `crossway contender new NAME`, or give a declaration file with \
             --contender FILE",
            dirs.join(" or ")
        );
    }
    if words.is_empty() {
        return Ok(all.iter().collect());
    }
    let mut found = Vec::new();
    for word in words {
        let before = found.len();
        if is_file(word) {
            let file =
                std::fs::canonicalize(word).with_context(|| format!("cannot read {word}"))?;
            found.extend(all.iter().filter(|c| c.file == file));
        } else {
            found.extend(all.iter().filter(|c| c.id == *word));
        }
        if found.len() == before {
            let ids: Vec<_> = all.iter().map(|c| c.id.as_str()).collect();
            bail!("there is no contender '{word}'; declared: {}", ids.join(", "));
        }
    }
    Ok(found)
}

fn list(contenders: &[&'static Contender], json: bool, ui: &Ui) -> anyhow::Result<ExitCode> {
    let rows: Vec<Row<'_>> = contenders
        .iter()
        .map(|c| Row {
            id: &c.id,
            about: &c.about,
            family: c.family.word(),
            file: &c.file,
            caps: c.caps,
            probe: c.probe(),
        })
        .collect();
    if json {
        ui.print_json(&rows)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut grid = Grid::of_text(["contender", "what it is", "here"]);
    for row in &rows {
        let here = match &row.probe {
            Probe::Ready { version } => version.clone(),
            Probe::Missing(obstacle) => format!("missing: {obstacle}"),
        };
        grid.row([row.id, row.about, &here]);
    }
    println!("{}", grid.text(ui));
    Ok(ExitCode::SUCCESS)
}

fn build(contenders: &[&'static Contender]) -> anyhow::Result<ExitCode> {
    let mut failed = 0;
    let mut done: Vec<&[String]> = Vec::new();
    for contender in contenders {
        // Several contenders of one declaration often share one program.
        if contender.build.is_empty() || done.contains(&contender.build.as_slice()) {
            continue;
        }
        println!("{}: {}", contender.id, contender.build.join(" "));
        if let Err(error) = contender.build() {
            eprintln!("crossway: {error}");
            failed += 1;
        }
        done.push(&contender.build);
    }
    Ok(ui::verdict(failed == 0))
}

fn test(contenders: &[&'static Contender], ui: &Ui) -> anyhow::Result<ExitCode> {
    let launcher = own::launcher()?;
    let run = lease::Run::begin(Some(launcher.reaper()))?;
    let mut broken = 0;
    for contender in contenders {
        println!("{}", ui.paint("1", &contender.id));
        if !contender.is_built()
            && let Err(error) = contender.build()
        {
            println!("  {} it can be built: {error}", ui.paint("31", "FAIL  "));
            broken += 1;
            continue;
        }
        let holds =
            examination::examine(contender, &launcher, &run, |what, verdict| match verdict {
                Verdict::Holds => println!("  {} {what}", ui.paint("32", "pass  ")),
                Verdict::Left(why) => println!("  {} {what}: {why}", ui.paint("33", "n/a   ")),
                Verdict::Broken(why) => println!("  {} {what}: {why}", ui.paint("31", "FAIL  ")),
            })?;
        broken += usize::from(!holds);
        if shutdown::asked(launcher.interrupt.as_ref()) {
            return Ok(ExitCode::from(ui::EXIT_INTERRUPTED));
        }
    }
    Ok(ui::verdict(broken == 0))
}
