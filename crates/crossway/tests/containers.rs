//! Containers on one kernel as a testbed, with real namespaces.

mod place;

use std::fs;
use std::process::Command;

use crossway_records::record::{Record, Status};
use place::{Place, await_that};

const PLAN: &str = "[testbed.apart]\nkind = \"containers\"\n\
    [testbed.open]\nkind = \"containers\"\nshares = [\"network\", \"ipc\", \"volume\", \"shm\", \"pid\"]\n\
    [testbed.volume]\nkind = \"containers\"\nshares = [\"volume\"]\n\
    [group.x]\ntestbed = [\"apart\", \"open\", \"volume\"]\nends = \"between\"\n\
    mechanisms = [\"pipe\", \"fifo\", \"uds-stream\", \"uds-dgram\", \"uds-seqpacket\", \"tcp-nodelay\", \"sysv-mq\", \"shm-futex\", \"cma\"]\n\
    workload = \"ping-pong\"\nsize_bytes = 64\nplacement = \"unpinned\"\ntrials = 1\nmessages = 50\nwarmup_ms = 1\n";

/// Returns whether namespaces can be created here; prints why if they cannot.
fn can_contain() -> bool {
    let made = Command::new("ip").args(["netns", "list"]).output();
    let root = crossway_sys::proc::is_root();
    let able = root && made.is_ok_and(|out| out.status.success());
    if !able {
        eprintln!(
            "SKIP: containers need root and iproute2; sudo apt-get install iproute2 util-linux"
        );
    }
    able
}

#[test]
fn what_is_shared_decides_what_passes() {
    if !can_contain() {
        return;
    }
    let place = Place::new(PLAN);
    let out = place.measure(&[]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let records = place.records();
    let of = |mechanism: &str, testbed: &str| -> Record {
        let found = records
            .iter()
            .find(|r| r.mechanism == mechanism && r.inputs.testbed.as_deref() == Some(testbed));
        found.unwrap_or_else(|| panic!("no record of {mechanism} on {testbed}")).clone()
    };
    let passes = |mechanism: &str, testbed: &str| {
        let record = of(mechanism, testbed);
        match record.status {
            Status::Ok | Status::Degraded => {
                assert_eq!(record.counts.unwrap().received, 50, "{mechanism} on {testbed}");
                true
            }
            _ => {
                let why = record.reason.unwrap_or_default();
                assert_eq!(record.status, Status::Skipped, "{mechanism} on {testbed}: {why}");
                assert!(why.contains("cannot communicate between these containers"), "{why}");
                false
            }
        }
    };
    for (mechanism, apart, volume) in [
        // Connected by descriptors, which are passed whatever is shared.
        ("pipe", true, true),
        ("shm-futex", true, true),
        // Connected by path, by key, by address. UNIX sockets have a path where the network is not shared.
        ("fifo", false, true),
        ("uds-stream", false, true),
        ("uds-dgram", false, true),
        ("uds-seqpacket", false, true),
        ("sysv-mq", false, false),
        ("tcp-nodelay", true, true),
        // Addressed by process id.
        ("cma", false, false),
    ] {
        assert_eq!(passes(mechanism, "apart"), apart, "{mechanism} apart");
        assert_eq!(passes(mechanism, "volume"), volume, "{mechanism} with a volume");
        assert!(passes(mechanism, "open"), "{mechanism} with all shared");
    }
    assert!(of("fifo", "open").facts.contains_key("offered_up"));
    assert!(of("pipe", "apart").facts["offered_descriptors"] > 0);
    let page = fs::read_to_string(place.run().join("report.html")).unwrap();
    assert!(page.contains("Between containers of one kernel") && page.contains("does not work"));
    assert_eq!(place.leftovers(), Vec::<String>::new());
}

#[test]
fn a_killed_run_leaves_no_container() {
    if !can_contain() {
        return;
    }
    let long = PLAN
        .replace("testbed = [\"apart\", \"open\", \"volume\"]", "testbed = \"apart\"")
        .replace("messages = 50", "measure_ms = 600000")
        .replace("\"pipe\", ", "");
    let place = Place::new(&long);
    let mut child = place.start();
    await_that("two roles in containers", || {
        place.processes(|line| line.starts_with("/proc/self/fd/9 role")).len() >= 2
    });
    child.kill().unwrap();
    child.wait().unwrap();
    await_that("their end", || place.leftovers().is_empty());
}

/// An ordinary user cannot create containers, which the dry run knows.
#[test]
fn a_dry_run_knows_that_containers_cannot_be_created() {
    let place = Place::new(PLAN);
    let mut command = place.command(&["measure", "plan.toml", "--dry-run", "--json"]);
    if crossway_sys::proc::is_root() {
        // The user nobody, who must be able to enter the folder and to use the program.
        use std::os::unix::fs::PermissionsExt;
        use std::os::unix::process::CommandExt;
        for folder in [place.dir.path().to_owned(), place.dir.path().join("rt")] {
            fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
        }
        std::os::unix::fs::chown(place.dir.path().join("rt"), Some(65_534), Some(65_534)).unwrap();
        fs::set_permissions(place.dir.path().join("rt"), fs::Permissions::from_mode(0o700))
            .unwrap();
        command.uid(65_534).gid(65_534);
    }
    let out = command.output();
    let Ok(out) = out else {
        eprintln!("SKIP: the program cannot be run as another user; build where all may read");
        return;
    };
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let dry: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    let cases = dry["cases"].as_array().unwrap();
    assert_eq!(dry["skipped"], cases.len(), "{dry}");
    for case in cases {
        let (why, remedy) = (case["skipped"].as_str(), case["remedy"].as_str());
        let told = |text: Option<&str>| text.is_some_and(|text| text.contains("root"));
        assert!(told(why) || told(remedy), "{case}");
    }
}

#[test]
fn bad_shares_are_refused_by_name() {
    for (from, to, said) in [
        ("\"ipc\"", "\"icp\"", "unknown share 'icp'; allowed: volume, shm, network, ipc, pid"),
        ("kind = \"containers\"\n[", "kind = \"containers\"\nmtu = 9000\n[", "mtu"),
        (
            "kind = \"containers\"\nshares = [\"volume\"]",
            "kind = \"netlab\"\nshares = [\"volume\"]",
            "only containers can share",
        ),
    ] {
        let place = Place::new(&PLAN.replace(from, to));
        let out = place.measure(&["--list"]);
        let text = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(2), "{text}");
        assert!(text.contains(said), "{text}");
    }
}
