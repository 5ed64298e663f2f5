//! Surroundings in which the program is started: folders of other users, no home, and what is inherited.

#[path = "../built/mod.rs"]
mod built;
mod inherited;
mod limits;
#[path = "../place/mod.rs"]
mod place;

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, lchown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crossway_records::record::Status;
use place::Place;

/// A user other than root.
const OTHER: u32 = 65_533;
/// A plan of few short trials.
const PLAN: &str = "[group.x]\nmechanisms = [\"fifo\"]\nworkload = [\"ping-pong\"]\nsize_bytes = [64]\n\
    placement = \"unpinned\"\ntrials = 1\nmessages = 200\nwarmup_ms = 1\n";

fn text(output: &Output) -> String {
    let [out, err] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    format!("{:?}\n{out}{err}", output.status)
}

/// Whether a command works; prints what is missing if it does not.
fn works(command: &[&str], remedy: &str) -> bool {
    let works = Command::new(command[0]).args(&command[1..]).output();
    let works = works.is_ok_and(|output| output.status.success());
    if !works {
        eprintln!("SKIP: {} does not work here; {remedy}", command.join(" "));
    }
    works
}

/// Whether another user can run the program, which starts itself again.
fn can_be_another_user() -> bool {
    let program = assert_cmd::cargo::cargo_bin!("crossway").display().to_string();
    let as_other = ["setpriv", "--reuid", "65533", "--clear-groups"];
    let remedy = "run as root with util-linux, in a clone that every user may enter";
    works(&[&as_other[..], &["sh", "-c", "exec \"$0\" --version", &program]].concat(), remedy)
}

/// A folder to which everybody may write, as `/tmp` is.
fn shared(place: &Place) -> PathBuf {
    fs::set_permissions(place.dir.path(), Permissions::from_mode(0o755)).unwrap();
    let dir = place.dir.path().join("shared");
    fs::create_dir(&dir).unwrap();
    fs::set_permissions(&dir, Permissions::from_mode(0o1777)).unwrap();
    dir
}

/// A command that runs the program through others, such as `setpriv`, without a home and with little else.
fn bare(through: &[&str], args: &[&str], dir: &Path) -> Command {
    let program = assert_cmd::cargo::cargo_bin!("crossway");
    let mut words: Vec<&std::ffi::OsStr> = through.iter().map(|word| word.as_ref()).collect();
    words.push(program.as_ref());
    words.extend(args.iter().map(|arg| std::ffi::OsStr::new(*arg)));
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).current_dir(dir).env_clear();
    command.env("PATH", "/usr/local/bin:/usr/bin:/bin").env("TMPDIR", dir);
    command
}

fn tree_of(dir: &Path) -> Vec<PathBuf> {
    let mut all = vec![dir.to_owned()];
    for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
        match entry.file_type().unwrap().is_dir() {
            true => all.extend(tree_of(&entry.path())),
            false => all.push(entry.path()),
        }
    }
    all
}

#[test]
fn what_another_user_has_built_is_never_run() {
    if !can_be_another_user() || !works(&["cc", "--version"], "sudo apt-get install gcc") {
        return;
    }
    let place = Place::new("");
    let dir = shared(&place);
    let built = bare(&[], &["contender", "build", "pipe-c"], &dir).output().unwrap();
    assert!(built.status.success(), "{}", text(&built));
    let cache = dir.join("crossway-cache-0");
    let programs: Vec<PathBuf> =
        tree_of(&cache).into_iter().filter(|path| path.ends_with("pipe")).collect();
    assert_eq!(programs.len(), 1);
    let ready = |expected: bool| {
        let list = bare(&[], &["contender", "list", "pipe-c", "--json"], &dir).output().unwrap();
        assert!(list.status.success(), "{}", text(&list));
        let is_ready = text(&list).contains("\"state\": \"ready\"");
        assert_eq!(is_ready, expected, "{}", text(&list));
        text(&list)
    };
    ready(true);

    // The other user replaces the program, in each of the ways that the permissions could allow.
    let marker = dir.join("was-run");
    fs::write(&programs[0], format!("#!/bin/sh\ntouch {}\n", marker.display())).unwrap();
    let set = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    let out = programs[0].parent().unwrap();
    let check = |what: &str| {
        let said = ready(false);
        for args in [&["list", "--ready"][..], &["doctor"], &["measure", "contenders", "--list"]] {
            let ran = bare(&[], args, &dir).output().unwrap();
            assert_ne!(ran.status.code(), None, "{}", text(&ran));
        }
        assert!(!marker.exists(), "{what}");
        said
    };
    for (of_cache, of_out) in [(0o777, 0o700), (0o755, 0o777)] {
        set(&cache, of_cache);
        set(&cache.join("contenders"), 0o755);
        set(out, of_out);
        assert!(check("a folder open to all").contains("other users may write to"));
    }
    tree_of(&cache).iter().for_each(|path| lchown(path, Some(OTHER), Some(OTHER)).unwrap());
    let said = check("a folder of the other user");
    assert!(said.contains("belongs to another user") && said.contains("XDG_CACHE_HOME"), "{said}");
}

