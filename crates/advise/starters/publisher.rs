//! Sends every message to all subscribers: @SERVER_USE@

mod channel;

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex};
use std::time::Duration;

const KEPT: usize = 1024;
const PAUSE: Duration = Duration::from_millis(1);

/// The last messages. Each subscriber has a thread that sends them at the subscriber's pace. One that is slow loses the
/// oldest; one that takes nothing for `channel::DEADLINE` is disconnected. Neither delays the others.
struct Messages {
    kept: VecDeque<Vec<u8>>,
    published: u64,
}

static MESSAGES: Mutex<Messages> = Mutex::new(Messages { kept: VecDeque::new(), published: 0 });
static MORE: Condvar = Condvar::new();

fn publish(message: Vec<u8>) {
    let mut messages = MESSAGES.lock().unwrap();
    if messages.kept.len() == KEPT {
        messages.kept.pop_front();
    }
    messages.kept.push_back(message);
    messages.published += 1;
    MORE.notify_all();
}

/// Waits for the message with this number; the oldest one if that is gone. Returns its number, too.
fn message_at(number: u64) -> (u64, Vec<u8>) {
    let messages = MESSAGES.lock().unwrap();
    let messages = MORE.wait_while(messages, |messages| messages.published <= number).unwrap();
    let oldest = messages.published - messages.kept.len() as u64;
    let number = number.max(oldest);
    (number, messages.kept[(number - oldest) as usize].clone())
}

fn serve(mut link: channel::Channel) {
    // A subscriber begins with the next message.
    let mut number = MESSAGES.lock().unwrap().published;
    loop {
        let (at, message) = message_at(number);
        // The subscriber closed, died or takes nothing: only its own connection ends.
        if link.send(&message).is_err() {
            return;
        }
        number = at + 1;
    }
}

fn main() -> std::io::Result<()> {
    let Some(address) = std::env::args().nth(1) else {
        eprintln!("usage: @SERVER_USE@");
        std::process::exit(2);
    };
    let listener = channel::Listener::bind(&address)?;
    eprintln!("ready");
    std::thread::spawn(move || listener.serve_all(serve));
    for number in 0_u64.. {
        publish(number.to_le_bytes().to_vec()); // What is published; here a number.
        std::thread::sleep(PAUSE);
    }
    Ok(())
}
