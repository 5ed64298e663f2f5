//! Command prefixes that need no set-up, and hosts that cannot be used.

use super::*;

#[test]
fn plain_prefixes_are_hosts_and_share_their_clock() {
    let place = Place::new(PLAN);
    let output = place.measure(&["--hosts", "nice -n 0,env A=1"]);
    let records = measured(&place, &output);
    assert_eq!(records.len(), 2 * 2 * 3 + 2 * 3 * 3);
    check_hosts(&records, "nice -n 0", "env A=1");
    // One kernel has one clock: times may be compared.
    let paced: Vec<_> = records.iter().filter(|r| r.case.contains("paced")).collect();
    assert!(paced.iter().all(|r| r.latency_ns.iter().any(|l| l.span == Span::OneWay)));
    assert!(records.iter().all(|r| r.throughput.unwrap().sender_wall_ns.is_none()));
    let told = errors(&output);
    assert!(told.contains("host 'env A=1': Linux "), "{told}");
    assert_eq!(place.leftovers(), Vec::<String>::new());

    // The fingerprints of the hosts are stored next to this machine's.
    let text = fs::read_to_string(place.run().join("env.json")).unwrap();
    let environment: serde_json::Value = serde_json::from_str(&text).unwrap();
    let id = &records[0].hosts[0].environment;
    assert_eq!(environment["hosts"][id.as_str()]["machine_id"], **id);

    // A record alone suffices to repeat it, except that its hosts are commands, which the user must
    // name again.
    let line = format!("{}:1", place.run().display());
    let rerun = |more: &[&str]| {
        let args = [&["rerun", &line, "--out", "again", "--json"], more].concat();
        place.command(&args).output().unwrap()
    };
    let refused = rerun(&[]);
    assert_eq!(refused.status.code(), Some(2), "{}", errors(&refused));
    let said = errors(&refused);
    assert!(said.contains(":1 --hosts 'nice -n 0"), "{said}");
    assert!(!place.dir.path().join("again").exists());
    let again = rerun(&["--hosts", "nice -n 0,env A=1"]);
    assert!(again.status.success(), "{}", errors(&again));
}

#[test]
fn a_plan_without_testbeds_runs_what_crosses_hosts_and_goes_on_there() {
    let place = Place::new(
        "[group.x]\nmechanisms = [\"pipe\", \"tcp\"]\nworkload = \"ping-pong\"\nsize_bytes = 64\n\
         trials = 60\nwarmup_ms = 5\nmeasure_ms = 20\n",
    );
    let mut command = place.command(&["measure", "plan.toml", "--hosts", "env,local"]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    place.await_records(3);
    signal(child.id() as i32, "-INT");
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(place.leftovers(), Vec::<String>::new());
    assert!(place.records().len() < 60);

    let run = place.run().display().to_string();
    let resumed = |hosts: &[&str]| {
        place.command(&[&["measure", "--resume", &run], hosts].concat()).output().unwrap()
    };
    // The file that has their prefixes could be a stranger's.
    for (hosts, says) in [
        (
            &[][..],
            "not taken from its files; if you trust these, add them: crossway measure --resume",
        ),
        (&["--hosts", "env,nice"], "other hosts; continue it with: crossway measure --resume"),
    ] {
        let refused = resumed(hosts);
        assert_eq!(refused.status.code(), Some(2), "{}", errors(&refused));
        let said = errors(&refused);
        assert!(said.contains(says) && said.contains("--hosts 'env,local'"), "{said}");
    }
    let output = resumed(&["--hosts", "env,local"]);
    let records = measured(&place, &output);
    assert_eq!(records.len(), 60);
    check_hosts(&records, "env", "local");
}

#[test]
fn hosts_that_cannot_be_used_are_one_clear_error_each() {
    let place = Place::new(PLAN);
    let greeting =
        concat!("crossway-agent protocol=3 version=", env!("CARGO_PKG_VERSION"), " records=2");
    let nonsense = format!("sh -c 'echo {greeting}; echo garbage; cat'");
    for (host, says, remedy) in [
        ("no-such-program x", "cannot run 'no-such-program'", "correct the command in --hosts"),
        ("false", "ended with code 1", "test it manually: false "),
        (
            "ssh -o BatchMode=yes -o ConnectTimeout=5 -p 1 127.0.0.1",
            "Connection refused",
            "check that the machine is up",
        ),
        ("sh -c 'echo Welcome to x; cat'", "printed 'Welcome to x'", "must not print"),
        ("sh -c 'printf half; exit 3'", "printed 'half'", "must not print"),
        (
            "sh -c 'echo crossway-agent protocol=9 version=9.9 records=9; cat'",
            "runs crossway 9.9 (protocol 9, records 9), but this is",
            "install the same version",
        ),
        (nonsense.as_str(), "carried an invalid message", "look for the cause on that host"),
        ("env=10.0.0", "'10.0.0' is not an IP address", "write each host as the command prefix"),
        ("env", "named twice", "write each host as the command prefix"),
    ] {
        let output = place.measure(&["--hosts", &format!("{host},env")]);
        let errors = errors(&output);
        assert_eq!(output.status.code(), Some(2), "{host}: {errors}");
        let last = errors.lines().last().unwrap_or_default();
        assert!(last.contains(says) && last.contains(remedy), "{host}: {errors}");
        assert_eq!(place.leftovers(), Vec::<String>::new(), "{host}");
    }
    assert!(!place.dir.path().join("out").exists(), "a run was begun");
}

#[test]
fn an_agent_refuses_a_controller_of_another_version() {
    for (line, says) in [
        ("crossway-controller protocol=9 version=9.9 records=9\n", "its controller is 9.9"),
        ("GET / HTTP/1.1\n", "not started by crossway"),
    ] {
        let agent = Command::new(CROSSWAY)
            .arg("agent")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        std::io::Write::write_all(&mut agent.stdin.as_ref().unwrap(), line.as_bytes()).unwrap();
        let output = agent.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(errors(&output).contains(says), "{}", errors(&output));
    }
}

#[test]
fn ctrl_c_while_a_host_keeps_silent_ends_at_once_with_all_it_started() {
    let place = Place::new(PLAN);
    let hosts = "sh -c 'sleep 1000; true',env";
    let mut command = place.command(&["measure", "plan.toml", "--hosts", hosts]);
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    await_that("the silent host", || {
        !place.processes(|line| line.starts_with("sleep 1000")).is_empty()
    });
    signal(child.id() as i32, "-INT");
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    assert!(errors(&output).contains("interrupted before the first trial"));
    assert_eq!(place.leftovers(), Vec::<String>::new());
    assert!(!place.dir.path().join("out").exists(), "a run was begun");
}

#[test]
fn all_pairs_of_three_hosts_are_measured_one_after_the_other() {
    let place = Place::new(&LONG.replace("[64, 65, 66]", "64").replace("300", "10"));
    let output = place.measure(&["--hosts", "env A=1,env A=2,local"]);
    let records = measured(&place, &output);
    let mut pairs: Vec<&str> = records.iter().map(|r| r.host.as_str()).collect();
    pairs.sort_unstable();
    pairs.dedup();
    assert_eq!(pairs, ["env A=1 to env A=2", "env A=1 to local", "env A=2 to local"]);
    assert_eq!(records.len(), 9);
}
