//! `crossway run`.

mod porter;
mod supervise;

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, bail};
use clap::ValueEnum;
use crossway_run::explain::VARIABLE as EXPLAIN_VARIABLE;
use crossway_run::via;
use crossway_run::wishes::{self, Budget, Family};
use crossway_sys::start;
use crossway_tipc_client::unmodified::{self, CannotRun};

use super::Run;
use crate::libraries;
use crate::ui::Ui;

/// File name of the preloaded library (crates/preload).
const LIBRARY: &str = "libcrossway_preload.so";
/// Where the library appears in a container.
const IN_CONTAINER: &str = "/opt/crossway/libcrossway_preload.so";
/// Run an unmodified program so that its TCP connections within this host become UNIX stream pairs
///
/// A connection is moved if both programs run so, belong to the same user, and the listening program accepts at once; any
/// other one stays as it is. A library that is preloaded (LD_PRELOAD) does this when a connection is made; the bytes then
/// go through the kernel's own UNIX sockets. The program replaces this process, and the programs that it starts inherit the
/// library. For programs into which no library can be loaded (statically linked, Go, musl), this process stays, and a filter
/// in the kernel passes their calls that set up connections to it. Programs that gain privileges cannot be run so.
///
/// Waking a program that sleeps takes longer than most answers. So calls that wait for a connection look at it for up to
/// 200 us before they sleep, as long as answers come that soon, and within a share of CPU time (--cpu-budget).
///
/// docs/RUN.md says what differs from TCP.
#[derive(clap::Args)]
pub(crate) struct RunUnmodified {
    /// Say for each connection what carries it and why, in FILE or on standard error
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-")]
    explain: Option<PathBuf>,
    /// CPU time that each process may spend on looking at its connections before it sleeps, in percent of one CPU; 0 for none
    /// [default: 20%]
    #[arg(long, value_name = "PERCENT")]
    cpu_budget: Option<Budget>,
    /// Only connections of these families: `tcp` (moved, and looked at before the program sleeps), `unix` (only looked at)
    /// [default: tcp,unix]
    #[arg(long, value_name = "FAMILIES", value_delimiter = ',')]
    only: Vec<Family>,
    /// Let TCP connections to other hosts travel by TIPC, if the program there runs so, too; both hosts need a tipcd of one
    /// cluster
    #[arg(long, value_name = "PROTOCOL", conflicts_with = "shell")]
    via: Option<Via>,
    /// Path of libcrossway_preload.so [default: in the directory of crossway, in ../lib, or contained]
    #[arg(long, value_name = "PATH")]
    library: Option<PathBuf>,
    /// Run nothing, but print what makes programs run so: lines for a shell, or options for `docker run` or `podman run`
    #[arg(long, value_name = "FORM", num_args = 0..=1, require_equals = true, default_missing_value = "sh")]
    shell: Option<Form>,
    /// Go on supervising the programs whose supervisor is standard input
    #[arg(long, hide = true)]
    supervise: bool,
    /// Serve the programs that connect to standard input, at the tipcd of the environment
    #[arg(long, hide = true)]
    porter: Option<porter::Step>,
    /// Program to run and its arguments
    #[arg(
        required_unless_present_any = ["shell", "supervise", "porter"],
        conflicts_with = "shell",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    program: Vec<OsString>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Form {
    /// `eval "$(crossway run --shell)"`
    Sh,
    /// `docker run $(crossway run --shell=docker) IMAGE`
    Docker,
}

/// What carries connections to other hosts.
#[derive(Clone, Copy, ValueEnum)]
enum Via {
    /// A tipcd
    Tipc,
}

impl Run for RunUnmodified {
    fn run(self, ui: &Ui) -> anyhow::Result<ExitCode> {
        let explain = self.explain.as_deref().map(place_of_explanations);
        let wishes = self.wishes()?;
        if self.supervise {
            return supervise::go_on(explain);
        }
        if let Some(step) = self.porter {
            return porter::go_on(step);
        }
        if let Some(form) = self.shell {
            let library = libraries::find(LIBRARY, self.library.as_deref())?;
            print!("{}", form.text(&library, explain.as_deref(), &wishes)?);
            return Ok(ExitCode::SUCCESS);
        }
        let Some((program, arguments)) = self.program.split_first() else {
            bail!("no program given");
        };
        if let Some(place) = &explain {
            // The program could say it to nobody.
            can_explain_at(place)?;
        }
        match unmodified::loads_libraries(program) {
            Err(
                why @ (CannotRun::Static { .. } | CannotRun::Go { .. } | CannotRun::Musl { .. }),
            ) if self.via.is_some() => {
                return Err(why).context("--via tipc needs a library in the program");
            }
            Err(CannotRun::Static { .. } | CannotRun::Go { .. } | CannotRun::Musl { .. }) => {
                if self.cpu_budget.is_some() || !self.only.is_empty() {
                    ui.tell(&format!(
                        "no library can be loaded into {}: --cpu-budget and --only have no effect on it",
                        program.display()
                    ));
                }
                return supervise::run(program, arguments, explain);
            }
            outcome => outcome?,
        }
        let library = libraries::find(LIBRARY, self.library.as_deref())?;
        let mut command: Command = unmodified::preloading(&library, program, arguments)?;
        if let Some(place) = explain {
            command.env(EXPLAIN_VARIABLE, place);
        }
        command.envs(wishes);
        if let Some(Via::Tipc) = self.via {
            command.env(via::VARIABLE, porter::start()?);
        }
        start::pass_on(&mut command);
        Err(command.exec()).with_context(|| format!("cannot run {}", program.display()))
    }
}

impl RunUnmodified {
    /// The variables that tell the library what the user wants.
    fn wishes(&self) -> anyhow::Result<Vec<(&'static str, String)>> {
        let mut wishes = Vec::new();
        if !self.only.is_empty() {
            let wanted = Family::ALL.iter().filter(|(family, _)| self.only.contains(family));
            let names: Vec<_> = wanted.map(|(_, name)| *name).collect();
            if self.cpu_budget == Some(Budget::NONE) && names == ["unix"] {
                bail!(
                    "with --only unix and --cpu-budget 0 nothing remains to be done: UNIX sockets are not moved, \
                     only awaited within the budget"
                );
            }
            wishes.push((wishes::ONLY_VARIABLE, names.join(",")));
        }
        wishes.extend(self.cpu_budget.map(|budget| (wishes::BUDGET_VARIABLE, budget.to_string())));
        Ok(wishes)
    }
}

/// Where to explain: standard error (`-`), or a file, as an absolute path, so that it stays valid if the program changes its
/// directory.
fn place_of_explanations(place: &Path) -> PathBuf {
    if place == Path::new("-") {
        return place.to_owned();
    }
    std::path::absolute(place).unwrap_or_else(|_| place.to_owned())
}

/// Checks that lines can be added to a file for explanations, which may exist. Devices and FIFOs
/// are not opened: a FIFO without a reader would block.
fn can_explain_at(place: &Path) -> anyhow::Result<()> {
    let is_special =
        std::fs::metadata(place).is_ok_and(|about| !about.is_file() && !about.is_dir());
    if place == Path::new("-") || is_special {
        return Ok(());
    }
    let opened = std::fs::File::options().create(true).append(true).open(place);
    opened.map(drop).with_context(|| format!("cannot write {}", place.display()))
}

impl Form {
    /// What the user copies: it makes programs load the library, in a shell or a container.
    fn text(
        self,
        library: &Path,
        explain: Option<&Path>,
        wishes: &[(&str, String)],
    ) -> anyhow::Result<String> {
        let quoted = |path: &Path| -> anyhow::Result<String> {
            let text = path.to_str().with_context(|| format!("{} is not UTF-8", path.display()))?;
            Ok(shlex::try_quote(text)?.into_owned())
        };
        let file = explain.filter(|place| *place != Path::new("-"));
        Ok(match self {
            // What the shell's programs load already, they load still.
            Form::Sh => {
                let library = quoted(library)?;
                let mut text =
                    format!("export LD_PRELOAD={library}${{LD_PRELOAD:+:$LD_PRELOAD}}\n");
                if let Some(place) = explain {
                    text += &format!("export {EXPLAIN_VARIABLE}={}\n", quoted(place)?);
                }
                for (name, value) in wishes {
                    text += &format!("export {name}={value}\n");
                }
                text
            }
            Form::Docker if file.is_some() => {
                bail!(
                    "a container does not have the file for explanations: use --explain without a file"
                )
            }
            Form::Docker => {
                // The words are not quoted again: whoever substitutes them splits them at spaces.
                let path = library.to_str().context("the library's path is not UTF-8")?;
                let mut text =
                    format!("--volume={path}:{IN_CONTAINER}:ro --env=LD_PRELOAD={IN_CONTAINER}");
                if explain.is_some() {
                    text += &format!(" --env={EXPLAIN_VARIABLE}=-");
                }
                for (name, value) in wishes {
                    text += &format!(" --env={name}={value}");
                }
                text + "\n"
            }
        })
    }
}
