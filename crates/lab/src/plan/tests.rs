//! Tests with valid and invalid plans as users write them.

use crossway_mech::registry;
use crossway_sys::topology::Topology;

use super::*;
use crate::case::{self, Case};

pub(super) const GROUP: &str =
    "[group.x]\nmechanisms = \"pipe\"\nworkload = \"throughput\"\nsize_bytes = 64\n";

pub(super) fn parse(text: &str) -> Result<Plan, PlanError> {
    Plan::parse("test", "test.toml", text)
}

pub(super) fn error(text: &str) -> String {
    parse(text).unwrap_err().to_string()
}

pub(super) fn cases_of(plan: &Plan) -> Vec<Case> {
    case::expand(plan, &Topology::default(), &[])
}

/// The error for the plan [`GROUP`] after this line was added to it or has replaced the line with the same key.
fn error_with(line: &str) -> String {
    let key = line.split([' ', '=']).next().unwrap_or_default();
    let kept: Vec<_> = GROUP.lines().filter(|l| !l.starts_with(&format!("{key} "))).collect();
    error(&format!("{}\n{line}\n", kept.join("\n")))
}

#[test]
fn errors_name_the_file_the_key_and_what_is_allowed() {
    let mut all = String::new();
    for line in [
        "wiat = \"block\"",
        "wait = \"blok\"",
        "wait = { hybrid = { us = 20 } }",
        "wait = []",
        "workload = \"latency\"",
        "workload = { paced = { burst_bytes = 64 } }",
        "workload = { paced = { burst_bytes = 100, period_us = 1000 } }",
        "workload = { pairs = { pairs = 1 } }",
        "workload = 3",
        "size_bytes = -1",
        "size_bytes = \"4 K\"",
        "size_bytes = { arithmetic = { from = 10, to = 1, step = 1 } }",
        "size_bytes = { arithmetic = { from = 1, to = 10, step = 0 } }",
        "size_bytes = { geometric = { from = 1, to = 10 } }",
        "size_bytes = { zoom = { around = 5, radius = 2, step = 1 } }",
        "access = \"zero-copy\"",
        "placement = \"near\"",
        "placement = { cpus = { a = 0 } }",
        "load = \"heavy\"",
        "load = { cpus = 2 }",
        "beside = \"a stream\"",
        "beside = { workload = \"throughput\" }",
        "beside = { workload = \"exchange\", size_bytes = 64 }",
        "beside = { workload = { paced = { burst_bytes = 64, period_us = 1000 } }, size_bytes = 100 }",
        "beside = { workload = \"throughput\", size_bytes = 64, mechanism = \"uds-*\" }",
        "require = { p99 = 100 }",
        "require = { p99_us = 0 }",
        "require = {}",
        "require = { p99_us = 100 }",
        "trials = 0",
        "measure_ms = \"long\"",
        "messages = 0",
        "capacity_bytes = 0",
    ] {
        all.push_str(&format!("{line}\n    {}\n", error_with(line)));
    }
    for text in ["group = 1", "[group]", "x = 1\n[group.a]", "[defaults]\nfoo = 1", "[group.a", ""]
    {
        all.push_str(&format!("{text:?}\n    {}\n", error(text)));
    }
    insta::assert_snapshot!(all);
}

#[test]
fn unknown_mechanisms_are_refused_with_the_one_that_was_meant_or_what_is_allowed() {
    let said = error_with("mechanisms = [\"pipe\", \"carrier-pigeon\"]");
    assert!(said.starts_with("test.toml: group.x.mechanisms: unknown mechanism 'carrier-pigeon'"));
    assert!(said.contains("crossway list") && said.contains("local"), "{said}");
    let said = error_with("mechanisms = \"pip\"");
    assert!(said.contains("'pip'; did you mean pipe? `crossway list` names all"), "{said}");
    assert!(error_with("mechanisms = [\"pipe\", \"!pipe\"]").contains("no mechanism is selected"));
}

