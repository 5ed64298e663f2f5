//! Programs on a `tipcd` that is a process of its own: across nodes, dying, flooding, hostile. What a socket does in peace is checked
//! by the `sockets` suite of `crates/conformance`, on this back end and on the kernel's.

mod crowds;
mod down_lane;
mod hostile;
mod killed_sender;
mod lane_attacks;
mod lane_wakeups;
mod lanes;
mod lingering;
mod operator;
mod relief;
mod site;
mod slow_member;
mod starts;
mod two_nodes;
