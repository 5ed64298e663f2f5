//! Sends numbered messages and checks the answers: ./client ADDRESS COUNT

mod channel;

fn asked(link: &mut channel::Channel, number: u64) -> std::io::Result<bool> {
    let request = number.to_le_bytes();
    link.send(&request)?;
    Ok(link.receive()?.is_some_and(|answer| answer == request))
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let (Some(address), Some(count)) = (arguments.next(), arguments.next()) else {
        eprintln!("usage: client ADDRESS COUNT");
        std::process::exit(2);
    };
    let count: u64 = count.parse().expect("COUNT is a number");
    let (mut link, mut number, mut reconnects) = (channel::connected(&address), 0, 0);
    while number < count {
        if !matches!(asked(&mut link, number), Ok(true)) {
            // The server may or may not have processed this request: it is sent again on a new connection.
            link = channel::connected(&address);
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
