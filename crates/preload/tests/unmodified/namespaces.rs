//! Programs whose folders are full, absent or cannot be written to.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use super::{LIBRARY, Site, is_root, text};

/// Lets a command run in a mount namespace that the shell has prepared by these lines, with `folder` as $0.
/// `None` where no namespace can be had.
fn in_namespace(prepare: &str, folder: &Path, command: &Command) -> Option<Output> {
    if !Command::new("unshare").args(["-m", "true"]).status().is_ok_and(|status| status.success()) {
        eprintln!(
            "SKIP full and absent folders: no mount namespace; needs unshare and CAP_SYS_ADMIN"
        );
        return None;
    }
    let mut namespace = Command::new("unshare");
    let script = format!("{prepare}\nexec \"$@\"");
    namespace.args(["-m", "sh", "-ec", &script]).arg(folder).arg(command.get_program());
    namespace.args(command.get_args());
    namespace.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    // Only for the program: what prepares must not load the library.
    Some(namespace.env_remove("LD_PRELOAD").output().unwrap())
}

#[test]
fn where_the_table_has_no_room_connections_stay_with_tcp() {
    let Some(site) = Site::new() else { return };
    if !is_root("a full runtime folder") {
        return;
    }
    let many = site.python("reliability.py", &["many", "10"], true);
    // The programs' memory would be behind a table whose pages cannot be stored.
    let fill = format!(
        "mount -t tmpfs -o size=16k,mode=700 none $0; head -c 16384 /dev/zero >$0/fill
        export XDG_RUNTIME_DIR=$0 LD_PRELOAD={}",
        LIBRARY.display()
    );
    let full = site.at("full");
    fs::create_dir(&full).unwrap();
    let Some(output) = in_namespace(&fill, &full, &many) else { return };
    assert_eq!(text(output), "10 of 10 10 0\n");
    assert!(site.explained(true).is_empty());
}

#[test]
fn no_folder_for_shared_memory_is_needed() {
    for (prepare, moved) in [
        ("mount -t tmpfs none /dev; mknod -m 666 /dev/null c 1 3; test ! -e /dev/shm", 20),
        ("mount -t tmpfs -o ro none /dev/shm; test ! -w /dev/shm", 20),
        // Nor one for the table: without it, connections stay with TCP.
        ("mount --bind $0 $0; mount -o remount,bind,ro $0; mount --bind $0 /tmp", 0),
    ] {
        let Some(site) = Site::new() else { return };
        if !is_root("absent and read-only folders") {
            return;
        }
        let mut many = site.python("reliability.py", &["many", "10"], true);
        let folder = site.at("folder");
        fs::create_dir(&folder).unwrap();
        many.env("XDG_RUNTIME_DIR", &folder).env("CROSSWAY_RUN_EXPLAIN", "-");
        let prepare = format!("{prepare}\nexport LD_PRELOAD={}", LIBRARY.display());
        let Some(output) = in_namespace(&prepare, &folder, &many) else { return };
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(String::from_utf8_lossy(&output.stdout), "10 of 10 10 0\n", "{prepare}: {said}");
        assert_eq!(said.matches("a UNIX stream pair").count(), moved, "{prepare}: {said}");
    }
}
