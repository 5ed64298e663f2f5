//! Hosts that a cluster's job starter leads to.

use super::*;

#[test]
fn mpirun_is_a_prefix() {
    if Command::new("mpirun").arg("--version").output().is_err() {
        eprintln!("SKIP mpirun_is_a_prefix: no mpirun; sudo apt-get install openmpi-bin");
        return;
    }
    let place = Place::new(PLAN);
    let mpirun = "mpirun --allow-run-as-root -np 1 --host localhost";
    let output = place.measure(&["--hosts", &format!("{mpirun},local")]);
    let records = measured(&place, &output);
    check_hosts(&records, mpirun, "local");
    await_nothing_left(&place);
}
