//! Limits of CPU time, of a cgroup and of files: the trial that meets one does not count, and the cause is named.

use super::*;

/// A plan of one trial whose ends spin, so that they use all the CPU time that they get.
fn spinning(measure_ms: u32) -> String {
    PLAN.replace("fifo", "shm-spin")
        .replace("messages = 200", &format!("measure_ms = {measure_ms}"))
}

/// A cgroup that is removed when this is dropped.
struct Cgroup(PathBuf);

impl Cgroup {
    /// Creates a group with a quota of CPU time, of version 1 or 2; prints why it cannot.
    fn with_quota(quota_us: u32, period_us: u32) -> Option<Cgroup> {
        let name = format!("crossway-test-{}", std::process::id());
        for (dir, files) in [
            ("/sys/fs/cgroup", vec![("cpu.max", format!("{quota_us} {period_us}"))]),
            (
                "/sys/fs/cgroup/cpu",
                vec![
                    ("cpu.cfs_period_us", period_us.to_string()),
                    ("cpu.cfs_quota_us", quota_us.to_string()),
                ],
            ),
        ] {
            let group = Path::new(dir).join(&name);
            if fs::create_dir(&group).is_err() {
                continue;
            }
            let group = Cgroup(group);
            if files.iter().all(|(file, value)| {
                group.0.join(file).exists() && fs::write(group.0.join(file), value).is_ok()
            }) {
                return Some(group);
            }
        }
        eprintln!(
            "SKIP: no cgroup with a CPU quota can be made here; run as root with the cpu controller"
        );
        None
    }

    fn throttled(&self) -> u64 {
        let text = fs::read_to_string(self.0.join("cpu.stat")).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("nr_throttled ")).unwrap();
        line.trim().parse().unwrap()
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // The processes have ended, but may not have left the group yet.
        for _ in 0..100 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

#[test]
fn a_trial_that_a_cpu_quota_stopped_does_not_count() {
    let Some(group) = Cgroup::with_quota(20_000, 100_000) else { return };
    let place = Place::new(&spinning(1_000));
    let own = place.command(&["measure", "plan.toml"]);
    let mut shell = Command::new("sh");
    shell.current_dir(place.dir.path());
    shell.envs(own.get_envs().filter_map(|(name, value)| Some((name, value?))));
    shell.arg("-c").arg("echo $$ > \"$0/cgroup.procs\" && exec \"$@\"").arg(&group.0);
    let ran = shell.arg(own.get_program()).args(own.get_args()).output().unwrap();
    assert!(matches!(ran.status.code(), Some(0 | 1)), "{}", text(&ran));
    assert!(
        text(&ran).contains("cgroup-quota: the cgroup is limited to 0.20 CPUs"),
        "{}",
        text(&ran)
    );
    if group.throttled() < 10 {
        eprintln!("SKIP: other programs left the quota unused; run this on an idle machine");
        return;
    }
    for record in place.records() {
        assert!(matches!(record.status, Status::Degraded | Status::Failed), "{}", text(&ran));
        let told = record.reason.into_iter().chain(record.warnings).collect::<Vec<_>>().join("; ");
        assert!(told.contains("CPU quota") || told.contains("was stopped"), "{told}");
    }
}

#[test]
fn an_end_that_used_up_its_cpu_time_names_the_limit() {
    let place = Place::new(&spinning(5_000));
    let own = place.command(&["measure", "plan.toml"]);
    let mut shell = Command::new("sh");
    shell.current_dir(place.dir.path());
    shell.envs(own.get_envs().filter_map(|(name, value)| Some((name, value?))));
    shell.arg("-c").arg("ulimit -t 2; exec \"$@\"").arg("sh");
    let ran = shell.arg(own.get_program()).args(own.get_args()).output().unwrap();
    let records = place.records();
    let failed = records.iter().find(|record| record.status == Status::Failed);
    let Some(failed) = failed else {
        eprintln!(
            "SKIP: the ends got less than two seconds of CPU time; run this on an idle machine"
        );
        return;
    };
    let why = failed.reason.as_deref().unwrap_or_default();
    assert!(
        why.contains("RLIMIT_CPU, the limit of CPU time, is 2 s; raise it: ulimit -t"),
        "{why}\n{}",
        text(&ran)
    );
}

#[test]
fn devices_without_end_are_no_files() {
    let place = Place::new(PLAN);
    for args in [
        &["report", "/dev/zero"][..],
        &["rank", "/dev/zero"],
        &["compare", "/dev/zero", "/dev/zero"],
        &["export", "/dev/zero"],
        &["rerun", "/dev/zero:1"],
        &["measure", "/dev/zero"],
        &["advise", "/dev/zero"],
    ] {
        let ran = place.command(args).output().unwrap();
        let said = text(&ran);
        assert_eq!(ran.status.code(), Some(2), "{args:?}: {said}");
        assert!(
            said.contains("/dev/zero") && said.contains("longer than 16 MiB"),
            "{args:?}: {said}"
        );
    }
}