fn sizes(text: &str) -> Vec<u64> {
    let plan = GROUP.replace("size_bytes = 64", &format!("size_bytes = {text}"));
    parse(&plan).unwrap().groups[0].sizes.clone()
}

#[test]
fn series_of_sizes_are_exact() {
    let toshiba = sizes("{ arithmetic = { from = 512, to = 40448, step = 512 } }");
    assert_eq!(toshiba, (1..=79).map(|n| 512 * n).collect::<Vec<_>>());
    assert_eq!(sizes("{ zoom = { around = 2952, radius = 2 } }"), [2950, 2951, 2952, 2953, 2954]);
    let octaves = sizes("{ geometric = { from = 16, to = 128, per_octave = 1 } }");
    assert_eq!(octaves, [16, 32, 64, 128]);
    assert_eq!(sizes("{ geometric = { from = 1, to = 1000, factor = 10 } }"), [1, 10, 100, 1000]);
    assert_eq!(sizes("[64, \"4 KiB\", 1, 64, \"1 MiB\"]"), [1, 64, 4096, 1 << 20]);
    let fine = sizes("{ geometric = { from = 16, to = \"1 MiB\", per_octave = 4 } }");
    assert_eq!(fine.len(), 65);
    assert!((4..=20).all(|power| fine.contains(&(1 << power))));
}

#[test]
fn mechanisms_are_chosen_by_id_pattern_and_tag() {
    let chosen = |words: &str| {
        let plan = GROUP.replace("\"pipe\"", words);
        parse(&plan).unwrap().groups[0].mechanisms.clone()
    };
    assert_eq!(chosen("\"all\"").len(), registry::ALL.len());
    assert_eq!(chosen("[\"pipe\", \"tcp\"]"), ["pipe", "tcp"]);
    assert!(chosen("\"uds-*\"").iter().all(|id| id.starts_with("uds-")));
    let (local, network) = (chosen("\"local\""), chosen("\"network\""));
    assert!(local.contains(&"pipe") && network.contains(&"tcp"));
    assert_eq!(local.len() + network.len(), registry::ALL.len());
    assert!(!chosen("[\"local\", \"!pipe\"]").contains(&"pipe"));
}

fn expand(text: &str) -> Vec<Case> {
    case::expand(&parse(text).unwrap(), &Topology::read().unwrap(), &[])
}

#[test]
fn a_group_is_the_product_of_its_axes() {
    let cases = expand(
        r#"
[defaults]
placement = "unpinned"
[group.a]
mechanisms = ["pipe", "tcp"]
workload = ["throughput", "ping-pong"]
size_bytes = [1, 2, 3]
wait = ["block", "spin"]
access = ["copy", "in-place"]
load = ["idle", { cpu = 1 }]
socket_buffer_bytes = ["default", 4096]
[group.b]
mechanisms = "pipe"
workload = "throughput"
size_bytes = 1
"#,
    );
    assert_eq!(cases.len(), 2 * 2 * 3 * 2 * 2 * 2 * 2 + 1);
    let mut ids: Vec<_> = cases.iter().map(Case::full_id).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), cases.len(), "ids must tell cases apart");
}

#[test]
fn values_that_mean_the_same_give_one_case() {
    for (mechanism, line) in [
        ("pipe", "wait = [\"natural\", \"block\"]"),
        ("shm-spin", "wait = [\"spin\", \"natural\"]"),
        ("pipe", "mechanisms = [\"pipe\", \"pi*\"]"),
        ("pipe", "load = [\"idle\", { cpu = 0 }]"),
        ("pipe", "reply_bytes = [\"default\", 64]"),
        ("pipe", "testbed = [\"local\", \"local\"]"),
        (
            "pipe",
            "placement = [\"every-pair\", \"every-pair-and-self\", { cpus = { a = 0, b = 1 } }]",
        ),
    ] {
        let mechanisms = match line.starts_with("mechanisms") {
            true => String::new(),
            false => format!("mechanisms = \"{mechanism}\"\n"),
        };
        let cases = expand(&format!(
            "[group.x]\n{mechanisms}workload = \"ping-pong\"\nsize_bytes = 64\n{line}\n"
        ));
        let mut ids: Vec<_> = cases.iter().map(Case::full_id).collect();
        ids.sort();
        ids.dedup();
        assert_eq!(ids.len(), cases.len(), "{line}: {ids:?}");
        assert!(line.starts_with("placement") || cases.len() == 1, "{line}: {ids:?}");
    }
}

