//! When a destination that was reachable may no longer be.
//!
//! `tipcd` counts, per hash of a service type or node, every binding that was withdrawn and every node that was lost. A program that
//! was once told that a destination is reachable sends there without asking until the count changes, and so gets EHOSTUNREACH from
//! the call itself, as from the kernel, at the cost of one load.

use crate::address::Address;

/// Counters; a collision only costs a question.
pub const COUNT: usize = 512;

const fn mix(number: u32) -> usize {
    // The upper bits of a multiplication depend on all bits of the number.
    (number.wrapping_mul(0x9e37_79b1) >> 23) as usize % COUNT
}

/// The counter of a service type.
pub const fn of_service(service: u32) -> usize {
    mix(service)
}

/// The counter of a node.
pub const fn of_node(node: u32) -> usize {
    mix(node ^ 0x5bd1_e995)
}

/// The counter that a destination depends on.
pub const fn of(address: Address) -> usize {
    match address {
        Address::Range(range) => of_service(range.service),
        Address::Service { service, domain: 0, .. } => of_service(service),
        Address::Service { domain, .. } => of_node(domain),
        Address::Socket(socket) => of_node(socket.node),
    }
}
