//! Which role plays which end of the recorded channels.
//!
//! One channel has two roles, one for each end. With several, a role is what a recorded thread does on all of them, so
//! that what it received on one channel still comes before what it sends on another one. Threads that share an end of a
//! channel are one role, which makes their calls in the order of the recording.

use crossway_records::sorting::SortSmall;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use crossway_observe::recording::{Direction, Operation, Recording};

use super::calls::{direction_of, end_of, first_directions, returned};
use super::compile::Unplayable;

/// Most channels of a replay.
pub const MOST_CHANNELS: usize = 64;

/// The channels of a recording that are replayed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Channels {
    /// The one with the most messages.
    Busiest,
    /// All between recorded processes that can be replayed together.
    All,
    /// These, by their numbers in the recording: at least one.
    These(Vec<u32>),
}

/// Roles, and their channels in the order in which these are opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cast {
    /// Number of roles; the one that sends first has the number 0.
    pub(super) roles: usize,
    /// The channels' numbers in the recording.
    pub(super) channels: Vec<u32>,
    /// The role at the first and at the second end of each channel.
    pub(super) ends: Vec<[usize; 2]>,
    /// What each channel belongs to: it is a conversation of its own if it carried messages in both directions; channels
    /// with one direction between the same two roles are one conversation.
    pub(super) conversations: Vec<usize>,
}

impl Cast {
    /// The roles of one channel.
    pub(super) fn of_one(recording: &Recording, channel: u32) -> Result<Cast, Unplayable> {
        let first = first_directions(recording).remove(&channel).ok_or(Unplayable::Silent)?;
        let ends = if first == Direction::Forward { [0, 1] } else { [1, 0] };
        Ok(Cast { roles: 2, channels: vec![channel], ends: vec![ends], conversations: vec![0] })
    }

    /// The roles of several channels. `Err` names a channel that cannot be among them.
    pub(super) fn of_several(
        recording: &Recording,
        channels: &[u32],
    ) -> Result<Cast, (u32, Unplayable)> {
        let users = Users::of(recording);
        let mut groups = Groups::default();
        for channel in channels {
            groups.join(&users, *channel).map_err(|why| (*channel, why))?;
        }
        if let Some(within) = channels.iter().find(|channel| groups.is_within(&users, **channel)) {
            return Err((*within, Unplayable::OneRole));
        }
        // When each role does its first call.
        let mut firsts: HashMap<u32, (bool, i64)> = HashMap::new();
        for event in recording.events.iter().filter(|event| event.size_bytes > 0) {
            if !event.channel.is_some_and(|channel| channels.contains(&channel)) {
                continue;
            }
            let receives = event.operation == Operation::Receive;
            let at = (receives, if receives { returned(event) } else { event.at_ns });
            let first = firsts.entry(groups.of(event.thread)).or_insert(at);
            *first = at.min(*first);
        }
        // Who sends first on a channel comes before who answers, unless they do so in a circle.
        let directions = first_directions(recording);
        let before: Vec<[u32; 2]> = channels
            .iter()
            .map(|channel| {
                let groups = [0, 1].map(|end| groups.first(&users.at[channel][end]));
                match directions.get(channel) {
                    Some(Direction::Backward) => [groups[1], groups[0]],
                    _ => groups,
                }
            })
            .collect();
        let mut left: Vec<u32> = firsts.keys().copied().collect();
        left.sort_small_by_key(|group| (firsts[group], *group));
        let mut order: Vec<u32> = Vec::new();
        while !left.is_empty() {
            let answers = |group: &u32| before.iter().any(|[a, b]| b == group && left.contains(a));
            let next = left.iter().position(|group| !answers(group)).unwrap_or_default();
            order.push(left.remove(next));
        }
        let role = |channel: u32, end: usize| {
            let group = groups.first(&users.at[&channel][end]);
            order.iter().position(|known| *known == group).unwrap_or_default()
        };
        let mut cast: Vec<(u32, [usize; 2])> = channels
            .iter()
            .map(|channel| (*channel, [role(*channel, 0), role(*channel, 1)]))
            .collect();
        // A role opens the channels on which it connects before those on which it listens. In this order, no two roles
        // wait for each other.
        cast.sort_small_by_key(|(channel, [a, b])| (std::cmp::Reverse(*a.min(b)), *channel));
        let mut pairs: HashMap<[usize; 2], usize> = HashMap::new();
        let conversations = (0..)
            .zip(&cast)
            .map(|(place, (channel, [a, b]))| {
                let both = users.directions[channel].len() > 1;
                if both { place } else { *pairs.entry([*a.min(b), *a.max(b)]).or_insert(place) }
            })
            .collect();
        let (channels, ends) = cast.into_iter().unzip();
        Ok(Cast { roles: order.len(), channels, ends, conversations })
    }