#[test]
fn what_cannot_be_is_excluded_with_a_remedy() {
    let why = |line: &str| {
        let key = line.split(' ').next().unwrap_or_default();
        let kept: Vec<_> = GROUP.lines().filter(|l| !l.starts_with(&format!("{key} "))).collect();
        let cases = expand(&format!("{}\n{line}\n", kept.join("\n")));
        let excluded = cases[0].excluded.clone().unwrap_or_else(|| panic!("{line} is possible"));
        assert!(!excluded.remedy.is_empty());
        excluded.why
    };
    assert!(why("workload = \"exchange\"").contains("cannot reconnect"));
    let mixed = "[group.x]\nmechanisms = [\"pipe\", \"uds-seqpacket\"]\nworkload = \"throughput\"\nsize_bytes = 0";
    let cases = expand(mixed);
    assert!(cases[0].excluded.as_ref().is_some_and(|no| no.why.contains("empty")));
    assert!(cases[1].excluded.is_none());
    assert!(why("access = \"in-place\"").contains("in place"));
    assert!(why("placement = { cpus = { a = 0, b = 8000 } }").contains("CPU 8000"));
    // Both ends spin on one core (study item E18).
    let spinning = expand(
        "[group.x]\nmechanisms = \"shm-spin\"\nworkload = \"ping-pong\"\nsize_bytes = 64\nplacement = \"same-core\"",
    );
    let excluded = spinning[0].excluded.as_ref().unwrap();
    assert!(excluded.why.contains("same core"));
    // The mechanism can only spin, so another way of waiting is no remedy.
    assert!(!excluded.remedy.contains("block") && excluded.remedy.contains("two cores"));
}

#[test]
fn presets_parse_and_expand() {
    let topology = Topology::read().unwrap();
    for (name, _) in PRESETS {
        let plan = Plan::load(name).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(!case::expand(&plan, &topology, &[]).is_empty(), "{name}");
        assert!(plan.groups.iter().all(|g| g.trials >= 5), "{name}: at least five trials");
    }
}

#[test]
fn a_filter_keeps_what_matches_group_and_case() {
    let plan = Plan::load("quick").unwrap();
    let topology = Topology::read().unwrap();
    let kept = case::expand(&plan, &topology, &["basic/pipe/*/64/".into(), "tcp/ping*/64/".into()]);
    assert!(kept.iter().any(|c| c.id.starts_with("pipe/throughput/64/")));
    assert!(kept.iter().all(|c| c.inputs.size_bytes == 64));
    assert!(case::expand(&plan, &topology, &["no-such".into()]).is_empty());
}

#[test]
fn workloads_beside_are_an_axis_and_can_be_repeated() {
    let text = format!(
        "{GROUP}require = {{ cpu_us_per_msg = 100, msgs_per_s = 1.5 }}\nplacement = \"unpinned\"\nbeside = [\"nothing\", \
         {{ mechanism = \"tcp\", workload = \"ping-pong\", size_bytes = \"4 KiB\", placement = \"unpinned\" }}, \
         [{{ workload = \"throughput\", size_bytes = 8 }}, {{ workload = \"throughput\", size_bytes = 16 }}]]\n"
    );
    let cases = cases_of(&parse(&text).unwrap());
    let ids: Vec<&str> = cases.iter().map(|c| c.id.as_str()).collect();
    assert_eq!(
        ids,
        [
            "pipe/throughput/64/block/unpinned",
            "pipe/throughput/64/block/unpinned/beside-tcp-ping-pong-4096-unpinned",
            "pipe/throughput/64/block/unpinned/beside-pipe-throughput-8-unpinned/beside-pipe-throughput-16-unpinned",
        ]
    );
    for case in cases {
        assert_eq!(case.excluded, None);
        let mut record = crossway_records::samples::ping_pong(case.mechanism, 64, 0, 1, 1.0);
        record.inputs = case.inputs.clone();
        record.group.clone_from(&case.group);
        assert_eq!(cases_of(&Plan::repeating(&record).unwrap()), [case]);
    }
}

