//! Programs on a `tipcd` in a process of its own: across nodes, dying, flooding, hostile. The ordinary behaviour of sockets is tested
//! by the `sockets` suite of `crates/conformance`, with this back end and the kernel's.

mod direct;
mod direct_attacks;
mod direct_kills;
mod direct_waits;
mod down_lane;
mod ends;
mod exhaustion;
mod hostile;
mod killed_sender;
mod lane_attacks;
mod lane_pair;
mod lane_wakeups;
mod lanes;
mod lingering;
mod names;
#[path = "../on_lanes/mod.rs"]
mod on_lanes;
mod operator;
mod relief;
mod site;
mod slow_member;
mod starts;
mod two_nodes;
