//! Profiles as tables, and as a page with flame graphs: of one case, or of two side by side.

use crossway_lab::profile::{Part, Profile, RoleProfile};
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, Value, context};
use serde::Serialize;

use crate::flame;
use crate::html::HtmlError;
use crate::sheet::{Cell, Row, Sheet};
use crate::units::{Quantity, count};
use crossway_records::sorting::SortSmall;

const TEMPLATE: &str = include_str!("../assets/profile.html");
const STYLE: &str = include_str!("../assets/page.css");

/// A part of the difference between two cases is named only if its absolute value is more than this share of the sum of
/// the absolute values of all parts.
const NAMED_SHARE: f64 = 0.1;

/// Returns a table that splits the CPU time of a message into parts. Two profiles are shown side by side, with their
/// difference. `None` if one of the profiles has no samples.
pub fn parts(profiles: &[Profile]) -> Option<Sheet> {
    if profiles.iter().any(|p| p.roles.iter().all(|role| role.samples == 0)) {
        return None;
    }
    let two = profiles.len() == 2;
    let mut heads = vec!["Part".to_owned()];
    for profile in profiles {
        heads.push(profile.mechanism.clone());
        heads.extend(profile.roles.iter().filter(|_| !two).map(|role| role.name.clone()));
    }
    if two {
        heads.push("Difference".to_owned());
    }
    let mut rows: Vec<Row> = Part::ALL
        .into_iter()
        .filter(|part| profiles.iter().any(|p| p.part_ns_per_message(*part) > Some(0.0)))
        .map(|part| {
            let mut cells = vec![Cell::text(part.words())];
            for profile in profiles {
                let ns = profile.part_ns_per_message(part);
                cells.push(time(ns, Some(profile.cpu_ns_per_message())));
                for role in profile.roles.iter().filter(|_| !two) {
                    let ns = role.part_ns(part).map(|ns| ns / profile.messages.max(1) as f64);
                    cells.push(time(ns, Some(per_message(profile, role))));
                }
            }
            if let [a, b] = profiles {
                cells.push(difference(a.part_ns_per_message(part), b.part_ns_per_message(part)));
            }
            Row { class: None, cells }
        })
        .collect();
    let mut all = vec![Cell::text("all")];
    for profile in profiles {
        all.push(time(Some(profile.cpu_ns_per_message()), None));
        for role in profile.roles.iter().filter(|_| !two) {
            all.push(time(Some(per_message(profile, role)), None));
        }
    }
    if let [a, b] = profiles {
        all.push(difference(Some(a.cpu_ns_per_message()), Some(b.cpu_ns_per_message())));
    }
    rows.push(Row { class: None, cells: all });
    Some(Sheet {
        title: format!("CPU time per {} by part", profiles[0].unit),
        heads,
        rows,
        sortable: false,
        notes: profiles.iter().flat_map(|p| p.sampling.notes.clone()).fold(
            Vec::new(),
            |mut seen, note| {
                if !seen.contains(&note) {
                    seen.push(note);
                }
                seen
            },
        ),
    })
}

fn per_message(profile: &Profile, role: &RoleProfile) -> f64 {
    role.cpu_ns as f64 / profile.messages.max(1) as f64
}

fn time(ns: Option<f64>, of: Option<f64>) -> Cell {
    let Some(ns) = ns else { return Cell::text("–") };
    let share = of.filter(|of| *of > 0.0).map(|of| format!("{:.0} %", 100.0 * ns / of));
    Cell { text: Quantity::Duration.show(ns), note: share, sort: Some(ns), ..Cell::default() }
}

fn difference(a: Option<f64>, b: Option<f64>) -> Cell {
    let Some((a, b)) = a.zip(b) else { return Cell::text("–") };
    Cell { text: signed(b - a), sort: Some(b - a), ..Cell::default() }
}

fn signed(ns: f64) -> String {
    format!("{}{}", if ns < 0.0 { "−" } else { "+" }, Quantity::Duration.show(ns.abs()))
}

