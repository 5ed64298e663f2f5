//! `crossway env`.

use std::process::ExitCode;
use std::time::Duration;

use crossway_lab::env::Environment;
use crossway_lab::preflight::{self, Activity, Finding, Need, Severity};
use crossway_report::terminal::wrap_indented;
use serde::Serialize;

use super::Run;
use crate::ui::Ui;

/// Show the description of this machine that is stored with records, and conditions that would distort measurements at
/// present
#[derive(clap::Args)]
pub(crate) struct Env {
    /// Print the description and the conditions as JSON
    #[arg(long)]
    json: bool,
    /// Include the host name, which records leave out
    #[arg(long)]
    hostname: bool,
}

#[derive(Serialize)]
struct Shown {
    #[serde(flatten)]
    environment: Environment,
    findings: Vec<Finding>,
}

impl Run for Env {
    fn run(self, ui: &Ui) -> anyhow::Result<ExitCode> {
        let mut environment = Environment::take()?;
        if self.hostname {
            environment = environment.with_hostname();
        }
        let activity = Activity::sample(Duration::from_millis(200));
        let cpus = environment.topology.allowed().into_iter().take(2).collect();
        let need = Need { cpus, roles: 2, spins: false };
        let findings = preflight::check(&environment, &activity, &need);
        if self.json {
            ui.print_json(&Shown { environment, findings })?;
            return Ok(ExitCode::SUCCESS);
        }
        print(ui, &environment);
        for finding in &findings {
            let (colour, word) = match finding.severity {
                Severity::Warning => ("33", "warning"),
                Severity::Note => ("2", "note"),
            };
            ui.print_noted(colour, word, &finding.what);
            ui.print_wrapped(8, &finding.next_step);
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// The column in which values begin.
const INDENT: usize = 16;

/// Divides words that are longer than a line, such as parameters of the kernel.
fn breakable(value: &str, width: u16) -> String {
    let room = usize::from(width) - INDENT;
    let divided = |word: &str| {
        let letters: Vec<char> = word.chars().collect();
        letters.chunks(room).map(String::from_iter).collect::<Vec<_>>().join(" ")
    };
    value.split(' ').map(divided).collect::<Vec<_>>().join(" ")
}

fn print(ui: &Ui, env: &Environment) {
    let or = |text: &Option<String>| text.clone().unwrap_or("unknown".to_owned());
    let line = |name: &str, value: String| {
        let value = wrap_indented(&breakable(&value, ui.width), ui.width, INDENT, INDENT);
        println!("{}{value}", ui.paint("1", &format!("{name:INDENT$}")));
    };
    line("machine", env.machine_id.clone());
    if let Some(name) = &env.hostname {
        line("host", name.clone());
    }
    line("processor", env.processor.name());
    let topology = &env.topology;
    line(
        "CPUs",
        format!(
            "{} online, {} usable; cores: {}, sockets: {}{}",
            topology.cpus.len(),
            topology.allowed().len(),
            topology.cores(),
            topology.sockets().map_or("?".to_owned(), |s| s.to_string()),
            if topology.has_smt() { ", several hardware threads per core" } else { "" }
        ),
    );
    let caches: Vec<String> = topology
        .cpus
        .first()
        .map(|cpu| {
            let kib = |b: u64| {
                if b >= 1 << 20 { format!("{} MiB", b >> 20) } else { format!("{} KiB", b >> 10) }
            };
            topology
                .data_caches(cpu.id)
                .map(|c| format!("L{} {}", c.level, c.size_bytes.map_or("?".to_owned(), kib)))
                .collect()
        })
        .unwrap_or_default();
    line("caches", if caches.is_empty() { "unknown".to_owned() } else { caches.join(", ") });
    line("kernel", format!("{} {}", env.kernel.release, env.kernel.parameters.join(" ")));
    line("distribution", or(&env.kernel.distribution));
    line("virtual", {
        let v = &env.virtualisation;
        format!(
            "hypervisor {}, container {}",
            v.hypervisor.as_deref().unwrap_or("none"),
            v.container.as_deref().unwrap_or("none")
        )
    });
    let governors: Vec<&str> = env.frequency.governors.iter().map(String::as_str).collect();
    line(
        "governor",
        if governors.is_empty() { "unknown".to_owned() } else { governors.join(", ") },
    );
    line("clock", or(&env.clock.source));
    let vulnerable: Vec<&str> = env
        .mitigations
        .iter()
        .filter(|(_, state)| state.starts_with("Mitigation"))
        .map(|(name, _)| name.as_str())
        .collect();
    line(
        "mitigations",
        if vulnerable.is_empty() { "none".to_owned() } else { vulnerable.join(", ") },
    );
    line(
        "memory",
        env.memory
            .total_bytes
            .map_or("unknown".to_owned(), |b| format!("{:.1} GiB", b as f64 / f64::from(1 << 30))),
    );
    line("load", env.load.map_or("unknown".to_owned(), |l| format!("{:.2}", l.one_min)));
    let b = &env.build;
    line("crossway", format!("{} {} {} {}", b.version, b.revision, b.profile, b.rustc));
    println!();
}
