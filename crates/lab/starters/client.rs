//! Sends numbered messages and checks the answers: ./client ADDRESS COUNT

mod channel;

use std::time::Duration;

fn connected(address: &str) -> channel::Socket {
    let mut pause = Duration::from_millis(10);
    loop {
        match channel::Socket::connect(address).and_then(|s| channel::set_up(&s).map(|()| s)) {
            Ok(socket) => return socket,
            Err(error) => eprintln!("waiting for the server: {error}"),
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(500));
    }
}

fn asked(socket: &channel::Socket, number: u64) -> std::io::Result<bool> {
    let request = number.to_le_bytes();
    channel::send(socket, &request)?;
    Ok(channel::receive(socket)? == request)
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let (Some(address), Some(count)) = (arguments.next(), arguments.next()) else {
        eprintln!("usage: client ADDRESS COUNT");
        std::process::exit(2);
    };
    let count: u64 = count.parse().expect("COUNT is a number");
    let (mut socket, mut number, mut reconnects) = (connected(&address), 0, 0);
    while number < count {
        if !matches!(asked(&socket, number), Ok(true)) {
            // The server may or may not have processed this request: it is sent again on a new connection.
            socket = connected(&address);
            reconnects += 1;
            println!("reconnected");
            continue;
        }
        number += 1;
        if number == 1 || number % 1000 == 0 {
            println!("answered {number}");
        }
    }
    println!("done {count}, reconnected {reconnects}");
}
