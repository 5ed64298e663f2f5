//! Writes a SYNTHETIC run (none of its figures was measured) to a directory, to try the report on it: `cargo run -p
//! crossway-report --example synthetic -- DIR [RECORDS]`. If RECORDS is given, writes that many plain records instead
//! of a run with data for every chart.

#[path = "../tests/synthetic/mod.rs"]
mod synthetic;

use crossway_records::inputs::Workload;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let dir = arguments.next().expect("usage: synthetic DIR [RECORDS]");
    let records = match arguments.next().and_then(|n| n.parse::<usize>().ok()) {
        None => synthetic::rich(),
        Some(wanted) => {
            let trials = 20;
            let sizes = wanted.div_ceil(synthetic::MADE.len() * 2 * trials as usize);
            let asks: Vec<_> = (1..=sizes as u64)
                .flat_map(|n| [Workload::PingPong, Workload::Throughput].map(|w| (w, n * 512)))
                .map(|(workload, size)| synthetic::Ask::idle(workload, size))
                .collect();
            let mut records = synthetic::run(&synthetic::MADE, &asks, trials, 5);
            records.truncate(wanted);
            records
        }
    };
    synthetic::write(std::path::Path::new(&dir), &records);
    synthetic::write_surroundings(std::path::Path::new(&dir));
    println!("{} synthetic records in {dir}", records.len());
}
