//! `crossway tipc wait`.

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use crossway_tipc_client::Error;
use crossway_tipc_client::admin::{AdminError, Administration, Order, Outcome};

use super::explain;
use crate::ui::Interrupts;

/// Time between two checks.
const INTERVAL: Duration = Duration::from_millis(50);

#[derive(clap::Args)]
pub(super) struct Wait {
    /// Wait until the node has its address; a node without a bearer never gets one
    #[arg(long)]
    address: bool,
    /// Wait until this many other nodes have links to this one
    #[arg(long, value_name = "N", default_value_t = 0)]
    peers: u64,
    /// Wait until a socket in the cluster is bound to this service, TYPE or TYPE:INSTANCE; may be repeated
    #[arg(long, value_name = "SERVICE", value_parser = service)]
    service: Vec<Service>,
    /// Give up after this many seconds
    #[arg(long, value_name = "S", default_value_t = 30)]
    timeout: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Service {
    service: u32,
    instance: Option<u32>,
}

impl std::fmt::Display for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.instance {
            Some(instance) => write!(f, "{}:{instance}", self.service),
            None => write!(f, "{}", self.service),
        }
    }
}

fn service(text: &str) -> Result<Service, String> {
    let (service, instance) = match text.split_once(':') {
        Some((service, instance)) => (service, Some(instance)),
        None => (text, None),
    };
    let number = |text: &str| text.parse().map_err(|_| "expected TYPE or TYPE:INSTANCE".to_owned());
    Ok(Service { service: number(service)?, instance: instance.map(number).transpose()? })
}

impl Wait {
    pub(super) fn run(&self, path: &Path) -> anyhow::Result<ExitCode> {
        let interrupts = Interrupts::catch()?;
        let end = Instant::now().checked_add(Duration::from_secs(self.timeout));
        let mut tipcd = None;
        loop {
            let Some(missing) = self.missing(path, &mut tipcd)? else {
                return Ok(ExitCode::SUCCESS);
            };
            if end.is_some_and(|end| Instant::now() >= end) {
                let next = match tipcd {
                    Some(_) => {
                        "see `crossway tipc node`, `crossway tipc link list` and `crossway tipc nametable show`"
                    }
                    None => "if none runs, start one with: crossway tipcd",
                };
                anyhow::bail!("timed out after {} s: {missing}; {next}", self.timeout);
            }
            if interrupts.any() {
                return Ok(ExitCode::from(130));
            }
            std::thread::sleep(INTERVAL);
        }
    }

    /// Describes the first condition that is not met yet; `None` if all conditions are met.
    fn missing(
        &self,
        path: &Path,
        tipcd: &mut Option<Administration>,
    ) -> anyhow::Result<Option<String>> {
        let at = match tipcd {
            Some(at) => at,
            None => match Administration::at(path) {
                Ok(at) => tipcd.insert(at),
                Err(AdminError::Client(
                    Error::NoDaemon { .. } | Error::TurnedAway { .. } | Error::DaemonGone { .. },
                )) => {
                    return Ok(Some(format!(
                        "no tipcd accepts this program at {}",
                        path.display()
                    )));
                }
                Err(other) => return Err(explain(other)),
            },
        };
        let node = match at.order(&Order::Node).map_err(explain)? {
            Outcome::Node(node) => node,
            other => return Err(at.nonsense(format!("{other:?}")).into()),
        };
        if self.address && node.address.is_none() {
            return Ok(Some("the node has no address yet".to_owned()));
        }
        if node.peers_up < self.peers {
            return Ok(Some(format!(
                "this node has links to {} of {} required peers",
                node.peers_up, self.peers
            )));
        }
        if self.service.is_empty() {
            return Ok(None);
        }
        let names = at.names().map_err(explain)?;
        let is_bound = |wanted: &&Service| {
            names.iter().any(|name| {
                name.service == wanted.service
                    && wanted.instance.is_none_or(|i| (name.lower..=name.upper).contains(&i))
            })
        };
        let unbound = self.service.iter().find(|wanted| !is_bound(wanted));
        Ok(unbound.map(|wanted| format!("nothing is bound to service {wanted}")))
    }
}