/// Returns a sentence on how the CPU time changes from the first case to the second: its largest parts, positive and
/// negative, and the sum of all others. A plus means that the second case takes more, as in the table. `None` if no
/// part differs, or there are no samples.
fn change(a: &Profile, b: &Profile) -> Option<String> {
    let whole = b.cpu_ns_per_message() - a.cpu_ns_per_message();
    let mut parts: Vec<(Part, f64)> = Part::ALL
        .into_iter()
        .filter_map(|part| {
            Some((part, b.part_ns_per_message(part)? - a.part_ns_per_message(part)?))
        })
        .collect();
    let all: f64 = parts.iter().map(|(_, ns)| ns.abs()).sum();
    parts.retain(|(_, ns)| ns.abs() > NAMED_SHARE * all);
    parts.sort_small_by(|x, y| y.1.abs().total_cmp(&x.1.abs()));
    let others = whole - parts.iter().map(|(_, ns)| ns).sum::<f64>();
    let mut named: Vec<String> =
        parts.iter().map(|(part, ns)| format!("{} {}", part.words(), signed(*ns))).collect();
    if named.is_empty() {
        return None;
    }
    if others.abs() >= 0.1 {
        named.push(format!("all others {}", signed(others)));
    }
    Some(format!(
        "From the run of {} to that of {}, the CPU time changes by {}: {}.",
        a.mechanism,
        b.mechanism,
        signed(whole),
        named.join(", ")
    ))
}

/// Returns a table of what the kernel counted for each role. The counts exist even if no samples could be taken.
pub fn counted(profiles: &[Profile]) -> Sheet {
    let heads = ["Role", "CPU", "User", "System", "Not running", "Switches", "Page faults"];
    let mut rows = Vec::new();
    for profile in profiles {
        for role in &profile.roles {
            let messages = profile.messages.max(1) as f64;
            let per = |ns: Option<u64>| time(ns.map(|ns| ns as f64 / messages), None);
            let rate = |count: u64| Cell {
                text: format!("{:.3}", count as f64 / messages),
                sort: Some(count as f64),
                ..Cell::default()
            };
            let whole = role.user_ns.is_none();
            let asleep = 100.0 * (1.0 - role.cpu_ns as f64 / role.wall_ns.max(1) as f64);
            let counts = |count| if whole { Cell::text("–") } else { rate(count) };
            let (asked, forced) = (role.switches_voluntary, role.switches_involuntary);
            let mut switches = counts(asked + forced);
            if !whole {
                switches.text = format!("{} / {}", rate(asked).text, rate(forced).text);
            }
            rows.push(Row {
                class: None,
                cells: vec![
                    Cell::text(format!("{} {}", profile.mechanism, role.name)),
                    per(Some(role.cpu_ns)),
                    per(role.user_ns),
                    per(role.system_ns),
                    Cell::text(format!("{:.0} %", asleep.max(0.0))),
                    switches,
                    counts(role.faults),
                ],
            });
        }
    }
    Sheet {
        title: format!("What the kernel counted per {}", profiles[0].unit),
        heads: heads.map(str::to_owned).to_vec(),
        rows,
        sortable: false,
        notes: vec![
            "Not running: the share of the time in which the role slept or waited for a CPU. Switches: voluntary / \
             involuntary."
                .to_owned(),
        ],
    }
}

