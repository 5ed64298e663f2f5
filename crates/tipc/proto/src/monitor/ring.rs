//! Assigns the roles of the ring monitor: which nodes are in this node's domain, and which are heads.

use super::{Monitor, domain_len};
use crate::wire::DomainRecord;

impl Monitor {
    /// Number of leading members of a node's domain record that agree with this node's ring: the same nodes, in the
    /// same order, follow the node there. `index` is the node's index in the ring.
    pub(super) fn applied(&self, index: usize) -> usize {
        let member = &self.ring[index];
        let record =
            if member.addr == self.own { Some(&self.domain) } else { member.record.as_deref() };
        let Some(record) = record else { return 0 };
        let following = (1..self.ring.len()).map(|n| self.ring[(index + n) % self.ring.len()].addr);
        record.members.iter().zip(following).take_while(|(named, there)| *named == there).count()
    }

    /// Recomputes this node's domain after a change of the ring.
    pub(super) fn renew_domain(&mut self) {
        let Ok(own) = self.place(self.own) else { return };
        let mut fresh = DomainRecord { generation: self.domain.generation, ..Default::default() };
        for n in 0..domain_len(self.ring.len()) {
            let member = &self.ring[(own + 1 + n) % self.ring.len()];
            fresh.up |= u64::from(member.up) << n;
            fresh.members.push(member.addr);
        }
        if fresh != self.domain {
            fresh.generation = self.domain.generation.next();
            self.domain = fresh;
        }
    }

    /// Assigns the roles of all nodes around the ring: own domain, heads, and nodes covered by heads.
    pub(super) fn assign_roles(&mut self) {
        let Ok(own) = self.place(self.own) else { return };
        let count = self.ring.len();
        let mut left = self.domain.members.len();
        // The head whose domain is being processed; initially this node itself.
        let (mut head, mut member) = (own, 0);
        for n in 1..count {
            let index = (own + n) % count;
            let covered = left > 0;
            let seen = covered
                && head != own
                && self.ring[head].record.as_deref().is_some_and(|record| record.sees(member));
            let place = &mut self.ring[index];
            (place.local, place.head, place.uncovered) = (covered && head == own, false, false);
            if covered {
                (left, member) = (left - 1, member + 1);
                place.uncovered = place.up && !seen && head != own;
            } else if place.up {
                place.head = true;
                (head, member) = (index, 0);
                left = self.applied(index);
            }
        }
        self.table_generation = self.table_generation.wrapping_add(1);
    }
}
