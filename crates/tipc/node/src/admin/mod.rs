//! Carries out an operator's orders.

mod bearers;
mod jobs;
mod keys;
mod views;

pub(crate) use bearers::{bearer_lines, bearer_names, media};
pub(crate) use jobs::BearerJobs;
pub(crate) use keys::{apply as apply_to_keys, lines as encryption_lines};
pub(crate) use views::{link_name, name_of_link};

use std::fs::File;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use crossway_sys::{Errno, shm};
use crossway_tipc_client::admin::{MulticastWay, Order, Outcome, Settings};
use crossway_tipc_proto::addr::{BearerId, MediaAddr, NodeAddr};
use crossway_tipc_proto::link::LinkSettings;
use crossway_tipc_proto::socket::MulticastMethod;

use crate::runner::{Runner, now};
use crate::service::{Place, Service};
use crate::tap::Tap;

/// The kernel's name for the broadcast link.
const BROADCAST_LINK: &str = "broadcast-link";

/// Carries out an order. Returns the descriptors of the answer: a file with the outcome as JSON and, for some orders,
/// one more. Returns `None` for an order that takes longer, which [`BearerJobs`] answers later.
pub(crate) fn carry_out(
    runner: &mut Runner,
    service: &Service,
    jobs: &mut BearerJobs,
    place: Place,
    order: &[u8],
) -> Option<Result<Vec<OwnedFd>, Errno>> {
    let Ok(order) = Order::from_json(order) else { return Some(Err(Errno::PROTO)) };
    let mut more = None;
    let outcome = match order {
        Order::Node => Ok(Outcome::Node(Box::new(views::node(runner, service)))),
        Order::Bearers => Ok(Outcome::Bearers(bearers::bearers(runner))),
        Order::Links => Ok(Outcome::Links(views::links(runner))),
        Order::Broadcast => Ok(Outcome::Broadcast(Box::new(views::broadcast(runner)))),
        Order::Names { behind } => Ok(Outcome::Names(views::names(runner.node(), behind))),
        Order::Sockets => Ok(Outcome::Sockets(views::sockets(runner.node(), service))),
        Order::Peers => Ok(Outcome::Peers(views::peers(runner))),
        Order::EnableBearer { bearer, name, settings } => {
            jobs.enable(place, bearer, name, settings);
            return None;
        }
        Order::DisableBearer { name } => {
            jobs.disable(place, name);
            return None;
        }
        Order::AddRemote { name, remote } => add_remote(runner, &name, remote),
        Order::RemoveRemote { name, remote } => remove_remote(runner, &name, remote),
        Order::SetBearer { name, settings } => set_bearer(runner, &name, settings),
        Order::SetLink { name, settings } => set_link(runner, &name, settings),
        Order::ResetStatistics { name } => reset_statistics(runner, name.as_deref()),
        Order::SetMulticasts { method, replicast_percent } => {
            set_multicasts(runner, method, replicast_percent)
        }
        Order::RemovePeer { name } => remove_peer(runner, &name),
        Order::Monitor => Ok(Outcome::Monitor(Box::new(views::monitor(runner)))),
        Order::SetMonitorThreshold { nodes } => {
            let set = runner.node().set_monitor_threshold(nodes);
            set.map(|()| Outcome::Done).map_err(|e| e.to_string())
        }
        order @ (Order::Keys
        | Order::SetKey { .. }
        | Order::SetRekeying { .. }
        | Order::FlushKeys
        | Order::SetPlain { .. }) => keys::apply(runner, &order),
        Order::Trace => Tap::new().map_err(|e| e.to_string()).map(|(tap, theirs)| {
            runner.tap(tap);
            more = Some(theirs);
            Outcome::Done
        }),
    };
    Some(answer(outcome, more))
}

/// Builds the descriptors of an answer.
fn answer(outcome: Result<Outcome, String>, more: Option<OwnedFd>) -> Result<Vec<OwnedFd>, Errno> {
    let outcome = outcome.unwrap_or_else(Outcome::Refused);
    let text = outcome.to_json().map_err(|_| Errno::PROTO)?;
    let file =
        File::from(shm::create_sealed("tipcd-outcome", text.len()).map_err(|_| Errno::NOMEM)?);
    file.write_all_at(&text, 0).map_err(|_| Errno::NOMEM)?;
    Ok([file.into()].into_iter().chain(more).collect())
}

pub(crate) fn settings(of: Settings) -> LinkSettings {
    LinkSettings {
        tolerance: of.tolerance_ms.map(|ms| Duration::from_millis(ms.into())),
        priority: of.priority,
        window_max: of.window_packets,
    }
}

