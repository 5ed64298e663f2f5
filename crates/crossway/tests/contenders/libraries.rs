//! The contenders that come with Crossway pass the conformance suite with the real libraries.

use crate::{Workshop, stderr, stdout};

/// Builds contenders and runs the suite on those that work here; the others are skipped with a message.
fn conform(ids: &[&str]) {
    let shop = Workshop::new("");
    for id in ids {
        let built = shop.run(&["contender", "build", id]);
        if !built.status.success() {
            eprintln!("SKIP: {}", stderr(&built));
            continue;
        }
        let list = stdout(&shop.run(&["contender", "list", id, "--json"]));
        let rows: Vec<serde_json::Value> = serde_json::from_str(&list).unwrap();
        assert_eq!(rows[0]["id"], *id);
        if let Some(missing) = rows[0]["probe"].get("why") {
            eprintln!("SKIP: {id}: {missing}");
            continue;
        }
        let tested = shop.run(&["contender", "test", id]);
        let said = stdout(&tested);
        assert!(tested.status.success(), "{said}{}", stderr(&tested));
        assert!(said.lines().filter(|line| line.contains("pass")).count() > 15, "{said}");
    }
    assert_eq!(shop.place.leftovers(), Vec::<String>::new());
}

#[test]
fn zeromq() {
    conform(&["zeromq-ipc", "zeromq-tcp"]);
}

#[test]
fn nng() {
    conform(&["nng-ipc", "nng-tcp"]);
}

#[test]
fn dbus() {
    conform(&["dbus-daemon", "dbus-peer"]);
}

#[test]
fn python() {
    conform(&["python-pipe", "python-asyncio", "python-grpc"]);
}

#[test]
fn mpi() {
    if std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() < 2) {
        return eprintln!(
            "SKIP: the ends of Open MPI spin and need two CPUs; widen the affinity (taskset)"
        );
    }
    conform(&["mpi"]);
}

#[test]
#[ignore = "it compiles a hundred crates: make test-long"]
fn iceoryx2() {
    conform(&["iceoryx2"]);
}

#[test]
fn go_and_c() {
    conform(&["go-unix", "pipe-c"]);
}