/// Returns a table of the source lines and functions of one profile that take the most CPU time, at most `at_most` of
/// them.
pub fn hot(profile: &Profile, at_most: usize) -> Sheet {
    let mut all: Vec<(&RoleProfile, &crossway_lab::profile::HotSpot)> =
        profile.roles.iter().flat_map(|role| role.hot.iter().map(move |h| (role, h))).collect();
    let ns = |role: &RoleProfile, samples: u64| {
        per_message(profile, role) * samples as f64 / role.samples.max(1) as f64
    };
    all.sort_small_by(|a, b| ns(b.0, b.1.samples).total_cmp(&ns(a.0, a.1.samples)));
    let rows = all
        .into_iter()
        .take(at_most)
        .map(|(role, spot)| Row {
            class: None,
            cells: vec![
                Cell::code(&spot.function),
                Cell::text(&role.name),
                time(Some(ns(role, spot.samples)), Some(per_message(profile, role))),
                Cell::text(spot.part.words()),
                Cell::text(&spot.of),
                Cell::text(spot.line.as_deref().map(short).unwrap_or_default()),
            ],
        })
        .collect();
    let per = format!("Per {}", profile.unit);
    Sheet {
        title: format!("Hottest functions of {}", profile.mechanism),
        heads: ["Function", "Role", per.as_str(), "Part", "Binary", "Line"]
            .map(str::to_owned)
            .to_vec(),
        rows,
        sortable: true,
        notes: Vec::new(),
    }
}

/// Shortens the path of a source line in the standard library or in a crate of the registry: it begins with the library
/// or the crate.
fn short(line: &str) -> &str {
    let library = line.strip_prefix("/rustc/").and_then(|rest| rest.split_once("/library/"));
    let crates = || line.split_once("/registry/src/").and_then(|(_, rest)| rest.split_once('/'));
    library.or_else(crates).map_or(line, |(_, rest)| rest)
}

/// Returns the conclusions in sentences: what costs most, and for two cases where their difference comes from.
pub fn sentences(profiles: &[Profile]) -> Vec<String> {
    let mut said = Vec::new();
    for profile in profiles {
        if let Some(why) = &profile.sampling.missing {
            let remedy = profile.sampling.remedy.as_deref().unwrap_or_default();
            let then =
                if remedy.is_empty() { String::new() } else { format!(" Remedy: {remedy}.") };
            said.push(format!(
                "No samples of {}: {why}. The tables below show only what the kernel counts without sampling.{then}",
                profile.mechanism
            ));
        }
    }
    if let [a, b] = profiles {
        let (first, second) = (a.cpu_ns_per_message(), b.cpu_ns_per_message());
        let (less, more) = if first <= second { (a, b) } else { (b, a) };
        let (low, high) = (first.min(second), first.max(second));
        let mut text = format!(
            "In these two runs, {} takes {} of CPU time per {}, {} {}: {:.2} times as much. One run of each does not \
             show how much of that is noise; `crossway measure` with several trials does.",
            less.mechanism,
            Quantity::Duration.show(low),
            a.unit,
            more.mechanism,
            Quantity::Duration.show(high),
            high / low.max(f64::MIN_POSITIVE)
        );
        if let Some(change) = change(a, b) {
            text.push(' ');
            text.push_str(&change);
        }
        said.push(text);
    } else if let [only] = profiles {
        let most = Part::ALL
            .into_iter()
            .filter_map(|part| Some((part, only.part_ns_per_message(part)?)))
            .max_by(|a, b| a.1.total_cmp(&b.1));
        if let Some((part, ns)) = most {
            said.push(format!(
                "{} takes {} of CPU time per {}; the largest part of it is {} ({:.0} %).",
                only.mechanism,
                Quantity::Duration.show(only.cpu_ns_per_message()),
                only.unit,
                part.words(),
                100.0 * ns / only.cpu_ns_per_message().max(f64::MIN_POSITIVE)
            ));
        }
    }
    said
}

#[derive(Serialize)]
struct Flame {
    title: String,
    svg: String,
}

/// Number of source lines and functions that the page lists per case.
const HOT_PLACES: usize = 20;

