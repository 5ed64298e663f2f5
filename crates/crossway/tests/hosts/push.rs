//! Agents that are copied to their host first (`--push`). The hosts are this machine with other environments.

use std::os::unix::fs::{MetadataExt, PermissionsExt};

use super::*;

const SMALL: &str = r#"
[testbed.pair]
kind = "hosts"
[group.x]
testbed = "pair"
mechanisms = "tcp"
workload = "ping-pong"
size_bytes = 64
trials = 1
warmup_ms = 1
measure_ms = 5
"#;

/// A host whose caches are in the folder, with further settings of its environment.
fn host(place: &Place, settings: &str) -> String {
    let dir = place.dir.path().display();
    format!("env HOME= XDG_CACHE_HOME={dir}/cache TMPDIR={dir}/tmp {settings}")
}

fn copies(place: &Place, folder: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(place.dir.path().join(folder)).into_iter().flatten();
    entries.map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn the_agent_is_copied_once_to_a_folder_of_the_user() {
    let place = Place::new(SMALL);
    fs::create_dir(place.dir.path().join("tmp")).unwrap();
    let hosts = format!("local,{}", host(&place, "A=1"));
    let measure = || {
        let output = place.measure(&["--hosts", &hosts, "--push"]);
        assert!(output.status.success(), "{}", errors(&output));
        assert_eq!(place.leftovers(), Vec::<String>::new());
        copies(&place, "cache/crossway/agents")
    };
    let files = measure();
    let [file] = &files[..] else { panic!("{files:?}") };
    assert_eq!(fs::read(file).unwrap(), fs::read(CROSSWAY).unwrap());
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(file), mode(file.parent().unwrap())), (0o500, 0o700));

    let first = fs::metadata(file).unwrap().ino();
    assert_eq!(measure(), files);
    assert_eq!(fs::metadata(file).unwrap().ino(), first, "it was copied again");

    // A copy that somebody has damaged is not run.
    fs::remove_file(file).unwrap();
    fs::write(file, "#!/bin/sh\ntouch damaged\n").unwrap();
    assert_eq!(measure(), files);
    assert_eq!(fs::read(file).unwrap(), fs::read(CROSSWAY).unwrap());

    // A folder below one that others may write to is not used.
    let cache = place.dir.path().join("cache");
    fs::set_permissions(&cache, fs::Permissions::from_mode(0o777)).unwrap();
    fs::remove_file(file).unwrap();
    assert_eq!(measure(), Vec::<PathBuf>::new());
    let folders = copies(&place, "tmp");
    let [folder] = &folders[..] else { panic!("{folders:?}") };
    assert_eq!(fs::read_dir(folder).unwrap().count(), 1);
}

#[test]
fn a_host_with_another_processor_needs_the_file_for_it() {
    let place = Place::new(SMALL);
    let dir = place.dir.path();
    let (other, target) = match std::env::consts::ARCH {
        "aarch64" => ("x86_64", "x86_64-unknown-linux-gnu"),
        _ => ("aarch64", "aarch64-unknown-linux-gnu"),
    };
    fs::create_dir(dir.join("bin")).unwrap();
    fs::write(dir.join("bin/uname"), format!("#!/bin/sh\necho {other}\n")).unwrap();
    fs::set_permissions(dir.join("bin/uname"), fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("PATH={}/bin:/usr/bin:/bin", dir.display());
    let hosts = format!("local,{}", host(&place, &path));
    let files = dir.join("files");
    fs::create_dir(&files).unwrap();
    let refused = || {
        let push = format!("--push={}", files.display());
        let output = place.measure(&["--hosts", &hosts, &push]);
        assert_eq!(output.status.code(), Some(2), "{}", errors(&output));
        errors(&output)
    };
    let told = refused();
    let own = std::env::consts::ARCH;
    assert!(told.contains(&format!("its processor is {other}, this file is for {own}")), "{told}");
    assert!(told.contains(&format!("make dist TARGETS={target}")), "{told}");

    let name = format!("crossway-{}-{target}", env!("CARGO_PKG_VERSION"));
    fs::copy(CROSSWAY, files.join(&name)).unwrap();
    let told = refused();
    assert!(told.contains(&format!("{name} is for {own}")), "{told}");
    assert!(!dir.join("out").exists(), "a run was begun");
}

#[test]
fn a_host_without_a_folder_for_programs_says_so() {
    let place = Place::new(SMALL);
    let bin = place.dir.path().join("bin");
    fs::create_dir(&bin).unwrap();
    // Nothing can be created there.
    fs::write(bin.join("mkdir"), "#!/bin/sh\nexit 1\n").unwrap();
    fs::set_permissions(bin.join("mkdir"), fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("PATH={}:/usr/bin:/bin", bin.display());
    let output = place.measure(&["--hosts", &format!("local,{}", host(&place, &path)), "--push"]);
    assert_eq!(output.status.code(), Some(2));
    let told = errors(&output);
    assert!(told.contains("no folder there") && told.contains("XDG_CACHE_HOME="), "{told}");
}
