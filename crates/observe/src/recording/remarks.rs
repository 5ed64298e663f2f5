//! What a reader of figures from a recording should know about it.

use super::{Head, Recording};

impl Recording {
    /// Everything that limits what the recording says, one sentence each: its defects, what was lost, a clock that went
    /// backwards, another machine. Empty for a whole recording of this machine.
    pub fn remarks(&self) -> Vec<String> {
        let mut remarks = self.defects.clone();
        let lost = self.head.totals.as_ref().map(|totals| totals.lost).unwrap_or_default();
        if lost.overrun > 0 {
            remarks.push(format!(
                "the recorder was too slow for {} events, so messages are missing",
                lost.overrun
            ));
        }
        if lost.clock_backwards > 0 {
            remarks.push(format!(
                "the clock went backwards {} times while it was recorded; the times around these are wrong",
                lost.clock_backwards
            ));
        }
        let here = (
            Some(crossway_sys::kernel::release()),
            std::thread::available_parallelism().ok().map(|n| n.get() as u32),
        );
        remarks.extend(elsewhere(&self.head, here));
        remarks
    }
}

/// Whether the recording is of another machine than the one with this kernel and number of CPUs.
fn elsewhere(head: &Head, here: (Option<String>, Option<u32>)) -> Option<String> {
    let told = |cpus: Option<u32>, kernel: &Option<String>| {
        format!(
            "{} CPUs, kernel {}",
            cpus.map_or("?".to_owned(), |n| n.to_string()),
            kernel.as_deref().unwrap_or("?")
        )
    };
    let other_kernel = head.kernel.is_some() && head.kernel != here.0;
    let other_cpus = head.cpus.is_some() && here.1.is_some() && head.cpus != here.1;
    (other_kernel || other_cpus).then(|| {
        format!(
            "it was recorded on another machine ({}; here: {}), whose pauses between calls are not this one's",
            told(head.cpus, &head.kernel),
            told(here.1, &here.0)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::super::Method;
    use super::*;

    fn head(kernel: Option<&str>, cpus: Option<u32>) -> Head {
        Head {
            kernel: kernel.map(str::to_owned),
            cpus,
            ..Head::new(
                "test",
                1,
                Method {
                    name: "test".to_owned(),
                    cost_ns_per_call: None,
                    cost_note: String::new(),
                    blind_to: String::new(),
                },
            )
        }
    }

    #[test]
    fn another_machine_is_told_by_its_kernel_or_cpus_and_an_unknown_one_is_not_accused() {
        let here = || (Some("6.8.0".to_owned()), Some(2));
        assert_eq!(elsewhere(&head(Some("6.8.0"), Some(2)), here()), None);
        assert_eq!(elsewhere(&head(None, None), here()), None);
        for other in
            [head(Some("5.4.0"), Some(2)), head(Some("6.8.0"), Some(64)), head(None, Some(4))]
        {
            assert!(elsewhere(&other, here()).unwrap().contains("another machine"), "{other:?}");
        }
    }
}
