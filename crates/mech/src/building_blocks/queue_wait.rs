//! Waiting at message queues, whose system calls support deadlines themselves.

use std::time::{Duration, Instant};

use crossway_sys::Errno;
use crossway_sys::patience::Patience;

use crate::{Deadline, Wait};

/// Makes `call` with the channel's way of waiting. Returns `None` if the deadline has passed.
#[inline]
pub(crate) fn wait_for<T>(
    wait: Wait,
    until: Deadline,
    mut call: impl FnMut(Patience) -> Result<Option<T>, Errno>,
) -> Result<Option<T>, Errno> {
    let asleep = Patience::from_deadline(until);
    match wait {
        Wait::Block => call(asleep),
        Wait::Spin => spin(asleep, call),
        Wait::Hybrid { spin_us } => {
            let budget = Instant::now() + Duration::from_micros(spin_us.into());
            let awake = until.map_or(budget, |until| until.min(budget));
            match spin(Patience::Until(awake), &mut call)? {
                Some(done) => Ok(Some(done)),
                None => call(asleep),
            }
        }
    }
}

#[inline]
fn spin<T>(
    patience: Patience,
    mut call: impl FnMut(Patience) -> Result<Option<T>, Errno>,
) -> Result<Option<T>, Errno> {
    loop {
        if let Some(done) = call(Patience::Now)? {
            return Ok(Some(done));
        }
        if patience.is_over() {
            return Ok(None);
        }
        crossway_sys::spin::hint();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_of_waiting_makes_its_own_calls() {
        let far = Instant::now() + Duration::from_secs(60);
        let mut asked = Vec::new();
        let mut ready_at_third = |patience| {
            asked.push(patience);
            Ok((asked.len() == 3).then_some(7))
        };
        assert_eq!(wait_for(Wait::Block, Some(far), &mut ready_at_third), Ok(None));
        assert_eq!(wait_for(Wait::Spin, None, &mut ready_at_third), Ok(Some(7)));
        assert_eq!(asked, [Patience::Until(far), Patience::Now, Patience::Now]);

        let mut asked = Vec::new();
        let hybrid = Wait::Hybrid { spin_us: 0 };
        let mut ready_asleep = |patience| {
            asked.push(patience);
            Ok((patience == Patience::Forever).then_some(()))
        };
        assert_eq!(wait_for(hybrid, None, &mut ready_asleep), Ok(Some(())));
        assert_eq!(asked, [Patience::Now, Patience::Forever]);
    }

    #[test]
    fn spinning_ends_at_the_deadline() {
        let soon = Instant::now() + Duration::from_millis(2);
        assert_eq!(wait_for::<()>(Wait::Spin, Some(soon), |_| Ok(None)), Ok(None));
        assert!(Instant::now() >= soon);
    }
}
