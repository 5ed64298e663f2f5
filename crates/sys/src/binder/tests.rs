//! Ports on a real device, as root in a guest with Debian's kernel.

use super::*;

#[test]
fn ports_exchange_messages_and_notice_the_end() {
    const CHANNEL: u32 = 0x1230;
    let device = match file_system() {
        Some(folder) => add_device(&folder, &crate::lease::fresh_name("test")).ok(),
        None => fixed_devices().pop(),
    };
    let Some(device) = device else {
        return eprintln!("SKIP Binder: there is no device (crossway list says how to get one)");
    };
    start_manager(&device, CHANNEL).unwrap();
    assert_eq!(start_manager(&device, CHANNEL).unwrap_err().errno(), libc::EBUSY);
    let mut ports = Role::ALL.map(|role| {
        let mut port = Port::open(&device, 1 << 20).unwrap();
        port.introduce(role.code(CHANNEL)).unwrap();
        (port, 0)
    });
    if file_system().is_some() {
        std::fs::remove_file(&device).unwrap();
    }
    // The manager makes them known to each other, and ends.
    for (port, peer) in &mut ports {
        assert_eq!(port.receive(false), Ok(Event::Message(CHANNEL)));
        *peer = port.introduced().unwrap().expect("a handle");
    }
    let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while ports[0].0.send(MANAGER, 0, b"") != Err(Errno::PIPE) {
        assert!(std::time::Instant::now() < until, "the manager is still there");
    }
    let [(mut reader, of_writer), _, (mut writer, of_reader), _] = ports;
    assert_eq!(reader.receive(true), Err(Errno::AGAIN));
    for len in [0, 5, 100_000] {
        let content = vec![len as u8; len];
        writer.send(of_reader, 1, &content).unwrap();
        reader.send(of_writer, 2, &content).unwrap();
        assert_eq!(reader.receive(false), Ok(Event::Message(1)));
        assert_eq!(reader.message(), content);
        assert_eq!(writer.receive(false), Ok(Event::Message(2)));
        assert_eq!(writer.message(), content);
    }
    writer.send(of_reader, 3, b"last").unwrap();
    drop(writer);
    let seen = [reader.receive(false).unwrap(), reader.receive(false).unwrap()];
    assert!(seen.contains(&Event::Message(3)), "{seen:?}");
    assert!(seen.contains(&Event::Ended(of_writer)), "{seen:?}");
    assert_eq!(reader.send(of_writer, 2, b"x"), Err(Errno::PIPE));
}
