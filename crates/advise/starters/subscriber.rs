//! Receives numbered messages and counts what is lost: ./subscriber ADDRESS COUNT

mod channel;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let (Some(address), Some(count)) = (arguments.next(), arguments.next()) else {
        eprintln!("usage: subscriber ADDRESS COUNT");
        std::process::exit(2);
    };
    let count: u64 = count.parse().expect("COUNT is a number");
    let mut link = channel::connected(&address);
    let (mut expected, mut received, mut lost, mut reconnects) = (None, 0, 0, 0);
    while received < count {
        let message = link.receive().ok().flatten();
        let Some(number) = message.and_then(|message| message.try_into().ok()) else {
            // The publisher closed, died, or has been silent for channel::DEADLINE.
            link = channel::connected(&address);
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