/// If both ends spin on one CPU, each can only wait for the end of the other's time slice.
#[test]
fn nothing_spins_beside_on_a_cpu_that_is_needed() {
    let Ok(topology) = Topology::read() else { return };
    let Some(&(a, b)) = topology.pairs().first() else {
        eprintln!("SKIP nothing_spins_beside_on_a_cpu_that_is_needed: one CPU only");
        return;
    };
    let text = format!(
        "[group.x]\nmechanisms = \"shm-spin\"\nworkload = \"ping-pong\"\nsize_bytes = 64\n\
         placement = {{ cpus = {{ a = {a}, b = {b} }} }}\n\
         beside = {{ mechanism = \"pipe\", workload = \"throughput\", size_bytes = 64 }}\n"
    );
    let cases = case::expand(&parse(&text).unwrap(), &topology, &[]);
    let why = cases[0].excluded.as_ref().expect("it is excluded").why.clone();
    assert!(why.contains("would spin on a CPU that the other one needs"), "{why}");
}

#[test]
fn a_studys_number_of_messages_is_scaled_by_group_or_for_the_whole_plan() {
    let text = "[group.a]\nmechanisms = 'pipe'\nworkload = 'throughput'\nsize_bytes = 64\n\
                messages = { study = 10000, scale = 0.02 }\n\
                [group.b]\nmechanisms = 'pipe'\nworkload = 'throughput'\nsize_bytes = 64\nmessages = 7\n";
    let plan = Plan::parse("p", "p.toml", text).unwrap();
    let numbers = |plan: &Plan| -> Vec<_> {
        plan.groups.iter().map(|g| (g.messages, g.study_messages)).collect()
    };
    assert_eq!(numbers(&plan), [(Some(200), Some(10_000)), (Some(7), None)]);
    let whole = plan.scaled("p.toml", 1.0).unwrap();
    assert_eq!(numbers(&whole), [(Some(10_000), Some(10_000)), (Some(7), None)]);
    // The text that is stored with the results contains the scale, and can be scaled again.
    assert!(whole.text.starts_with("scale = 1.0\n"), "{}", whole.text);
    let tenth = Plan::parse("p", "p.toml", &whole.scaled("p.toml", 0.1).unwrap().text).unwrap();
    assert_eq!(numbers(&tenth)[0], (Some(1000), Some(10_000)));

    let error = Plan::parse("p", "p.toml", &text.replace("0.02", "0")).unwrap_err().to_string();
    assert!(error.contains("group.a.messages.scale: 0 is not a valid scale"), "{error}");
    let unscaled =
        Plan::parse("p", "p.toml", &text.replace("{ study = 10000, scale = 0.02 }", "9")).unwrap();
    let error = unscaled.scaled("p.toml", 1.0).unwrap_err().to_string();
    assert!(error.contains("nothing to scale"), "{error}");
}

