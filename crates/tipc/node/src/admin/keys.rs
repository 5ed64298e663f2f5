//! Carries out orders about encryption.

use std::time::Duration;

use crossway_tipc_client::admin::{
    EncryptionView, KeyFor, KeyText, KeyView, Order, Outcome, PeerKeysView, RekeyingWhen,
};
use crossway_tipc_proto::addr::NodeId;
use crossway_tipc_proto::crypto::{KeyMode, KeyOwner, KeyReport, KeyState, Rekeying, SecretKey};

use crate::runner::{Runner, now};

/// Bytes from hexadecimal digits; `None` for anything else.
fn bytes(digits: &str) -> Option<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

/// Parses an identity: text, or 32 hexadecimal digits.
fn identity(text: &str) -> Result<NodeId, String> {
    let hex = bytes(text).and_then(|bytes| <[u8; 16]>::try_from(bytes).ok()).map(NodeId);
    let id = if text.len() == 32 { hex } else { NodeId::from_text(text) };
    id.ok_or_else(|| {
        format!(
            "'{text}' is not an identity: use 1 to 16 of the characters A-Z a-z 0-9 . : _ @ -, or 32 hexadecimal digits"
        )
    })
}

/// Carries out an order about keys.
pub(crate) fn apply(runner: &mut Runner, order: &Order) -> Result<Outcome, String> {
    match order {
        Order::Keys => Ok(Outcome::Keys(Box::new(view(runner)))),
        Order::SetKey { key, owner } => set_key(runner, key, owner),
        Order::SetRekeying { when } => {
            let rekeying = match *when {
                RekeyingWhen::EveryMinutes(n) => Rekeying::Every(Duration::from_secs(60) * n),
                RekeyingWhen::EverySeconds(n) => Rekeying::Every(Duration::from_secs(n.into())),
                RekeyingWhen::Now => Rekeying::Now,
                RekeyingWhen::Never => Rekeying::Never,
            };
            if runner.keyring().is_keyed() {
                runner.keyring().set_rekeying(now(), rekeying);
                Ok(Outcome::Done)
            } else {
                Err("there is no key to replace; set one first (`node set key`)".to_owned())
            }
        }
        Order::FlushKeys => {
            runner.keyring().flush();
            Ok(Outcome::Done)
        }
        Order::SetPlain { allowed } => {
            runner.keyring().allow_plain(*allowed);
            if *allowed {
                runner.leave_room();
            }
            Ok(Outcome::Done)
        }
        _ => Err("this is no order about keys".to_owned()),
    }
}

fn set_key(runner: &mut Runner, key: &KeyText, owner: &KeyFor) -> Result<Outcome, String> {
    let key = bytes(&key.0).ok_or("the key is not in hexadecimal digits")?;
    let key = SecretKey::new(&key).map_err(|e| e.to_string())?;
    let owner = match owner {
        KeyFor::Cluster => KeyOwner::Cluster,
        KeyFor::Master => KeyOwner::Master,
        KeyFor::Node(id) => KeyOwner::Node(identity(id)?),
    };
    // From now on, so that the remedy below helps.
    runner.leave_room();
    if let Some(device) = runner.without_room() {
        return Err(format!(
            "the packets of bearer eth:{device} leave no room for encryption, because it was enabled before there was a \
             key; disable and enable it, which ends its links, or restart the tipcd with --allow-plain or --key-file"
        ));
    }
    let own_id = runner.node().id();
    if own_id.is_none() && matches!(owner, KeyOwner::Node(_)) {
        return Err(
            "this node has no identity yet: give it one (tipcd --id) or a bearer first".to_owned()
        );
    }
    runner.keyring().set_key(now(), own_id, key, owner).map_err(|e| e.to_string())?;
    Ok(Outcome::Done)
}

fn key_view(of: &KeyReport) -> KeyView {
    let state = match of.state {
        KeyState::Master => "master",
        KeyState::Active => "active",
        KeyState::Pending => "pending",
        KeyState::Passive => "passive",
    };
    let mode = match of.mode {
        KeyMode::Cluster => "cluster",
        KeyMode::Node => "node",
    };
    KeyView {
        number: of.number,
        state: state.to_owned(),
        mode: mode.to_owned(),
        length_bits: of.bits as u64,
        users: of.users as u64,
    }
}

fn view(runner: &mut Runner) -> EncryptionView {
    let at = now();
    let keyring = runner.keyring();
    let peer = |(id, uses, keys): (NodeId, u8, Vec<KeyReport>)| PeerKeysView {
        identity: id.to_string(),
        uses,
        keys: keys.iter().map(key_view).collect(),
    };
    EncryptionView {
        encrypts: keyring.is_keyed(),
        plain_allowed: keyring.allows_plain(),
        all_peers_encrypt: keyring.is_keyed() && keyring.all_encrypt(at),
        rekeying_s: keyring.rekeying().map(|time| time.as_secs()),
        switches: keyring.switches(),
        own: keyring.own_keys(at).iter().map(key_view).collect(),
        peers: keyring.peer_keys().map(peer).collect(),
    }
}

/// Describes encryption at the start, one line for each fact; none if there are no keys and none are expected.
pub(crate) fn lines(runner: &mut Runner) -> Vec<String> {
    let keyring = runner.keyring();
    let mut lines = Vec::new();
    if keyring.is_keyed() {
        lines.push("frames are encrypted".to_owned());
    }
    if keyring.allows_plain() {
        lines.push(
            "WARNING: plain frames are accepted (--allow-plain): whoever reaches a bearer can join and speak for nodes that \
             do not encrypt; once all nodes have keys, end this with `crossway tipc node set plain refused`"
                .to_owned(),
        );
    }
    lines
}
