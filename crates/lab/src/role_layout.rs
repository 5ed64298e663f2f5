//! The roles of a case, and which of them are connected.

use crossway_mech::Caps;

use crate::control::Part;
use crate::replay::{Replay, Script};
use crossway_records::inputs::{Inputs, Workload};

/// One role of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RoleSpec {
    pub(crate) part: Part,
    pub(crate) index: u16,
    pub(crate) cpu: Option<u32>,
    pub(crate) listeners: u16,
    pub(crate) peers: u16,
    pub(crate) first_peer: u16,
}

/// One channel. The connecting role opens it from the listening role's offer with the number `offer`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) listener: usize,
    pub(crate) offer: usize,
    /// The channel's number at the listening role.
    pub(crate) channel_there: u16,
    pub(crate) connector: usize,
    /// The channel's number at the connecting role.
    pub(crate) channel_here: u16,
}

/// Roles and channels of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RoleLayout {
    pub(crate) roles: Vec<RoleSpec>,
    pub(crate) links: Vec<Link>,
}

impl RoleLayout {
    /// The layout of a workload, which replays `replay` if it is a recording.
    pub(crate) fn of(inputs: &Inputs, caps: &Caps, replay: Option<&Replay>) -> RoleLayout {
        if let Some(replay) = replay {
            return RoleLayout::of_script(&replay.script, inputs);
        }
        let first_cpu = inputs.cpus.first().copied();
        let second_cpu = inputs.cpus.get(1).copied();
        let active = |part, index| RoleSpec {
            part,
            index,
            cpu: first_cpu,
            listeners: 0,
            peers: 1,
            first_peer: index,
        };
        let passive = |part, index| RoleSpec {
            part,
            index,
            cpu: second_cpu,
            listeners: 1,
            peers: 1,
            first_peer: index,
        };
        let link = |listener, connector| Link {
            listener,
            offer: 0,
            channel_there: 0,
            connector,
            channel_here: 0,
        };
        match inputs.workload {
            Workload::Throughput | Workload::Paced { .. } => RoleLayout {
                roles: vec![active(Part::Sender, 0), passive(Part::Receiver, 0)],
                links: vec![link(1, 0)],
            },
            // Without its recording, a replay has the two ends of a channel.
            Workload::PingPong
            | Workload::Requests { .. }
            | Workload::Exchange
            | Workload::Replay { .. } => RoleLayout {
                roles: vec![active(Part::Client, 0), passive(Part::Server, 0)],
                links: vec![link(1, 0)],
            },
            Workload::Pairs { pairs } => RoleLayout {
                roles: (0..pairs as u16)
                    .flat_map(|i| [active(Part::Sender, i), passive(Part::Receiver, i)])
                    .collect(),
                links: (0..pairs as usize).map(|i| link(2 * i + 1, 2 * i)).collect(),
            },
            Workload::FanIn { senders, .. } => {
                let hub = senders as usize;
                let listeners = if caps.fan_in { 1 } else { senders as u16 };
                let mut roles: Vec<_> =
                    (0..senders as u16).map(|i| active(Part::Sender, i)).collect();
                roles.push(RoleSpec {
                    listeners,
                    peers: senders as u16,
                    ..passive(Part::Receiver, 0)
                });
                let links = (0..senders as usize)
                    .map(|i| {
                        let at = if caps.fan_in { 0 } else { i };
                        Link { offer: at, channel_there: at as u16, ..link(hub, i) }
                    })
                    .collect();
                RoleLayout { roles, links }
            }
            Workload::Clients { clients, .. } => {
                let hub = clients as usize;
                // All get their replies from the single server, whose number is 0.
                let mut roles: Vec<_> = (0..clients as u16)
                    .map(|i| RoleSpec { first_peer: 0, ..active(Part::Client, i) })
                    .collect();
                let (listeners, peers) = (clients as u16, clients as u16);
                roles.push(RoleSpec { listeners, peers, ..passive(Part::Server, 0) });
                let links = (0..hub)
                    .map(|i| Link { offer: i, channel_there: i as u16, ..link(hub, i) })
                    .collect();
                RoleLayout { roles, links }
            }
            Workload::FanOut { receivers, .. } => {
                let mut roles = vec![active(Part::Sender, 0)];
                roles.extend((0..receivers as u16).map(|i| RoleSpec {
                    // All receive from the single sender, whose number is 0.
                    first_peer: 0,
                    ..passive(Part::Receiver, i)
                }));
                let links = (0..receivers as usize)
                    .map(|i| Link { channel_here: i as u16, ..link(i + 1, 0) })
                    .collect();
                RoleLayout { roles, links }
            }
        }
    }

    /// The roles of a recording. Roles with a channel between them are on different CPUs, as far as the placement has two.
    fn of_script(script: &Script, inputs: &Inputs) -> RoleLayout {
        let clients = script.clients();
        let exchanges = inputs.workload.facts().has_replies;
        let listens =
            |role: usize| script.channels.iter().filter(move |c| usize::from(c[1]) == role);
        let mut parts = [0u16; 2];
        let mut depths = vec![0usize; script.roles.len()];
        let mut roles = Vec::new();
        for role in 0..script.roles.len() {
            // Those that connect to a role come before it.
            let before = listens(role).map(|[from, _]| depths[usize::from(*from)] + 1);
            depths[role] = before.max().unwrap_or(0);
            let listeners = listens(role).count() as u16;
            let first = if exchanges { clients[role] } else { listeners == 0 };
            let part = match (exchanges, first) {
                (true, true) => Part::Client,
                (true, false) => Part::Server,
                (false, true) => Part::Sender,
                (false, false) => Part::Receiver,
            };
            let index = parts[usize::from(first)];
            parts[usize::from(first)] += 1;
            let cpu = match inputs.cpus.len() {
                0 => None,
                cpus => inputs.cpus.get(depths[role] % cpus.min(2)).copied(),
            };
            roles.push(RoleSpec { part, index, cpu, listeners, peers: 1, first_peer: index });
        }
        let (mut offers, mut opened) = (vec![0; roles.len()], vec![0u16; roles.len()]);
        let links = script
            .channels
            .iter()
            .map(|ends| {
                let [connector, listener] = ends.map(usize::from);
                let link = Link {
                    listener,
                    offer: offers[listener],
                    channel_there: opened[listener],
                    connector,
                    channel_here: opened[connector],
                };
                offers[listener] += 1;
                opened[listener] += 1;
                opened[connector] += 1;
                link
            })
            .collect();
        RoleLayout { roles, links }
    }

    /// The name of a role in records, with a number if several roles have the same part.
    pub(crate) fn name(&self, role: usize) -> String {
        let RoleSpec { part, index, .. } = self.roles[role];
        let alone = self.roles.iter().filter(|r| r.part == part).count() == 1;
        if alone { part.name().to_owned() } else { format!("{}-{index}", part.name()) }
    }
}