    /// The end of a channel that connects to the other one: that of the role that is first.
    pub(super) fn connects(&self, channel: usize) -> usize {
        usize::from(self.ends[channel][0] > self.ends[channel][1])
    }
}

/// All channels between recorded processes that can be replayed together, and what is left out, in words. Without any,
/// the list is empty.
pub(super) fn all(recording: &Recording) -> (Vec<u32>, Option<String>) {
    let users = Users::of(recording);
    let mut order: Vec<u32> = users.at.keys().copied().collect();
    order.sort_small_by_key(|channel| (std::cmp::Reverse(users.calls[channel]), *channel));
    let (mut chosen, mut groups) = (Vec::new(), Groups::default());
    for channel in &order {
        let mut with = groups.clone();
        if chosen.len() < MOST_CHANNELS && with.join(&users, *channel).is_ok() {
            let is_within = |channel: &u32| with.is_within(&users, *channel);
            if !is_within(channel) && !chosen.iter().any(is_within) {
                chosen.push(*channel);
                groups = with;
            }
        }
    }
    let left = order.len() - chosen.len();
    let remark = (left > 0).then(|| {
        format!(
            "{left} of {} channels are not replayed: only one of their ends was recorded, or both belong to the same \
             thread, or {MOST_CHANNELS} others carried more messages",
            order.len()
        )
    });
    (chosen, remark)
}

/// Which threads use the ends of each channel, and which directions carried messages.
#[derive(Default)]
struct Users {
    at: BTreeMap<u32, [BTreeSet<u32>; 2]>,
    directions: HashMap<u32, BTreeSet<usize>>,
    calls: HashMap<u32, u64>,
}

impl Users {
    fn of(recording: &Recording) -> Users {
        let mut users = Users::default();
        for event in recording.events.iter().filter(|event| event.size_bytes > 0) {
            let Some(channel) = event.channel.filter(|_| event.operation != Operation::Wait) else {
                continue;
            };
            users.at.entry(channel).or_default()[end_of(event)].insert(event.thread);
            users.directions.entry(channel).or_default().insert(direction_of(event));
            *users.calls.entry(channel).or_default() += 1;
        }
        users
    }
}

/// Threads that are one role, as trees: each thread's next one on the way to the group's representative.
#[derive(Clone, Default)]
struct Groups(HashMap<u32, u32>);

impl Groups {
    fn of(&self, mut thread: u32) -> u32 {
        while let Some(next) = self.0.get(&thread) {
            thread = *next;
        }
        thread
    }

    /// Makes the threads at each end of a channel one group.
    fn join(&mut self, users: &Users, channel: u32) -> Result<(), Unplayable> {
        let ends = users.at.get(&channel).ok_or(Unplayable::Silent)?;
        if ends.iter().any(BTreeSet::is_empty) {
            return Err(Unplayable::OneEnd);
        }
        for threads in ends {
            let mut threads = threads.iter().map(|thread| self.of(*thread)).collect::<Vec<_>>();
            let first = threads.remove(0);
            for other in threads.into_iter().filter(|other| *other != first) {
                // An earlier one may have joined it already.
                if self.of(other) != first {
                    self.0.insert(other, first);
                }
            }
        }
        Ok(())
    }

    /// Whether both ends of a channel belong to the same group.
    fn is_within(&self, users: &Users, channel: u32) -> bool {
        let [a, b] = &users.at[&channel];
        self.first(a) == self.first(b)
    }

    /// The group of the threads at an end, which have been joined.
    fn first(&self, threads: &BTreeSet<u32>) -> u32 {
        threads.first().map_or(u32::MAX, |thread| self.of(*thread))
    }
}