/// Finds the bearer with this name, which is given with or without its medium (`udp:udp0` or `udp0`).
fn find(runner: &mut Runner, name: &str) -> Result<BearerId, String> {
    let bearers = bearers::bearer_names(runner);
    let meant = |full: &str| full == name || full.split_once(':').is_some_and(|(_, n)| n == name);
    if let Some((id, _)) = bearers.iter().find(|(_, full)| meant(full)) {
        return Ok(*id);
    }
    let names: Vec<_> = bearers.into_iter().map(|(_, name)| name).collect();
    Err(match names.len() {
        0 => format!("no bearer {name}: this node has no bearers; enable one first"),
        _ => format!("no bearer {name}; existing bearers: {}", names.join(", ")),
    })
}

fn add_remote(runner: &mut Runner, name: &str, remote: SocketAddr) -> Result<Outcome, String> {
    let id = find(runner, name)?;
    let udp = runner.bearer(id).and_then(|b| b.as_udp());
    let udp = udp.ok_or_else(|| format!("bearer {name} has no remotes: it is not a UDP bearer"))?;
    udp.add_remote(remote).map_err(|e| format!("remote {remote}: {e}"))?;
    let station = MediaAddr::Udp { ip: remote.ip(), port: remote.port() };
    runner.node().meet(now(), id, station);
    Ok(Outcome::Done)
}

fn remove_remote(runner: &mut Runner, name: &str, remote: SocketAddr) -> Result<Outcome, String> {
    let id = find(runner, name)?;
    let station = MediaAddr::Udp { ip: remote.ip(), port: remote.port() };
    let udp = runner.bearer(id).and_then(|b| b.as_udp());
    let udp = udp.ok_or_else(|| format!("bearer {name} has no remotes: it is not a UDP bearer"))?;
    udp.remove_remote(remote).map_err(|e| format!("remote {remote}: {e}"))?;
    // The peer is notified by the link's last frame, which is still sent.
    runner.node().part_from(now(), id, station).map_err(|e| e.to_string())?;
    Ok(Outcome::Done)
}

fn set_bearer(runner: &mut Runner, name: &str, with: Settings) -> Result<Outcome, String> {
    let id = find(runner, name)?;
    runner.node().set_bearer(id, settings(with)).map_err(|e| e.to_string())?;
    Ok(Outcome::Done)
}

/// Finds the link with this name.
fn find_link(runner: &mut Runner, name: &str) -> Result<(NodeAddr, BearerId), String> {
    let links = views::link_places(runner);
    if let Some((peer, bearer, _)) = links.iter().find(|(_, _, full)| full == name) {
        return Ok((*peer, *bearer));
    }
    let names: Vec<_> = links.into_iter().map(|(_, _, name)| name).collect();
    Err(match names.len() {
        0 => format!("no link {name}: this node has no links"),
        1..=8 => format!("no link {name}; existing links: {}", names.join(", ")),
        _ => format!("no link {name}; `crossway tipc link list` shows the links"),
    })
}

fn reset_statistics(runner: &mut Runner, name: Option<&str>) -> Result<Outcome, String> {
    let links = match name {
        Some(BROADCAST_LINK) => Vec::new(),
        Some(name) => vec![find_link(runner, name)?],
        None => views::link_places(runner).into_iter().map(|(p, b, _)| (p, b)).collect(),
    };
    if name.is_none_or(|name| name == BROADCAST_LINK) {
        runner.node().reset_broadcast_statistics();
    }
    for (peer, bearer) in links {
        runner.node().reset_statistics(peer, bearer).map_err(|e| e.to_string())?;
    }
    Ok(Outcome::Done)
}

fn set_multicasts(
    runner: &mut Runner,
    way: Option<MulticastWay>,
    percent: Option<u8>,
) -> Result<Outcome, String> {
    if percent.is_some_and(|percent| percent > 100) {
        return Err("the ratio must be a percentage from 0 to 100".to_owned());
    }
    let node = runner.node();
    let mut policy = node.multicasts();
    policy.method = match way {
        None => policy.method,
        Some(MulticastWay::Autoselect) => MulticastMethod::Automatic,
        Some(MulticastWay::Broadcast) => MulticastMethod::Broadcast,
        Some(MulticastWay::Replicast) => MulticastMethod::Replicast,
    };
    policy.replicast_percent = percent.map_or(policy.replicast_percent, usize::from);
    node.set_multicasts(policy);
    Ok(Outcome::Done)
}

fn remove_peer(runner: &mut Runner, name: &str) -> Result<Outcome, String> {
    let addr = u32::from_str_radix(name, 16).ok().map(NodeAddr);
    let node = runner.node();
    let found = node.peers().find(|p| p.id.to_string() == name || Some(p.addr) == addr);
    let found = found
        .ok_or_else(|| format!("no node {name}; `crossway tipc peer list` shows the nodes"))?;
    node.remove_peer(found.addr).map_err(|e| format!("node {name}: {e}"))?;
    Ok(Outcome::Done)
}

fn set_link(runner: &mut Runner, name: &str, with: Settings) -> Result<Outcome, String> {
    let (peer, bearer) = find_link(runner, name)?;
    runner
        .node()
        .set_link(now(), peer, bearer, settings(with))
        .map_err(|e| format!("link {name}: {e}"))?;
    Ok(Outcome::Done)
}
