//! Fuzzes the TIPC decoders and state machine, within this process and for a given time.
//!
//! Two nodes communicate over two media through a man in the middle, who changes, repeats, delays, invents and nests
//! frames. Because most frames are genuine, forged ones carry session and sequence numbers that nodes accept, and reach
//! states that random bytes never reach. Every round has a seed of its own; a failure prints it, and `--seed N --rounds
//! 1` repeats the round.
//!
//!     cargo run --profile fuzz -p crossway-fuzz -- --minutes 20

mod lies;
mod round;

use std::panic::catch_unwind;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;

/// Fuzzes the TIPC node with a hostile peer.
#[derive(Debug, Parser)]
struct Options {
    /// Minutes after which to stop
    #[arg(long, default_value_t = 1)]
    minutes: u64,
    /// Seed of the first round; each further round uses the next number
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Maximum number of rounds
    #[arg(long, default_value_t = u64::MAX)]
    rounds: u64,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let (start, limit) = (Instant::now(), Duration::from_secs(options.minutes * 60));
    let mut total = round::Tally::default();
    let mut said = start;
    let mut rounds = 0;
    while rounds < options.rounds && start.elapsed() < limit {
        let seed = options.seed.wrapping_add(rounds);
        match catch_unwind(|| round::run(seed)) {
            Ok(tally) => total.add(&tally),
            Err(_) => {
                eprintln!("FAILED: repeat with --seed {seed} --rounds 1");
                return ExitCode::FAILURE;
            }
        }
        rounds += 1;
        if said.elapsed() > Duration::from_secs(60) {
            said = Instant::now();
            println!("{} s: {rounds} rounds, {total}", start.elapsed().as_secs());
        }
    }
    println!("done after {} s: {rounds} rounds, {total}", start.elapsed().as_secs());
    ExitCode::SUCCESS
}
