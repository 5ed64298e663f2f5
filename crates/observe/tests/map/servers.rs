//! The map of servers from packages.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use crossway_observe::map::Carrier;

use super::{Running, among, eventually, look, process};

/// Starts a packaged server; `None` with a message without it.
fn server(program: &str, package: &str, args: &[&str]) -> Option<Running> {
    let path = ["/usr/bin", "/usr/sbin"].map(|dir| format!("{dir}/{program}"));
    let found = path.iter().find(|path| std::path::Path::new(path).exists());
    let Some(found) = found else {
        eprintln!("SKIP observe {program}: not installed; sudo apt-get install {package}");
        return None;
    };
    let quiet = Command::new(found).args(args).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    Some(Running(quiet.unwrap()))
}

#[test]
fn a_client_of_redis_is_found_by_its_socket_s_path() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("redis.sock");
    let dir = dir.path().to_str().unwrap();
    let args = ["--port", "0", "--unixsocket", path.to_str().unwrap(), "--save", "", "--dir", dir];
    let Some(redis) = server("redis-server", "redis-server", &args) else { return };
    let mut client = eventually("redis listens", || UnixStream::connect(&path).ok());
    client.write_all(b"PING\r\n").unwrap();
    let mut answer = [0; 7];
    client.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"+PONG\r\n");
    let map = look(&[redis.pid()]);
    let found = among(&map, Carrier::UnixStream, redis.pid(), std::process::id());
    assert_eq!(found.len(), 1, "{map:?}");
    assert_eq!(found[0].name, path.to_str().unwrap());
    // The server is at the second end.
    assert_eq!(found[0].to, [process(redis.pid())]);
    let waits = map.listeners.iter().find(|l| l.address == path.to_str().unwrap()).unwrap();
    assert_eq!(waits.pids, [redis.pid()]);
}

#[test]
fn the_workers_of_nginx_are_found_as_its_descendants() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().to_str().unwrap();
    let config = format!(
        "daemon off; worker_processes 2; pid {at}/pid; error_log {at}/error;
         events {{}} http {{ access_log off; client_body_temp_path {at}/b; proxy_temp_path {at}/p;
         fastcgi_temp_path {at}/f; uwsgi_temp_path {at}/u; scgi_temp_path {at}/s;
         server {{ listen unix:{at}/web.sock; return 200; }} }}"
    );
    std::fs::write(dir.path().join("nginx.conf"), config).unwrap();
    let file = format!("{at}/nginx.conf");
    let args = ["-e", &format!("{at}/error"), "-c", &file];
    let Some(nginx) = server("nginx", "nginx-light", &args) else { return };
    let map = eventually("two workers", || {
        let map = look(&[nginx.pid()]);
        let workers = map.observed.len() == 3;
        workers.then_some(map)
    });
    let waits = map.listeners.iter().find(|l| l.address.ends_with("/web.sock")).unwrap();
    assert_eq!(waits.pids.len(), 3, "{:?}", map.listeners);
    // The master talks to each worker through a socket pair.
    let pairs = map.channels.iter().filter(|c| c.carrier == Carrier::UnixStream).count();
    assert!(pairs >= 2, "{map:?}");
    // Its workers outlive a master that is killed.
    let _ = Command::new("kill").arg(nginx.pid().to_string()).status();
    eventually("nginx ends", || {
        (!std::path::Path::new(&format!("{at}/pid")).exists()).then_some(())
    });
}
