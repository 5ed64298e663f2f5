//! CPU affinity: the logical CPUs on which a thread may run.

use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::OsError;

/// Pins the calling thread, and the threads it starts later, to one logical CPU.
pub fn pin(cpu: u32) -> Result<(), OsError> {
    sched_setaffinity(None, &set_of(cpu)?)
        .map_err(|e| OsError::new("sched_setaffinity", format!("cpu {cpu}"), e))
}

/// Pins a child, its threads and its children to one logical CPU before its program begins.
///
/// # Errors
/// `cpu` is above the largest number that the kernel's CPU set can hold. A CPU that is offline or not allowed
/// makes the start of the child fail.
pub fn pin_child(command: &mut Command, cpu: u32) -> Result<(), OsError> {
    let set = set_of(cpu)?;
    // SAFETY: between fork and exec only one system call is made; nothing is allocated, no lock is taken.
    unsafe {
        command.pre_exec(move || Ok(sched_setaffinity(None, &set)?));
    }
    Ok(())
}

fn set_of(cpu: u32) -> Result<CpuSet, OsError> {
    let mut set = CpuSet::new();
    if cpu as usize >= CpuSet::MAX_CPU {
        let why = format!("the highest CPU number is {}", CpuSet::MAX_CPU - 1);
        return Err(OsError::new("sched_setaffinity", cpu, std::io::Error::other(why)));
    }
    set.set(cpu as usize);
    Ok(set)
}

/// The logical CPUs on which cgroups and taskset allow the calling thread to run, in ascending order.
pub fn allowed() -> Result<Vec<u32>, OsError> {
    let set = sched_getaffinity(None).map_err(|e| OsError::new("sched_getaffinity", "", e))?;
    Ok((0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).map(|cpu| cpu as u32).collect())
}

/// The logical CPU on which the calling thread runs right now.
pub fn current() -> u32 {
    rustix::thread::sched_getcpu() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_thread_runs_where_it_was_pinned() {
        let cpu = *allowed().unwrap().last().unwrap();
        std::thread::spawn(move || {
            pin(cpu).unwrap();
            assert_eq!(allowed().unwrap(), [cpu]);
            assert_eq!(current(), cpu);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_cpu_that_does_not_exist_is_an_error_that_names_it() {
        let error = pin(1023).unwrap_err();
        assert!(error.to_string().contains("1023"), "{error}");
    }
}
