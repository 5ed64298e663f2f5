//! A run in which every text names its author, and the bundle of it.

use std::collections::BTreeMap;
use std::io::Read;

use crossway_lab::env::Environment;
use crossway_records::record::{HostRef, IfaceMeters, Record};
use crossway_records::samples;
use flate2::read::GzDecoder;

use super::*;

/// What a bundle must not contain.
const SECRETS: [&str; 9] = [
    "aurelia",
    "board7",
    "example.com",
    "carol",
    "tower",
    "192.0.2.7",
    "fe80::5",
    "02:00:5e:00:53:01",
    "/srv/people",
];
const TOLD: &str = "aurelia@board7.example.com (192.0.2.7:22, [fe80::5%eth0]:22, eth:02:00:5e:00:53:01) from tower: \
                    /Users/carol/x and /srv/people/aurelia/y: \"lost\"";
const HOST: &str = "ssh -p 22 aurelia@board7.example.com";

fn identity() -> Identity {
    let mut identity = Identity::default();
    identity.add_host_name("tower");
    identity.add_home("/srv/people/aurelia");
    identity
}

fn told(record: &mut Record) {
    let text = || TOLD.to_owned();
    record.host = format!("local to {HOST}");
    let host = |name: &str| HostRef {
        name: name.to_owned(),
        prefix_kind: "ssh".to_owned(),
        kernel: "6.1.0".to_owned(),
        environment: "00".to_owned(),
    };
    record.hosts = vec![host("local"), host(HOST)];
    record.net = vec![IfaceMeters {
        host: HOST.to_owned(),
        name: "eth0".to_owned(),
        ..IfaceMeters::default()
    }];
    (record.reason, record.remedy) = (Some(text()), Some(text()));
    record.mechanism_version = Some(text());
    record.warnings = vec![text()];
    record.nulls = BTreeMap::from([(text(), text())]);
    record.facts.insert(text(), 1);
}

/// Writes the run to a folder.
fn make(dir: &Path) -> Vec<Record> {
    let mut records = samples::trials("pipe", 64, &[1000, 1010, 1020, 1030, 1040], 1.0);
    records.iter_mut().for_each(told);
    let mut lines = samples::lines(&records);
    lines.extend(format!("{{\"cut\":\"{}", "board7 off").bytes());
    fs::write(dir.join(RESULTS), lines).unwrap();
    let mut environment = Environment::take().unwrap();
    environment.hostname = Some("tower".to_owned());
    fs::write(dir.join(ENVIRONMENT), serde_json::to_vec(&environment).unwrap()).unwrap();
    let info = RunInfo {
        run: records[0].run.clone(),
        name: Some("carol".to_owned()),
        plan: "/Users/carol/plan.toml".to_owned(),
        filters: vec![TOLD.to_owned()],
        hosts: Some(format!("local,{HOST}=192.0.2.7")),
        started_unix_ms: 1_700_000_000_000,
        trials: None,
    };
    fs::write(dir.join(RUN), serde_json::to_vec_pretty(&info).unwrap()).unwrap();
    fs::write(dir.join(PLAN), format!("# {TOLD}\n")).unwrap();
    fs::write(dir.join("notes.txt"), TOLD).unwrap();
    records
}

fn unpack(bundle: &[u8]) -> BTreeMap<String, String> {
    let mut archive = tar::Archive::new(GzDecoder::new(bundle));
    let mut files = BTreeMap::new();
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        let header = entry.header();
        assert_eq!((header.uid().unwrap(), header.gid().unwrap()), (0, 0));
        assert_eq!(header.username(), Ok(Some("")));
        assert_eq!(header.mtime().unwrap(), 1_700_000_000);
        let path = entry.path().unwrap().display().to_string();
        let mut text = String::new();
        entry.read_to_string(&mut text).unwrap();
        files.insert(path, text);
    }
    files
}

fn bundle(dir: &Path, redaction: Option<Redaction>) -> (Vec<u8>, Replaced) {
    let mut out = Vec::new();
    let replaced = write(dir, redaction, &mut out).unwrap();
    (out, replaced)
}

#[test]
fn no_text_of_a_bundle_names_anybody_and_its_figures_are_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let records = make(dir.path());
    let redacted = || bundle(dir.path(), Some(names_in(dir.path(), identity()).unwrap()));
    let (bytes, replaced) = redacted();
    assert!(bytes == redacted().0, "the second bundle of a run differs");
    assert_eq!((replaced.users, replaced.addresses), (2, 3));
    assert_eq!(replaced.left, Vec::<String>::new());

    let files = unpack(&bytes);
    let run = &records[0].run;
    let names: Vec<&str> = files.keys().map(|f| f.strip_prefix(run).unwrap()).collect();
    assert_eq!(names, ["/env.json", "/plan.toml", "/report.html", "/results.jsonl", "/run.json"]);
    for (file, text) in &files {
        for secret in SECRETS {
            let at = text.find(secret);
            let around = at.map(|at| &text[at.saturating_sub(60)..(at + 60).min(text.len())]);
            assert_eq!(around, None, "{file} contains {secret}");
        }
    }
    // Whoever gets the bundle can read it, and two hosts are still two.
    let copy = tempfile::tempdir().unwrap();
    for (file, text) in &files {
        fs::write(copy.path().join(Path::new(file).file_name().unwrap()), text).unwrap();
    }
    let read = records_io::read_records(copy.path()).unwrap().records;
    assert_eq!(read.len(), records.len());
    for (is, was) in read.iter().zip(&records) {
        assert_eq!(
            (&is.case, &is.latency_ns, &is.counts),
            (&was.case, &was.latency_ns, &was.counts)
        );
        assert_ne!(is.hosts[0].name, is.hosts[1].name);
        assert_eq!(is.hosts[1].name, is.net[0].host);
    }
    assert!(Run::read(copy.path()).unwrap().machine.line.contains("CPU"));
}

#[test]
fn names_stay_if_asked() {
    let dir = tempfile::tempdir().unwrap();
    let records = make(dir.path());
    let (bytes, replaced) = bundle(dir.path(), None);
    assert_eq!(replaced, Replaced::default());
    let files = unpack(&bytes);
    let results = &files[&format!("{}/{RESULTS}", records[0].run)];
    assert_eq!(results.as_bytes(), fs::read(dir.path().join(RESULTS)).unwrap());
    let page = &files[&format!("{}/{PAGE}", records[0].run)];
    assert!(page.contains("board7"));
}
