//! Cores, siblings, caches, sockets and NUMA nodes, read from /sys.
