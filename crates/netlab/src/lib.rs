//! Simulates several hosts on one machine: network namespaces joined by shaped links.
//!
//! [`Lab::up`] creates the network that a [`Topology`] describes and removes it when dropped; [`Lab::up_to_stay`]
//! creates one that exists until [`down`]. A [`Host`] provides a command prefix ([`Host::prefix`]) that runs a program
//! in the host's network namespace and on its CPUs. `docs/NETLAB.md` explains at which points the traffic is shaped,
//! and what "CPU of a host" means.

mod build;
mod error;
mod guest;
mod impairer;
mod lab;
mod network;
mod quantity;
mod registry;
mod share;
mod switch;
mod tool;
mod topology;

pub use error::NetError;
pub use guest::{
    Guest, GuestExit, GuestFacts, GuestKernel, GuestMachine, GuestPlace, GuestRecord,
    GuestRegisters, GuestSpec, MOST_GUEST_CPUS, QEMU, check_qemu, exec_in_guest, fetch_kernel,
    guest_down, guest_machine, kvm_refusal, list_guests, registers_lost, run_guest_init,
    run_guest_keeper, run_guest_subcommand,
};
pub use impairer::ImpairmentCounts;
pub use lab::{Lab, down, find, list, remove_abandoned, remove_all_of_this_process};
pub use network::{Host, ImpairedBy, Network};
pub use quantity::{Rate, parse_duration, parse_share};
pub use registry::Process;
pub use switch::run_network_switch;
pub use topology::{HostKind, HostSpec, Impairment, Link, MAX_HOSTS, Offloads, Topology};