/// Renders the page: one HTML file that works offline.
///
/// # Errors
/// Fails only if the template does not match its data, which is a defect of Crossway.
pub fn page(profiles: &[Profile]) -> Result<String, HtmlError> {
    let mut environment = Environment::new();
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    environment.add_template("profile", TEMPLATE)?;
    let mut sheets: Vec<Sheet> = parts(profiles).into_iter().collect();
    sheets.push(counted(profiles));
    let sampled = profiles.iter().filter(|p| p.sampling.event.is_some());
    sheets.extend(sampled.clone().map(|profile| hot(profile, HOT_PLACES)));
    let flames: Vec<Flame> = sampled
        .map(|profile| {
            let title = format!("{}: {} samples", profile.case, samples(profile));
            let stacks: Vec<(String, u64)> =
                profile.roles.iter().flat_map(|role| role.stacks.clone()).collect();
            Flame { svg: flame::svg(&stacks, &title), title }
        })
        .collect();
    let cases: Vec<String> = profiles.iter().map(case_line).collect();
    let names: Vec<&str> = profiles.iter().map(|p| p.mechanism.as_str()).collect();
    let page = environment.get_template("profile")?.render(context! {
        style => STYLE,
        title => names.join(" and "),
        cases,
        sentences => sentences(profiles),
        sheets => Value::from(Serde(sheets)),
        flames => Value::from(Serde(flames)),
    })?;
    Ok(page)
}

fn samples(profile: &Profile) -> u64 {
    profile.roles.iter().map(|role| role.samples).sum()
}

/// Returns one line that says what was profiled and how.
pub fn case_line(profile: &Profile) -> String {
    let how = match &profile.sampling.event {
        Some(event) => {
            format!("{} samples of {event} at {} Hz", samples(profile), profile.sampling.rate_hz)
        }
        None => "no samples".to_owned(),
    };
    let unit = &profile.unit;
    let passed = count(profile.messages as usize, unit, &format!("{unit}s"));
    format!(
        "{} ({}): {}, {} bytes, {}; {how}",
        profile.case, profile.version, profile.workload, profile.size_bytes, passed
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    use crossway_lab::profile::Sampling;

    /// Builds the profile of one message that takes 1 ns per sample.
    fn profile(mechanism: &str, parts: &[(Part, u64)]) -> Profile {
        let samples: u64 = parts.iter().map(|(_, ns)| ns).sum();
        let role = RoleProfile {
            name: "sender".to_owned(),
            wall_ns: samples,
            user_ns: None,
            system_ns: None,
            cpu_ns: samples,
            switches_voluntary: 0,
            switches_involuntary: 0,
            faults: 0,
            samples,
            parts: parts.iter().copied().collect(),
            hot: Vec::new(),
            stacks: Vec::new(),
        };
        let text = serde_json::json!({
            "case": mechanism, "mechanism": mechanism, "version": "linux", "workload": "throughput", "unit": "message", "size_bytes": 64,
            "messages": 1, "sampling": Sampling::default(), "roles": [role],
        });
        serde_json::from_value(text).expect("a profile")
    }

    #[test]
    fn the_number_of_messages_has_the_unit_of_the_workload() {
        let mut one = profile("pipe", &[]);
        assert!(case_line(&one).contains(", 64 bytes, 1 message; "), "{}", case_line(&one));
        (one.unit, one.messages) = ("round trip".to_owned(), 20);
        assert!(case_line(&one).contains(", 64 bytes, 20 round trips; "), "{}", case_line(&one));
    }

    #[test]
    fn a_difference_is_the_sum_of_its_parts_of_both_signs() {
        use Part::{Allocation, Copy, Protocol, Spinning, WakeUp};
        let a = profile("pipe", &[(Allocation, 100), (Spinning, 800), (WakeUp, 790), (Copy, 50)]);
        let b = profile(
            "uds-stream",
            &[(Allocation, 1400), (Spinning, 70), (WakeUp, 120), (Copy, 40), (Protocol, 10)],
        );
        let said = sentences(&[a.clone(), b.clone()]);
        let whole = "From the run of pipe to that of uds-stream, the CPU time changes by −100 ns: allocation +1.30 µs, spinning for messages −730 ns, \
                     wake-up and scheduling −670 ns.";
        assert!(said[0].ends_with(whole), "{said:?}");
        let said = sentences(&[b, a]);
        assert!(
            said[0].contains("by +100 ns: allocation −1.30 µs, spinning for messages +730 ns"),
            "{said:?}"
        );
    }
}
