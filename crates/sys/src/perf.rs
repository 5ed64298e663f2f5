//! perf_event_open counters, hardware where the machine has them.
