//! Processes: spawn with a parent-death signal, pidfd, wait with usage.
