//! Parses where the two ends are, and what they have in common.

use toml::{Table, Value};

use super::Site;
use super::parts::word;
use crossway_lab::plan::{At, PlanError, share};
use crossway_lab::similar::did_you_mean;
use crossway_mech::registry;
use crossway_records::sorting::SortSmall;
use crossway_records::testbed::{HostWords, Share};

/// The values of `started`, and whether they mean that the programs were started apart.
const STARTED: [(&str, bool); 2] = [("together", false), ("apart", true)];

/// Where the two ends are, and what they have in common.
pub(super) struct Place {
    pub(super) site: Site,
    pub(super) hosts: Option<String>,
    pub(super) shares: Vec<Share>,
    pub(super) apart: bool,
}

pub(super) fn place(at: &At<'_>, top: &Table) -> Result<Place, PlanError> {
    let site = match top.get("where") {
        Some(value) => word(&at.key("where"), value, &Site::ALL)?,
        None => Site::SameHost,
    };
    let hosts = top.get("hosts").map(|v| at.key("hosts").text(v)).transpose()?.map(str::to_owned);
    if hosts.is_some() && site != Site::OtherHost {
        return Err(at.key("hosts").bad("hosts can only be given with where = \"other-host\""));
    }
    if let Some(words) = &hosts {
        let listed = HostWords::list(words).map_err(|e| at.key("hosts").bad(e.to_string()))?;
        if listed.len() != 2 {
            return Err(at.key("hosts").bad(format!(
                "a question has two hosts, not {}: write for example \"ssh a,ssh b\" or \"local,ssh b\"",
                listed.len()
            )));
        }
    }
    let apart = match top.get("started") {
        Some(_) if site == Site::OtherHost => {
            let why = "programs on two hosts never have a common parent; omit it";
            return Err(at.key("started").bad(why));
        }
        Some(value) => word(&at.key("started"), value, &STARTED)?,
        None => false,
    };
    let mut shares = match top.get("shares") {
        Some(_) if site == Site::OtherHost || (site == Site::SameHost && !apart) => {
            return Err(at.key("shares").bad(
                "only containers, and programs that were started apart, can share something; set where = \"other-container\" or started = \"apart\"",
            ));
        }
        Some(value) => at.key("shares").axis(value, share)?,
        None if site == Site::SameHost && apart => Share::ALL.to_vec(),
        None => Vec::new(),
    };
    shares.sort_small_by_key(|share| share.name());
    shares.dedup();
    if site == Site::SameHost && apart && !shares.contains(&Share::Network) {
        return Err(at.key("shares").bad(
            "programs on one host without a common network namespace are measured as containers: set where = \"other-container\"",
        ));
    }
    Ok(Place { site, hosts, shares, apart })
}

/// Parses the id of a mechanism.
pub(super) fn mechanism(at: &At<'_>, value: &Value) -> Result<&'static str, PlanError> {
    let id = at.text(value)?;
    registry::find(id).map(|entry| entry.id).ok_or_else(|| {
        let meant = did_you_mean(id, registry::ALL.iter().map(|entry| entry.id));
        at.bad(format!("there is no mechanism '{id}'; {meant}`crossway list` names them"))
    })
}
