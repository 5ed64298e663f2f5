//! Declarations, building, and the contenders that come with Crossway.

use std::fs;

use crossway_records::record::Status;

use crate::{Workshop, have, stderr, stdout, tree};

const PLAN: &str = "[group.x]\nmechanisms = [\"pipe\", \"pipe-c\", \"python-pipe\"]\n\
    workload = [\"throughput\", \"ping-pong\"]\nsize_bytes = [1, 4096]\nplacement = \"unpinned\"\ntrials = 1\n\
    messages = 300\nwarmup_ms = 1\n";

#[test]
fn contenders_are_measured_beside_mechanisms_and_shown_with_them() {
    if !have("cc", "gcc") || !have("python3", "python3") {
        return;
    }
    let shop = Workshop::new(PLAN);
    let list = shop.run(&["contender", "list", "--json"]);
    assert!(stdout(&list).contains("crossway contender build pipe-c"), "{}", stdout(&list));
    let built = shop.run(&["contender", "build", "pipe-c"]);
    assert!(built.status.success(), "{}", stderr(&built));
    let out = shop.run(&["measure", "plan.toml"]);
    assert!(out.status.success(), "{}", stderr(&out));
    let records = shop.place.records();
    assert_eq!(records.len(), 3 * 2 * 2);
    for record in &records {
        assert!(
            matches!(record.status, Status::Ok | Status::Degraded),
            "{}: {:?}",
            record.case,
            record.reason
        );
        let counts = record.counts.unwrap();
        assert_eq!((counts.sent, counts.received), (300, 300), "{}", record.case);
        assert!(record.roles.iter().all(|r| r.user_ns + r.system_ns > 0), "{}", record.case);
        assert_eq!(record.contender.is_some(), record.mechanism != "pipe");
        if record.case.contains("ping-pong") {
            assert_eq!(record.latency_ns[0].n, 300 / u64::from(record.latency_ns[0].batch));
        }
    }
    let page = fs::read_to_string(shop.place.run().join("report.html")).unwrap();
    assert!(page.contains("pipe-c") && page.contains("python-pipe"));
    assert_eq!(shop.place.leftovers(), Vec::<String>::new());
    let seen = shop.run(&["list"]);
    assert!(stdout(&seen).contains("python-pipe"));
}

#[test]
fn a_new_contender_passes_the_conformance_suite() {
    for (lang, program, package) in [
        ("c", "cc", "gcc"),
        ("python", "python3", "python3"),
        ("go", "go", "golang-go"),
        ("rust", "rustc", "rustc"),
    ] {
        if !have(program, package) {
            continue;
        }
        let shop = Workshop::new("");
        let written = shop.run(&["contender", "new", "mine", "--lang", lang]);
        assert!(written.status.success(), "{}", stderr(&written));
        let tested = shop.run(&["contender", "test", "./mine.toml"]);
        let said = stdout(&tested);
        assert!(tested.status.success(), "{said}{}", stderr(&tested));
        assert!(said.contains("a receiver notices that its peer was killed"), "{said}");
        let again = shop.run(&["contender", "new", "mine", "--lang", lang]);
        assert_eq!(again.status.code(), Some(2));
        assert!(stderr(&again).contains("mine.toml"), "{}", stderr(&again));
        assert_eq!(shop.place.leftovers(), Vec::<String>::new());
    }
}

/// If the program was copied without the rest of its installation, it finds no declarations, and the error names the
/// folders.
#[test]
fn without_a_declaration_the_folders_are_named() {
    let shop = Workshop::new("");
    let alone = shop.path("crossway");
    fs::copy(env!("CARGO_BIN_EXE_crossway"), &alone).unwrap();
    let run = |args: &[&str]| {
        let mut command = std::process::Command::new(&alone);
        command.args(args).env("XDG_CONFIG_HOME", shop.path("config"));
        command.output().unwrap()
    };
    for action in ["list", "build", "test"] {
        let out = run(&["contender", action]);
        assert_eq!(out.status.code(), Some(2), "{action}");
        let said = stderr(&out);
        for part in
            ["share/crossway/contenders", "config/crossway/contenders", "contender new NAME"]
        {
            assert!(said.contains(part), "{action}: {said}");
        }
    }
    let json = run(&["contender", "list", "--json"]);
    assert_eq!((json.status.code(), stdout(&json).trim()), (Some(0), "[]"));
}

#[test]
fn bad_declarations_and_builds_are_refused_by_name() {
    let shop = Workshop::new(PLAN);
    let good = "[contender.one]\nabout = \"a\"\nrun = [\"true\"]\nremedy = \"do this\"\n";
    let first = shop.write("first.toml", good);
    let second = shop.write("second.toml", good);
    let (first, second) = (first.to_str().unwrap(), second.to_str().unwrap());
    let twice = shop.run(&["list", "--contender", first, "--contender", second]);
    assert_eq!(twice.status.code(), Some(2));
    let said = stderr(&twice);
    assert!(
        said.contains("'one'")
            && said.contains("already declared in")
            && said.contains("first.toml"),
        "{said}"
    );

    let taken = shop.write("taken.toml", &good.replace("one", "pipe"));
    let said = stderr(&shop.run(&["list", "--contender", taken.to_str().unwrap()]));
    assert!(said.contains("'pipe'") && said.contains("one of Crossway's own"), "{said}");

    let said = stderr(&shop.run(&["list", "--contender", "nowhere.toml"]));
    assert!(said.contains("cannot read") && said.contains("nowhere.toml"), "{said}");

    let failing = "build = [\"sh\", \"-c\", \"echo no such header >&2; exit 4\"]\n";
    let broken = shop.write("broken.toml", &format!("{good}{failing}"));
    let built = shop.run(&["contender", "build", "--contender", broken.to_str().unwrap(), "one"]);
    assert_eq!(built.status.code(), Some(1));
    let said = stderr(&built);
    assert!(said.contains("'one'") && said.contains("no such header"), "{said}");
    assert!(said.contains("do this"), "{said}");

    let said = stderr(&shop.run(&["contender", "build", "nobody"]));
    assert!(said.contains("there is no contender 'nobody'"), "{said}");
}

#[test]
fn declarations_come_from_the_users_configuration_and_never_from_the_current_directory() {
    let shop = Workshop::new(PLAN);
    let good = "[contender.stray]\nabout = \"a\"\nrun = [\"true\"]\nremedy = \"do this\"\n";
    shop.write("stray.toml", good);
    shop.write("contenders/stray.toml", good);
    assert!(!stdout(&shop.run(&["contender", "list"])).contains("stray"));
    shop.write("config/crossway/contenders/own.toml", &good.replace("stray", "own"));
    let list = stdout(&shop.run(&["contender", "list"]));
    assert!(list.contains("own") && !list.contains("stray"), "{list}");
    assert!(fs::read_dir(tree()).unwrap().count() > 0);
}