#[test]
fn declarations_that_others_may_write_are_left_out_or_refused() {
    let place = Place::new("");
    fs::set_permissions(place.dir.path(), Permissions::from_mode(0o755)).unwrap();
    let folder = place.dir.path().join("config/crossway/contenders");
    fs::create_dir_all(&folder).unwrap();
    let marker = place.dir.path().join("was-run");
    let declared = format!(
        "[contender.strange]\nabout = \"x\"\nrun = [\"touch\", \"{}\"]\nremedy = \"none\"\n",
        marker.display()
    );
    fs::write(folder.join("strange.toml"), declared).unwrap();
    let run = |args: &[&str]| {
        let mut command = place.command(args);
        command.env("XDG_CONFIG_HOME", place.dir.path().join("config"));
        command.env("XDG_CACHE_HOME", place.dir.path().join("cache")).output().unwrap()
    };
    fs::set_permissions(&folder, Permissions::from_mode(0o777)).unwrap();
    let list = run(&["list"]);
    assert!(list.status.success() && !text(&list).contains("strange "), "{}", text(&list));
    assert!(text(&list).contains("are left out: other users may write to"), "{}", text(&list));
    let file = folder.join("strange.toml");
    let named = run(&["list", "--contender", file.to_str().unwrap()]);
    assert_eq!(named.status.code(), Some(2), "{}", text(&named));
    assert!(text(&named).contains("is not used: other users may write to"), "{}", text(&named));
    assert!(!marker.exists());
    fs::set_permissions(&folder, Permissions::from_mode(0o755)).unwrap();
    assert!(text(&run(&["list"])).contains("strange"));
}

#[test]
fn users_without_a_home_do_not_disturb_each_other() {
    if !can_be_another_user() {
        return;
    }
    let place = Place::new(PLAN);
    let dir = shared(&place);
    let other = ["setpriv", "--reuid", "65533", "--regid", "65533", "--clear-groups"];
    for through in [&[][..], &other] {
        let list = bare(through, &["list"], &dir).output().unwrap();
        assert!(list.status.success(), "{}", text(&list));
        assert!(!text(&list).contains("Permission denied"), "{}", text(&list));
    }
}

