//! Guests with a kernel of Debian's under QEMU, beside those of user-mode Linux.

use std::path::Path;
use std::process::Command;

use crossway_records::record::{Record, Status};

use super::{Up, await_true, crossway, errors, exec, own, processes};

/// The kernel of these tests.
const KERNEL: &str = "6.12";

/// Gets the kernel unless it is here. Returns `false` and prints the reason if it cannot be had or booted on this machine.
fn kernel_is_here() -> bool {
    let why = match crossway_netlab::check_qemu() {
        Err(e) => e.to_string(),
        Ok(_) if crossway_netlab::GuestKernel::find(KERNEL).is_ok() => return true,
        Ok(_) => {
            let fetched = crossway(&["guest", "fetch", KERNEL]);
            if fetched.status.success() {
                return true;
            }
            errors(&fetched)
        }
    };
    eprintln!("SKIP guests of kernel {KERNEL}: {why}");
    false
}

/// Calls `boot` again if the kernel crashed before the guest was ready: an emulated one does so now and then. `panicked` says
/// so of what the call returned.
fn until_booted<T>(boot: impl Fn() -> T, panicked: impl Fn(&T) -> bool) -> T {
    for _ in 0..2 {
        let tried = boot();
        if !panicked(&tried) {
            return tried;
        }
        eprintln!("the guest's kernel crashed while it booted, and is booted again");
    }
    boot()
}

const PANIC: &str = "Kernel panic";

#[test]
fn a_packaged_kernel_has_two_cpus_its_own_files_and_a_network_and_leaves_nothing() {
    if !kernel_is_here() {
        return;
    }
    let [net, guest] = ["q", "tq1"].map(own);
    let made = crossway(&["net", "up", "--name", &net, "--guests", "k", "--hosts", "h"]);
    if !made.status.success() {
        let why = errors(&made);
        assert!(why.contains("needs root") || why.contains("install it"), "{why}");
        eprintln!("SKIP a guest on a network: {why}");
        return;
    }
    let _network = Up("net", net.clone());
    let place = format!("{net}/k");
    let words =
        ["guest", "up", &guest, "--kernel", KERNEL, "--cpus", "2", "--net", &place, "--json"];
    let made = until_booted(|| crossway(&words), |output| errors(output).contains(PANIC));
    let _guest = Up("guest", guest.clone());
    assert!(made.status.success(), "{}", errors(&made));
    let record: serde_json::Value = serde_json::from_slice(&made.stdout).expect("JSON");
    let facts = &record["facts"];
    assert!(facts["kernel"].as_str().is_some_and(|k| k.starts_with("6.12.")), "{record}");
    assert!(facts["machine"] == "emulated" || facts["machine"] == "kvm", "{record}");
    assert_eq!(facts["string_functions"], serde_json::Value::Null, "{record}");
    assert_eq!(facts["missing_modules"], serde_json::json!([]), "{record}");

    // Status, errors and signals come back; what a command writes stays in the guest.
    let mark = format!("/etc/crossway-kernel-test-{}", std::process::id());
    let output = exec(&guest, &format!("nproc; echo x > {mark}; cat {mark}; echo bad >&2; exit 7"));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "2\nx\n", "{output:?}");
    assert_eq!((errors(&output).as_str(), output.status.code()), ("bad\n", Some(7)));
    let output = exec(&guest, &format!("echo x > /run/lower{mark}"));
    assert!(errors(&output).contains("Read-only file system"), "{output:?}");
    assert!(!Path::new(&mark).exists());

    // The network's host reaches the guest, and the kernel has TIPC, SCTP and vsock.
    let reach = "import socket; socket.create_connection(('10.77.0.1', 1), 120)";
    let output = crossway(&["net", "exec", &format!("{net}/h"), "--", "python3", "-c", reach]);
    assert!(errors(&output).contains("ConnectionRefused"), "{output:?}");
    let families = "import socket as s
s.socket(s.AF_TIPC, s.SOCK_RDM); s.socket(s.AF_VSOCK, s.SOCK_STREAM)
s.socket(s.AF_INET, s.SOCK_STREAM, 132).listen(); print('all')";
    assert_eq!(exec(&guest, &format!("python3 -c \"{families}\"")).stdout, b"all\n");

    // A killed QEMU ends what runs in the guest, and nothing is left.
    let sleeper = Command::new(super::CROSSWAY)
        .args(["guest", "exec", &guest, "--", "sleep", "600"])
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    await_true("the command runs", || !exec(&guest, "pgrep -x sleep").stdout.is_empty());
    let word = format!("crossway-{guest}");
    let [qemu] = processes(&[&word])[..] else { panic!("one QEMU") };
    assert!(Command::new("kill").args(["-9", &qemu.to_string()]).status().unwrap().success());
    let output = sleeper.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(errors(&output).contains(&format!("guest '{guest}' ended")), "{output:?}");
    await_true("nothing is left", || {
        processes(&[&word]).is_empty()
            && processes(&["guest-keeper", &guest]).is_empty()
            && !Path::new(&format!("/run/crossway/guest/{guest}")).exists()
    });
}

