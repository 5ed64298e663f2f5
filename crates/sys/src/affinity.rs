//! On which logical CPUs a thread may run.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::OsError;

/// Pins the calling thread, and the threads it starts later, to one logical CPU.
pub fn pin(cpu: u32) -> Result<(), OsError> {
    let mut set = CpuSet::new();
    if cpu as usize >= CpuSet::MAX_CPU {
        let why = format!("numbers end at {}", CpuSet::MAX_CPU - 1);
        return Err(OsError::new("sched_setaffinity", cpu, std::io::Error::other(why)));
    }
    set.set(cpu as usize);
    sched_setaffinity(None, &set)
        .map_err(|e| OsError::new("sched_setaffinity", format!("cpu {cpu}"), e))
}

/// The logical CPUs on which the calling thread may run, ascending (cgroups and taskset have a say in it).
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