/// The paths below folders to which everybody may write, in the output of strace, and whether each call succeeded.
fn shared_paths(trace: &str, folders: &[&str]) -> Vec<(String, bool, bool)> {
    let of_line = |line: &str| {
        let mut quoted: Vec<String> =
            line.split('"').skip(1).step_by(2).map(str::to_owned).collect();
        if line.contains("readlink") {
            // The second is what the link names, which is only told.
            quoted.truncate(1);
        }
        let calls = ["mkdir", "mknod", "bind(", "symlink", "linkat(", " link(", "rename"];
        let makes = line.contains("O_EXCL")
            || calls.iter().any(|call| line.contains(call)) && !line.contains("readlink");
        // The other half of a line that was interrupted says whether the call worked, but not for which path.
        let worked = !line.contains(" = -1 ") && (makes || !line.contains("<unfinished"));
        let inside = quoted.into_iter().filter(|path| {
            folders
                .iter()
                .any(|folder| path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/')))
        });
        inside.map(|path| (path, makes, worked)).collect::<Vec<_>>()
    };
    trace.lines().flat_map(of_line).collect()
}

#[test]
fn every_path_in_a_shared_folder_is_private_or_created_exclusively() {
    if !works(&["strace", "-V"], "sudo apt-get install strace")
        || !works(&["strace", "-f", "true"], "allow ptrace")
    {
        return;
    }
    let place = Place::new(PLAN);
    let dir = shared(&place);
    fs::copy(place.dir.path().join("plan.toml"), place.dir.path().join("p.toml")).unwrap();
    let uid = crossway_sys::proc::effective_user();
    let shared = dir.to_str().unwrap();
    let folders = [shared, "/tmp", "/var/tmp", "/dev/shm", "/run/lock"];
    let private = [
        format!("/tmp/crossway-{uid}"),
        format!("/tmp/crossway-channel-{uid}"),
        format!("{shared}/crossway-cache-{uid}"),
    ];
    let own = place.dir.path().to_str().unwrap();
    // Where they are is the choice of the user who made them, who may have made them in /tmp.
    let checkout = fs::canonicalize(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).unwrap();
    let program = assert_cmd::cargo::cargo_bin!("crossway");
    let work = place.dir.path().join("work");
    fs::create_dir(&work).unwrap();
    let plan = place.dir.path().join("p.toml");
    let mut wrong = BTreeSet::new();
    for args in [
        &["list"][..],
        &["doctor"],
        &["contender", "list", "python-pipe"],
        &["contender", "build", "pipe-c"],
        &["measure", plan.to_str().unwrap()],
        &["advise", "chatty", "--time", "2s"],
        &["channel", "top", "--once"],
        &["run", "--", "true"],
        &["tipc", "run", "--", "true"],
        &["faults", "pipe"],
        &["profile", "pipe", "--measure-ms", "50"],
        &["report", "latest", "--bundle"],
        &["rerun", "latest:1"],
        &["limits", "--sizes", "64"],
        &["observe", "--", "sleep", "2"],
        &["observe", "--record", "talk", "--", "sleep", "1"],
        &["observe", "--recording", "talk", "--page", "talk.html"],
        &["net", "list"],
        &["guest", "list"],
        &["linx", "list"],
        &["tipc", "node", "list"],
    ] {
        let log = place.dir.path().join("trace");
        let strace = ["strace", "-f", "-qq", "-s", "400", "-e", "trace=%file,bind,connect", "-o"];
        let through: Vec<&str> = strace.into_iter().chain([log.to_str().unwrap()]).collect();
        let mut command = bare(&through, args, &work);
        command.env("TMPDIR", &dir);
        let ran = command.output().unwrap();
        assert_ne!(ran.status.code(), None, "{}", text(&ran));
        let trace = fs::read_to_string(&log).unwrap();
        let mut made = BTreeSet::new();
        for (path, makes, worked) in shared_paths(&trace, &folders) {
            let in_work = path.starts_with(own) && !path.starts_with(shared);
            let is_private = private.iter().any(|folder| path.starts_with(folder.as_str()));
            if makes && worked {
                made.insert(path.clone());
            }
            let is_own = made.iter().any(|own| {
                path.strip_prefix(own.as_str())
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            });
            let is_chosen = Path::new(&path).starts_with(&checkout) || Path::new(&path) == program;
            if path != shared && !in_work && !is_private && !is_own && !is_chosen && worked {
                wrong.insert(format!("{}: {path}", args[0]));
            }
        }
    }
    assert_eq!(wrong, BTreeSet::new(), "paths that another user could have put there");
}

#[test]
fn a_home_that_cannot_be_used_costs_the_contenders_only() {
    if !can_be_another_user() {
        return;
    }
    let place = Place::new(PLAN);
    let dir = shared(&place);
    fs::copy(place.dir.path().join("plan.toml"), dir.join("plan.toml")).unwrap();
    let user = ["setpriv", "--reuid", "123456", "--regid", "0", "--clear-groups"];
    for args in
        [&["measure", "plan.toml"][..], &["measure", "plan.toml", "--list"], &["list"], &["doctor"]]
    {
        let ran = bare(&user, args, &dir).env("HOME", "/").output().unwrap();
        assert!(matches!(ran.status.code(), Some(0 | 1)), "{args:?} {}", text(&ran));
        assert!(args[0] == "doctor" || ran.status.success(), "{}", text(&ran));
    }
    let list =
        bare(&user, &["contender", "list", "python-pipe"], &dir).env("HOME", "/").output().unwrap();
    let said = text(&list).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("XDG_CACHE_HOME"), "{said}");
}

#[test]
fn without_proc_or_on_read_only_file_systems_an_error_names_the_next_step() {
    let place = Place::new(PLAN);
    let apart = |script: &str| {
        let script = format!("{script} && exec \"$0\" \"$@\"");
        let through = ["unshare", "--mount", "--propagation", "private", "sh", "-c", &script];
        let ran = bare(&through, &["measure", "plan.toml"], place.dir.path()).output().unwrap();
        (ran.status.code(), text(&ran))
    };
    if !works(&["unshare", "--mount", "true"], "run as root with util-linux") {
        return;
    }
    let (code, said) = apart("umount -l /proc");
    assert!(code == Some(2) && said.contains("Is /proc mounted?"), "{said}");
    let (code, said) = apart("mount -t tmpfs none /dev && mkdir -m 1777 /dev/shm");
    assert!(code == Some(2) && said.contains("open /dev/null, for the output of"), "{said}");
    assert!(!said.contains("start reaper"), "{said}");
    let (code, said) = apart("mount --bind -o ro /tmp /tmp && mount -o remount,bind,ro /tmp");
    assert!(code == Some(2) && said.contains("XDG_RUNTIME_DIR"), "{said}");
}

