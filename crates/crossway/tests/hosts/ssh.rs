//! Hosts behind an sshd that the test starts.

use super::*;

/// An sshd with keys, configuration and port of its own for this test; killed on drop.
struct Sshd {
    server: Child,
    client: String,
}

impl Drop for Sshd {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// Starts sshd on `address` with the command prefix `prefix`; `None` if it is not installed.
fn sshd(place: &Place, prefix: &[&str], address: &str, port: u16) -> Option<Sshd> {
    if !Path::new("/usr/sbin/sshd").exists() {
        eprintln!("SKIP ssh: no /usr/sbin/sshd; sudo apt-get install openssh-server");
        return None;
    }
    let dir = place.dir.path();
    let file = |name: &str| dir.join(name).display().to_string();
    for key in ["host", "user"] {
        let made = Command::new("ssh-keygen")
            .args(["-q", "-t", "ed25519", "-N", "", "-f", &file(key)])
            .status()
            .expect("ssh-keygen");
        assert!(made.success());
    }
    fs::create_dir_all("/run/sshd").expect("sshd's empty folder; needs root");
    let server = format!(
        "Port {port}\nListenAddress {address}\nHostKey {}\nAuthorizedKeysFile {}\nStrictModes no\n\
         UsePAM no\nPidFile none\nPermitRootLogin yes\nPrintMotd no\nSetEnv XDG_CACHE_HOME={}\n",
        file("host"),
        file("user.pub"),
        file("cache"),
    );
    fs::write(dir.join("sshd_config"), server).unwrap();
    let client = format!(
        "Host there\n  HostName {address}\n  Port {port}\n  IdentityFile {}\n  IdentitiesOnly yes\n  \
         StrictHostKeyChecking no\n  UserKnownHostsFile /dev/null\n  LogLevel ERROR\n  BatchMode yes\n",
        file("user"),
    );
    fs::write(dir.join("ssh_config"), client).unwrap();
    let words: Vec<&str> = prefix.iter().copied().chain(["/usr/sbin/sshd"]).collect();
    let server = Command::new(words[0])
        .args(&words[1..])
        .args(["-D", "-f", &file("sshd_config")])
        // Not in the folder of the place, where the process would count as left behind.
        .current_dir("/")
        .spawn()
        .expect("sshd");
    let sshd = Sshd { server, client: format!("ssh -F {} there", file("ssh_config")) };
    let mut login: Vec<&str> = prefix.to_vec();
    login.extend(sshd.client.split(' '));
    await_that("a login", || {
        let output = Command::new(login[0]).args(&login[1..]).arg("true").output().unwrap();
        output.status.success()
    });
    Some(sshd)
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[test]
fn ssh_on_loopback_is_a_host() {
    let place = Place::new(PLAN);
    let Some(sshd) = sshd(&place, &[], "127.0.0.1", free_port()) else { return };
    let hosts = format!("local,{}", sshd.client);
    let output = place.measure(&["--hosts", &hosts, "--agent-program", CROSSWAY]);
    let records = measured(&place, &output);
    check_hosts(&records, "local", &sshd.client);
    assert!(records.iter().all(|r| r.hosts.last().unwrap().prefix_kind != "env"));
    assert_eq!(place.leftovers(), Vec::<String>::new());

    // It is not in the PATH there.
    let output = place.measure(&["--hosts", &hosts, "--agent-program", "/no/crossway"]);
    let told = errors(&output);
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(told.contains("ended with code 127") && told.contains("--agent-program"), "{told}");
}

#[test]
fn ssh_between_two_namespaces_finds_the_link_s_address() {
    if !can_make_networks("ssh_between_two_namespaces") {
        return;
    }
    let up = Command::new(CROSSWAY).args(["net", "up", "--json"]).output().unwrap();
    let network: serde_json::Value = serde_json::from_slice(&up.stdout).unwrap();
    let name = network["name"].as_str().unwrap().to_owned();
    struct Down(String);
    impl Drop for Down {
        fn drop(&mut self) {
            let _ = Command::new(CROSSWAY).args(["net", "down", &self.0]).status();
        }
    }
    let down = Down(name.clone());
    let (a, b) = (format!("cw-{name}-a"), format!("cw-{name}-b"));
    let place = Place::new(PLAN);
    let Some(sshd) = sshd(&place, &["ip", "netns", "exec", &b], "0.0.0.0", 2222) else { return };
    // From host a, over the link, to host b.
    let config = place.dir.path().join("ssh_config");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, text.replace("HostName 0.0.0.0", "HostName 10.77.0.2")).unwrap();
    let there = format!("ip netns exec {a} {}", sshd.client);
    let hosts = format!("ip netns exec {a},{there}");
    let mut command = place.command(&["measure", "plan.toml", "--hosts", &hosts, "--push"]);
    let output = command.env("XDG_CACHE_HOME", place.dir.path().join("cache")).output().unwrap();
    let records = measured(&place, &output);
    check_hosts(&records, &format!("ip netns exec {a}"), &there);
    for record in records.iter().filter(|r| r.inputs.ends == Ends::Between) {
        let packets = |at: usize| {
            let host = &record.hosts[at].name;
            let eth0 = record.net.iter().find(|i| i.host == *host && i.name == "eth0");
            eth0.map_or(0, |i| i.tx_packets)
        };
        assert!(packets(0) > 0 && packets(1) > 0, "{}: {:?}", record.case, record.net);
    }
    drop(sshd);
    drop(down);
    assert_eq!(place.leftovers(), Vec::<String>::new());
}

#[test]
fn a_login_that_cannot_be_is_one_clear_error_and_nobody_is_asked() {
    let place = Place::new(PLAN);
    let port = free_port();
    let Some(sshd) = sshd(&place, &[], "127.0.0.1", port) else { return };
    let key = place.dir.path().join("user").display().to_string();
    // Without the configuration that the other tests use; nor may a password dialog be opened.
    let bare = format!("ssh -F none -p {port}");
    let unasked = "-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null";
    let login = format!("{bare} {unasked} -i {key} 127.0.0.1");
    for (host, says, remedy) in [
        (format!("{bare} no-such-host.invalid"), "Could not resolve", "correct the host's name"),
        (
            format!("{bare} -o UserKnownHostsFile=/dev/null 127.0.0.1"),
            "Host key verification failed",
            "confirm the host's key",
        ),
        (
            format!("{bare} {unasked} -o IdentityFile=none 127.0.0.1"),
            "Permission denied",
            "must not require a password",
        ),
        (format!("{login} 'echo Welcome;'"), "printed 'Welcome'", "must not print"),
        (
            format!("{login} 'echo crossway-agent protocol=1 version=0.0.1 records=1; cat; :'"),
            "runs crossway 0.0.1 (protocol 1, records 1)",
            "install the same version",
        ),
        (login, "ended with code 127", "--agent-program PATH"),
    ] {
        let mut command =
            place.command(&["measure", "plan.toml", "--agent-program", "no-crossway"]);
        command.args(["--hosts", &format!("{host},local")]);
        command.env("DISPLAY", ":99").env("SSH_ASKPASS", "/bin/cat").stdin(Stdio::null());
        let output = command.output().unwrap();
        let told = errors(&output);
        assert_eq!(output.status.code(), Some(2), "{host}: {told}");
        let last = told.lines().last().unwrap_or_default();
        assert!(last.contains(says) && last.contains(remedy), "{host}: {told}");
        assert_eq!(place.leftovers(), Vec::<String>::new(), "{host}");
    }
    assert!(!place.dir.path().join("out").exists(), "a run was begun");
    drop(sshd);
}
