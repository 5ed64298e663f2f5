//! A TIPC node in user space, which runs the protocol's state machine on real bearers.
//!
//! [`Runner`] is a node with its event loop; [`Bearer`] sends and receives frames over UDP or Ethernet; [`BearerSpec`]
//! parses a bearer specification. [`Service`] provides sockets to other processes, and a [`Daemon`] runs both in one
//! loop. UDP needs no privilege; Ethernet needs CAP_NET_RAW.

mod admin;
mod bearer;
mod cipher;
mod command;
mod daemon;
mod event_text;
mod journal;
mod notice;
mod options;
mod outbox;
mod readiness;
mod runner;
mod service;
mod spec;
mod tap;

pub use bearer::{Bearer, BearerOpenError};
pub use cipher::{Gcm, GcmKey};
pub use command::run_tipcd;
pub use daemon::Daemon;
pub use notice::Notice;
pub use options::TipcdOptions;
pub use outbox::Traffic;
pub use runner::{Runner, RunnerError};
pub use service::{Service, ServiceError, ServiceLimits};
pub use spec::{BearerSpec, SpecError};
