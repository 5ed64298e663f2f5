//! Checks the frames of the node in user space with tshark's dissector.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use super::Site;

/// Captures frames on the node's interface, and reports which of the node's frames tshark considers malformed.
pub(crate) struct Capture {
    tshark: Option<Child>,
    file: std::path::PathBuf,
    mac: String,
}

impl Capture {
    pub(crate) fn start(site: &Site, name: &str) -> Self {
        let file = std::env::temp_dir().join(format!("{name}-{}.pcapng", std::process::id()));
        let user = site.lab.host("user").unwrap();
        let mac = user.mac.clone();
        let mut command = user.command("tshark");
        command.args([
            OsStr::new("-q"),
            OsStr::new("-i"),
            OsStr::new(&user.interface),
            OsStr::new("-w"),
            file.as_os_str(),
        ]);
        let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
        let Ok(mut tshark) = child else {
            eprintln!("SKIP the dissector's verdict: tshark is missing; install it");
            return Self { tshark: None, file, mac };
        };
        // It prints "Capturing on" once it is capturing.
        let mut lines = BufReader::new(tshark.stderr.take().expect("piped")).lines();
        let listening = lines.by_ref().any(|l| l.is_ok_and(|l| l.contains("Capturing on")));
        assert!(listening, "tshark did not begin to capture");
        std::thread::spawn(move || lines.for_each(drop));
        Self { tshark: Some(tshark), file, mac }
    }

    pub(crate) fn verdict(mut self) {
        let Some(mut tshark) = self.tshark.take() else { return };
        let pid = tshark.id().to_string();
        let _ = Command::new("kill").args(["-INT", &pid]).status();
        tshark.wait().expect("waits");
        let count = |filter: &str| {
            let file = self.file.as_os_str();
            // A second UDP bearer uses the next port, which the dissector does not know by default.
            let second = ["-d", "udp.port==6119,tipc"].map(OsStr::new);
            // Dissect each frame separately. TIPC's fragments do not identify their message, so a dissector that reassembles them
            // mixes different messages as soon as the capture misses one, as happens on a busy machine and when a device goes down,
            // and reports the result as malformed.
            let alone = ["-o", "tipc.defragment:FALSE"].map(OsStr::new);
            // A bundle may contain more messages than tshark's limit of tree depth, which it would report as a dissector bug.
            let deep = ["-o", "gui.max_tree_depth:5000"].map(OsStr::new);
            let args = [
                OsStr::new("-r"),
                file,
                OsStr::new("-Y"),
                OsStr::new(filter),
                second[0],
                second[1],
                alone[0],
                alone[1],
                deep[0],
                deep[1],
            ];
            let out = Command::new("tshark")
                .args(args)
                .stderr(Stdio::null())
                .output()
                .expect("tshark reads");
            String::from_utf8_lossy(&out.stdout).lines().map(str::to_owned).collect::<Vec<_>>()
        };
        assert!(count("tipc").len() > 100, "the capture has too few TIPC frames to judge by");
        let mut malformed = count(&format!("tipc && _ws.malformed && eth.src == {}", self.mac));
        // It misinterprets group messages (user 9), the kernel's as well as ours, as TIPC 1 routing, also in bundles.
        malformed.retain(|line| !line.contains("Route Dist"));
        if !malformed.is_empty() {
            let kept = self.file.with_extension("malformed.pcapng");
            std::fs::rename(&self.file, &kept).expect("the capture is kept");
            panic!(
                "tshark considers these frames malformed, see {}: {malformed:#?}",
                kept.display()
            );
        }
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        if let Some(tshark) = &mut self.tshark {
            let _ = tshark.kill();
            let _ = tshark.wait();
        }
        let _ = std::fs::remove_file(&self.file);
    }
}