#[test]
fn the_plans_of_the_studies_have_the_studies_sizes_and_numbers() {
    let toshiba = Plan::load("toshiba").unwrap();
    let group = |plan: &Plan, name: &str| {
        plan.groups.iter().find(|g| g.name == name).cloned().expect("the group")
    };
    let sweep = group(&toshiba, "sweep");
    let sizes: Vec<u64> = (1..=79).map(|n| 512 * n).collect();
    assert_eq!((sweep.sizes, sweep.study_messages), (sizes, Some(10_000)));
    let edge = group(&toshiba, "edge").sizes;
    assert!(
        edge.contains(&2952) && edge.contains(&2953) && edge.windows(2).all(|w| w[1] - w[0] == 1)
    );
    assert_eq!(group(&toshiba, "small").study_messages, Some(10_000_000));
    assert_eq!(group(&toshiba, "packets").study_messages, Some(100_000));
    let cluster = Plan::load("cluster").unwrap();
    assert_eq!(group(&cluster, "exchange").study_messages, Some(100_000));
    assert!(group(&cluster, "exchange").sizes.iter().all(|s| *s < 4096));
    assert_eq!(group(&cluster, "limits").sizes, [66_000, 66_001]);
    let enea = Plan::load("enea").unwrap();
    assert_eq!(group(&enea, "figure-4").study_messages, Some(100_000));
    assert!(group(&enea, "figure-7").sizes.contains(&66_560));
    assert_eq!(group(&enea, "pairs").placements, Some(vec![PlacementAxis::EveryPairAndSelf]));
    assert!(enea.faults && !cluster.faults);
    assert!(cluster.moves && !enea.moves);
    assert!(cluster.mpi && !enea.mpi);
}

#[test]
fn requests_and_replies_may_have_different_sizes() {
    let text = "[group.x]\nmechanisms = \"pipe\"\nworkload = [\"ping-pong\", \"throughput\"]\nsize_bytes = 64\n\
                reply_bytes = [\"4 KiB\", 64]\n";
    let cases = cases_of(&parse(text).unwrap());
    let ids: Vec<&str> = cases.iter().map(|c| c.id.as_str()).collect();
    assert_eq!(ids[0], "pipe/ping-pong/64/block/other-core/reply4096");
    // A reply of the request's size is the default.
    assert_eq!(ids[1], "pipe/ping-pong/64/block/other-core");
    let why = &cases[2].excluded.as_ref().unwrap().why;
    assert!(why.contains("only round trips"), "{why}");
    let mut record = crossway_records::samples::ping_pong("pipe", 64, 0, 1_000, 1.0);
    record.inputs.reply_bytes = Some(4096);
    let again = Plan::repeating(&record).unwrap();
    assert_eq!(again.groups[0].replies, [Some(4096)]);
}

#[test]
fn a_file_with_the_name_of_a_preset_is_not_the_preset() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("quick.toml");
    let load = |text: &str| {
        std::fs::write(&path, text).unwrap();
        Plan::load(path.to_str().unwrap()).unwrap()
    };
    let own = "[group.g]\nmechanisms = \"pipe\"\nworkload = \"throughput\"\nsize_bytes = 64\n";
    assert_eq!(load(own).name, "quick.toml");
    assert!(!is_preset("quick", own));
    let preset = Plan::load("quick").unwrap();
    assert_eq!(load(&preset.text).name, "quick");
    let changed = preset.overridden("quick", &[("trials", 9), ("measure_ms", 3)]).unwrap();
    assert!(is_preset("quick", &changed.text));
    let scaled = Plan::load("toshiba").unwrap().scaled("toshiba", 0.5).unwrap();
    assert!(is_preset("toshiba", &scaled.text));
}

#[test]
fn a_mechanism_that_cannot_block_is_known_to_be_unable_to_mix() {
    let text = "[group.g]\nmechanisms = [\"shm-spin\", \"pipe\"]\nworkload = \"ping-pong\"\nsize_bytes = 64\n\
                wait = { hybrid = { spin_us = 20 } }\nplacement = \"unpinned\"\n";
    let plan = Plan::parse("test", "test.toml", text).unwrap();
    let cases = crate::case::expand(&plan, &Topology::read().unwrap(), &[]);
    let excluded: Vec<_> =
        cases.iter().map(|c| (c.mechanism, c.excluded.as_ref().map(|e| e.why.as_str()))).collect();
    assert_eq!(excluded, [("pipe", None), ("shm-spin", Some("the mechanism can only spin"))]);
}
