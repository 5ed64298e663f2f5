//! Testbeds in use: creates what a [`Testbed`](crossway_records::testbed::Testbed) describes, connects to the testbed's hosts, and
//! removes everything at the end.

mod container;
mod error;
mod reboot;
mod running;
mod setup;
mod tipc;

pub(crate) use container::Containers;
pub(crate) use error::TestbedError;
pub(crate) use running::LiveTestbed;
pub(crate) use setup::TestbedSetup;
pub(crate) use tipc::tipcd_obstacle;