/// As root in the folder of another user, who could name any file of root's.
#[test]
fn links_in_the_folder_of_a_run_are_not_followed() {
    let place = Place::new(PLAN);
    assert!(place.measure(&[]).status.success());
    let (run, victim) = (place.run(), place.dir.path().join("victim"));
    let link = |name: &str| {
        fs::write(&victim, "precious, without an end of line").unwrap();
        let _ = fs::remove_file(run.join(name));
        std::os::unix::fs::symlink(&victim, run.join(name)).unwrap();
    };
    let is_whole = || fs::read_to_string(&victim).unwrap() == "precious, without an end of line";
    for (name, args) in
        [("report.html", &["report", "latest"][..]), ("bundle.tar.gz", &["report", "--bundle"])]
    {
        link(name);
        let ran = place.command(args).output().unwrap();
        assert!(ran.status.success() && is_whole(), "{name}: {}", text(&ran));
        assert!(!run.join(name).is_symlink());
    }
    link("env.json");
    fs::copy(run.join("results.jsonl"), place.dir.path().join("records")).unwrap();
    link("results.jsonl");
    let resumed = place.command(&["measure", "--resume", run.to_str().unwrap()]).output().unwrap();
    assert_eq!(resumed.status.code(), Some(2), "{}", text(&resumed));
    assert!(is_whole(), "{}", text(&resumed));
    // A link that the user names is followed.
    fs::rename(place.dir.path().join("records"), run.join("results.jsonl")).unwrap();
    fs::remove_file(run.join("env.json")).unwrap();
    link("page.html");
    let page = run.join("page.html");
    let ran = place.command(&["report", "latest", "-o", page.to_str().unwrap()]).output().unwrap();
    assert!(ran.status.success() && page.is_symlink() && !is_whole(), "{}", text(&ran));
}

#[test]
fn a_folder_may_have_any_name() {
    let place = Place::new(PLAN);
    let dir = place.dir.path().join("it's \"a\" \\ folder\u{e4}");
    fs::create_dir(&dir).unwrap();
    fs::copy(place.dir.path().join("plan.toml"), dir.join("a plan.toml")).unwrap();
    for args in [&["measure", "a plan.toml"][..], &["report", "latest"], &["rank", "latest"]] {
        let ran = place.command(args).current_dir(&dir).output().unwrap();
        assert!(matches!(ran.status.code(), Some(0 | 1)), "{args:?} {}", text(&ran));
    }
}

/// As in two containers, or a guest, that share a folder for temporary files.
#[test]
fn a_run_in_another_pid_namespace_takes_nothing_from_this_one() {
    let apart = ["unshare", "--pid", "--fork", "--mount-proc"];
    if !works(&[&apart[..], &["true"]].concat(), "run as root with util-linux") {
        return;
    }
    let place =
        Place::new(&PLAN.replace("messages = 200", "measure_ms = 300").replace("= 1\n", "= 9\n"));
    let here = place.start();
    place.await_records(1);
    let own = place.command(&["measure", "plan.toml", "--out", "other", "--trials", "1"]);
    let mut there = Command::new(apart[0]);
    there.args(&apart[1..]).arg(own.get_program()).args(own.get_args());
    there.current_dir(place.dir.path());
    there.envs(own.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let ran = there.output().unwrap();
    assert!(ran.status.success(), "{}", text(&ran));
    let runs = fs::read_dir(place.dir.path().join("rt/crossway")).unwrap().count();
    assert_eq!(runs, 1, "the folder of the run that goes on");
    assert!(here.wait_with_output().unwrap().status.success());
    assert!(place.records().iter().all(|record| record.status != Status::Failed));
    assert_eq!(place.leftovers(), Vec::<String>::new());
}

#[test]
fn as_the_first_process_of_a_namespace_or_on_one_cpu() {
    let place = Place::new(PLAN);
    let unshare = ["unshare", "--pid", "--fork", "--mount-proc"];
    if works(&["unshare", "--pid", "--fork", "--mount-proc", "true"], "run as root") {
        let ran = bare(&unshare, &["measure", "plan.toml"], place.dir.path()).output().unwrap();
        assert!(ran.status.success(), "{}", text(&ran));
    }
    if works(&["taskset", "-c", "0", "true"], "allow CPU 0") {
        let ran = bare(&["taskset", "-c", "0"], &["measure", "plan.toml"], place.dir.path())
            .output()
            .unwrap();
        assert!(ran.status.success(), "{}", text(&ran));
    }
}
