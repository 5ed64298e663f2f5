//! Tests that leased objects disappear with their holder.

use super::*;

fn shm_exists(name: &str) -> bool {
    Path::new("/dev/shm").join(name.trim_start_matches('/')).exists()
}

fn make_shm(name: &str) {
    fs::write(Path::new("/dev/shm").join(name.trim_start_matches('/')), b"x").unwrap();
}

#[test]
fn dropping_a_lease_removes_the_object_and_cancelling_does_not() {
    let name = format!("/{}", fresh_name("test"));
    let lease = hold(Resource::PosixShm { name: name.clone() }).unwrap();
    let file = lease.file.clone();
    make_shm(&name);
    drop(lease);
    assert!(!shm_exists(&name));
    assert!(!file.exists());

    let lease = hold(Resource::PosixShm { name: name.clone() }).unwrap();
    make_shm(&name);
    lease.cancel();
    assert!(shm_exists(&name));
    let _ = rustix::shm::unlink(name.as_str());
}

#[test]
fn reaping_a_directory_removes_every_kind_and_kills_processes() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    fs::create_dir(&run).unwrap();
    let key = fresh_key();
    // SAFETY: creates System V objects; no memory is touched.
    unsafe {
        assert!(libc::shmget(key, 4096, libc::IPC_CREAT | libc::IPC_EXCL | 0o600) >= 0);
        assert!(libc::semget(key, 1, libc::IPC_CREAT | libc::IPC_EXCL | 0o600) >= 0);
        assert!(libc::msgget(key, libc::IPC_CREAT | libc::IPC_EXCL | 0o600) >= 0);
    }
    let path = dir.path().join("object");
    fs::write(&path, b"").unwrap();
    let mut child = Command::new("sleep").arg("600").spawn().unwrap();
    let started_ticks = crate::proc::started_ticks(child.id()).unwrap();
    let resources = [
        Resource::SysvShm { key },
        Resource::SysvSem { key },
        Resource::SysvMsg { key },
        Resource::Path { path: path.clone() },
        Resource::Process { pid: child.id(), started_ticks },
    ];
    for (n, resource) in resources.iter().enumerate() {
        fs::write(run.join(format!("1-{n}.lease")), serde_json::to_vec(resource).unwrap()).unwrap();
    }
    fs::write(run.join("1-99.lease"), b"{\"kind\":\"pa").unwrap();

    directory::reap(&run);

    assert!(!run.exists());
    assert!(!path.exists());
    // SAFETY: looks ids up.
    unsafe {
        assert_eq!(libc::shmget(key, 0, 0), -1);
        assert_eq!(libc::semget(key, 0, 0), -1);
        assert_eq!(libc::msgget(key, 0), -1);
    }
    use std::os::unix::process::ExitStatusExt;
    assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
}

#[test]
fn a_reused_pid_is_not_killed() {
    let mut child = Command::new("sleep").arg("600").spawn().unwrap();
    let started_ticks = crate::proc::started_ticks(child.id()).unwrap() + 1;
    Resource::Process { pid: child.id(), started_ticks }.remove();
    assert!(child.try_wait().unwrap().is_none());
    child.kill().unwrap();
    child.wait().unwrap();
}
