//! Programs on a virtual host: signals reach them, and they can clean up when their network is taken down.

use super::*;

/// A program that creates the file `begun` when it starts and the file `cleaned` when it gets SIGTERM.
const PROGRAM: &str = "trap ': > cleaned; exit 7' TERM; : > begun; while :; do sleep 0.02; done";

/// A network with one host, which is taken down at the end of the test at the latest.
struct Net(String);

impl Net {
    fn up() -> Self {
        let up =
            Command::new(CROSSWAY).args(["net", "up", "--hosts", "a", "--json"]).output().unwrap();
        assert!(up.status.success(), "{}", String::from_utf8_lossy(&up.stderr));
        let network: serde_json::Value = serde_json::from_slice(&up.stdout).unwrap();
        Net(network["name"].as_str().unwrap().to_owned())
    }

    /// Starts the program on the host, in this folder.
    fn start(&self, place: &Path) -> Child {
        let child = Command::new(CROSSWAY)
            .args(["net", "exec", &format!("{}/a", self.0), "--", "sh", "-c", PROGRAM])
            .current_dir(place)
            .spawn()
            .unwrap();
        await_that("the program runs", || place.join("begun").exists());
        child
    }

    fn down(&self) -> bool {
        Command::new(CROSSWAY).args(["net", "down", &self.0]).status().unwrap().success()
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.down();
        }
    }
}

#[test]
fn a_signal_to_net_exec_reaches_the_program() {
    if !can_make_networks("signals of net exec") {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let net = Net::up();
    let mut child = net.start(place.path());
    signal(child.id() as i32, "-TERM");
    let status = child.wait().unwrap();
    assert_eq!((status.code(), place.path().join("cleaned").exists()), (Some(7), true));
    assert!(net.down());
}

#[test]
fn programs_can_clean_up_when_their_network_is_taken_down() {
    if !can_make_networks("clean-up by programs of net down") {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let net = Net::up();
    let mut child = net.start(place.path());
    assert!(net.down());
    child.wait().unwrap();
    assert!(place.path().join("cleaned").exists());
}
