//! Tests programs on a `tipcd` that runs in a separate process: programs on different nodes, and programs that die,
//! flood or are hostile. The `sockets` suite of `crates/conformance` tests the ordinary behaviour of sockets, with this
//! back end and the kernel's.

mod direct;
mod direct_attacks;
mod direct_kills;
mod direct_waits;
mod down_lane;
mod ends;
mod exhaustion;
mod halves;
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
pub(crate) mod two_nodes;
