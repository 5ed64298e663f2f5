//! /proc and /sys: CPU time of the host, soft interrupts, interfaces, environment.
