//! Receives numbered messages and counts what is lost: ./subscriber ADDRESS COUNT

mod channel;

use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(30);

/// Connects; ends the program if there is no publisher for as long as PATIENCE.
fn connected(address: &str) -> channel::Channel {
    let (mut pause, begun) = (Duration::from_millis(10), Instant::now());
    loop {
        match channel::connect(address) {
            Ok(link) => return link,
            Err(error) => eprintln!("waiting for the publisher at {address}: {error}"),
        }
        if begun.elapsed() > PATIENCE {
            std::process::exit(1);
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(500));
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let (Some(address), Some(count)) = (arguments.next(), arguments.next()) else {
        eprintln!("usage: subscriber ADDRESS COUNT");
        std::process::exit(2);
    };
    let count: u64 = count.parse().expect("COUNT is a number");
    let mut link = connected(&address);
    let (mut expected, mut received, mut lost, mut reconnects) = (None, 0, 0, 0);
    while received < count {
        let message = link.receive().ok().flatten();
        let Some(number) = message.and_then(|message| message.try_into().ok()) else {
            // The publisher closed, died, or has been silent for channel::DEADLINE.
            link = connected(&address);
            expected = None;
            reconnects += 1;
            println!("reconnected");
            continue;
        };
        let number = u64::from_le_bytes(number);
        lost += expected.map_or(0, |expected| number - expected); // This subscriber was too slow.
        expected = Some(number + 1);
        received += 1;
        if received == 1 || received % 1000 == 0 {
            println!("received {received}");
        }
    }
    println!("done {count}, lost {lost}, reconnected {reconnects}");
}