#[test]
fn a_plan_measures_kernels_beside_each_other() {
    if !kernel_is_here() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let plan = folder.path().join("plan.toml");
    // user-mode Linux and Debian's kernel, two guests on one host each.
    std::fs::write(
        &plan,
        "about = 'kernels'\n[testbed.uml]\nkind = 'guests'\n\
         [testbed.deb]\nkind = 'guests'\nkernel = '6.12'\ncpus = 2\n\
         [group.g]\ntestbed = ['uml', 'deb']\nends = 'within'\nplacement = 'same-core'\n\
         mechanisms = ['pipe', 'vsock', 'tipc-kernel-rdm', 'binder']\nworkload = 'ping-pong'\nsize_bytes = 64\n\
         trials = 1\nwarmup_ms = 20\nmeasure_ms = 200\n",
    )
    .unwrap();
    let measured = || {
        let out = tempfile::tempdir_in(folder.path()).unwrap();
        let words = ["measure", plan.to_str().unwrap(), "--out", out.path().to_str().unwrap()];
        let output = crossway(&words);
        assert!(output.status.success(), "{}", errors(&output));
        let run = std::fs::read_dir(&out).unwrap().next().expect("a run").unwrap().path();
        let records = std::fs::read_to_string(run.join("results.jsonl")).unwrap();
        let records = records.lines().map(|line| serde_json::from_str(line).expect("a record"));
        let records: Vec<Record> = records.collect();
        (records, std::fs::read_to_string(run.join("env.json")).unwrap())
    };
    let (records, environment) = until_booted(measured, |(records, _)| {
        let panicked = |r: &Record| r.remedy.as_deref().is_some_and(|said| said.contains(PANIC));
        records.iter().any(panicked)
    });
    let environment: serde_json::Value = serde_json::from_str(&environment).expect("JSON");
    if records.iter().any(|r| r.reason.as_deref().is_some_and(|why| why.contains("needs root"))) {
        eprintln!("SKIP kernels beside each other: guests need root");
        return;
    }
    let of = |testbed: &str, mechanism: &str| {
        let found = records
            .iter()
            .find(|r| r.inputs.testbed.as_deref() == Some(testbed) && r.mechanism == mechanism);
        found.unwrap_or_else(|| panic!("{mechanism} on {testbed}: {records:?}"))
    };
    for mechanism in ["pipe", "vsock", "tipc-kernel-rdm", "binder"] {
        let record = of("deb", mechanism);
        assert!(matches!(record.status, Status::Ok | Status::Degraded), "{record:?}");
        assert!(record.hosts[0].kernel.starts_with("6.12."), "{:?}", record.hosts);
        assert_eq!(record.inputs.testbed_spec.as_ref().unwrap().kernel.as_deref(), Some("6.12"));
        let emulated = record.warnings.iter().any(|warning| warning.contains("are emulated"));
        // Another test's guest may have been refused by KVM since; what counts is what this one was run by.
        let host = &environment["hosts"][&record.hosts[0].environment]["virtualisation"]["guest"];
        assert_eq!(emulated, host == "emulated", "{host}: {:?}", record.warnings);
    }
    if crossway_sys::program::find("linux.uml").is_none() {
        eprintln!(
            "SKIP user-mode Linux beside a kernel of Debian's: apt-get install user-mode-linux"
        );
        return;
    }
    let uml = of("uml", "pipe");
    assert!(!uml.hosts[0].kernel.contains("deb"), "{:?}", uml.hosts);
    assert!(!uml.warnings.iter().any(|warning| warning.contains("emulated")), "{uml:?}");
}

#[test]
fn what_cannot_be_booted_is_said_with_the_next_step() {
    for (words, expected) in [
        (&["--kernel", "5.4-rt"][..], "there is no kernel '5.4-rt'"),
        (&["--kernel", "5.4-rt"], "crossway guest fetch 5.4-rt"),
        (&["--kernel", "./no-such-file"], "kernel './no-such-file': No such file"),
        (&["--kernel", "/proc/self/exe"], "name a bzImage"),
        (&["--accel", "kvm"], "--kernel"),
    ] {
        let output = crossway(&[&["guest", "up", "tqx"], words].concat());
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(errors(&output).contains(expected), "{words:?}: {output:?}");
    }
    let output = crossway(&["guest", "fetch", "./bzImage"]);
    assert!(errors(&output).contains("name a version"), "{output:?}");
}
