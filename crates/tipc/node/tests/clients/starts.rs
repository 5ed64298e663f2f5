//! Tests a tipcd that cannot start: it prints one clear error, and changes nothing.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crossway_sys::proc;
use crossway_sys::socket::{self, SocketType};
use crossway_tipc_client::{NodeSocket, SocketKind};

use crate::site::{TIPCD, for_all_users, until};

const NOBODY: u32 = 65_534;

/// Starts a tipcd as the user `uid` with a limit of `descriptors` open descriptors, which must fail. Returns its error
/// output.
fn refusal(uid: u32, descriptors: u32, path: &Path) -> String {
    refusal_under(uid, &format!("ulimit -n {descriptors}"), path)
}

/// Like `refusal`, under limits that are set with shell commands.
fn refusal_under(uid: u32, limits: &str, path: &Path) -> String {
    let limited = format!("{limits} && exec \"$0\" \"$@\"");
    let program = for_all_users(TIPCD, path.parent().unwrap());
    let output = Command::new("sh")
        .args(["-c", &limited])
        .arg(program)
        .args(["--until-stdin-ends", "--socket"])
        .arg(path)
        .uid(uid)
        .stdin(Stdio::piped())
        .output()
        .unwrap();
    assert!(!output.status.success());
    assert_eq!(String::from_utf8_lossy(&output.stdout), "");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(said.lines().count(), 1, "{said}");
    said
}

/// Leaves a stale socket file with these permissions at a path.
fn left_over(path: &Path, mode: u32) {
    let fd = socket::unix(SocketType::Seqpacket).unwrap();
    socket::bind(&fd, &socket::path_address(path).unwrap(), "left over").unwrap();
    std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

#[test]
fn too_few_descriptors_are_named_with_how_many_it_needs() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tipcd.sock");
    let user = proc::effective_user();
    for descriptors in [20, 39] {
        let said = refusal(user, descriptors, &path);
        assert!(said.contains(&format!("only {descriptors} open files")), "{said}");
        assert!(said.contains("needs 40") && said.contains("ulimit -n"), "{said}");
    }
    assert!(!path.exists());
}

/// Tests a limit on the size of files (RLIMIT_FSIZE). The system used to kill a tipcd that exceeded it (SIGXFSZ), at
/// its start or when the first program connected.
#[test]
fn a_limit_of_file_sizes_is_named_before_a_program_meets_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tipcd.sock");
    let user = proc::effective_user();
    for (blocks, bytes) in [(0, 0), (32, 32 * 512)] {
        let said = refusal_under(user, &format!("ulimit -f {blocks}"), &path);
        assert!(said.contains(&format!("limited to {bytes} bytes (RLIMIT_FSIZE)")), "{said}");
        assert!(said.contains("ulimit -f"), "{said}");
    }
}

#[test]
fn a_limit_of_memory_for_data_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tipcd.sock");
    let said = refusal_under(proc::effective_user(), "ulimit -d 3000", &path);
    assert!(said.starts_with("tipcd: ") && said.contains("(RLIMIT_DATA), 3000 KiB"), "{said}");
    assert!(said.contains("ulimit -d unlimited"), "{said}");
}

/// Tests that log lines that cannot be written are lost, without any other effect.
#[test]
fn a_log_that_may_not_grow_ends_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tipcd.sock");
    let log = std::fs::File::create(dir.path().join("log")).unwrap();
    // The log has its maximum size.
    log.set_len(16 << 20).unwrap();
    let mut tipcd = Command::new("sh")
        .args(["-c", "ulimit -f 32768 && exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_tipcd")])
        .args(["--until-stdin-ends", "--socket"])
        .arg(&path)
        .stdin(Stdio::piped())
        .stdout(std::fs::OpenOptions::new().append(true).open(dir.path().join("log")).unwrap())
        .spawn()
        .unwrap();
    until("a socket", || NodeSocket::open(&path, SocketKind::Rdm).is_ok());
    drop(tipcd.stdin.take());
    assert!(tipcd.wait().unwrap().success());
    assert_eq!(log.metadata().unwrap().len(), 16 << 20);
}

#[test]
fn a_socket_of_another_user_is_neither_taken_nor_called_a_tipcd() {
    if !proc::is_root() {
        eprintln!(
            "SKIP a_socket_of_another_user_is_neither_taken_nor_called_a_tipcd: needs two users; run as root"
        );
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tipcd.sock");
    // Like /tmp: all users may create files, and remove their own.
    std::fs::set_permissions(dir.path(), Permissions::from_mode(0o1777)).unwrap();
    left_over(&path, 0o600);
    let said = refusal(NOBODY, 256, &path);
    assert!(said.contains("a socket of user 0") && said.contains("cannot check whether"), "{said}");
    assert!(said.contains(&path.display().to_string()) && said.contains("--socket"), "{said}");
    std::fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
    let said = refusal(NOBODY, 256, &path);
    assert!(
        said.contains("an unused socket of user 0") && said.contains("cannot be removed"),
        "{said}"
    );
    assert!(said.contains("have user 0 or root remove it"), "{said}");
    assert!(path.exists());
}
