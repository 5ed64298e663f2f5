//! Divides the logical CPUs among the hosts.

/// The CPUs of each host and of the impairing switch, and whether hosts had to share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shares {
    /// The CPUs of each host, in order.
    pub(crate) hosts: Vec<Vec<u32>>,
    /// The CPUs for the switch; empty: any.
    pub(crate) switch: Vec<u32>,
    /// Whether there are fewer CPUs than hosts, or the requested ones overlap, so that a host's CPU time includes that
    /// of others.
    pub(crate) shared: bool,
}

/// Splits `allowed` into ranges of neighbouring CPUs, so that hardware threads of one core and cores of one cache tend
/// to be on one host. `given` holds the CPUs requested for each host (empty: none). A user-space switch gets the last
/// CPU if one is left over.
pub(crate) fn shares(allowed: &[u32], given: &[Vec<u32>], user_space_switch: bool) -> Shares {
    let wished: Vec<u32> = given.iter().flatten().copied().collect();
    let mut free: Vec<u32> = allowed.iter().copied().filter(|cpu| !wished.contains(cpu)).collect();
    let asking = given.iter().filter(|cpus| cpus.is_empty()).count();
    let mut switch = Vec::new();
    if user_space_switch && free.len() > asking {
        switch.extend(free.pop());
    }
    let mut overlap = wished.len() > {
        let mut distinct = wished.clone();
        distinct.sort_unstable();
        distinct.dedup();
        distinct.len()
    };
    if asking > 0 && free.len() < asking {
        overlap = true;
        free = allowed.to_vec();
    }
    let mut turn = 0;
    let hosts = given
        .iter()
        .map(|cpus| {
            if !cpus.is_empty() {
                return cpus.clone();
            }
            let at = turn;
            turn += 1;
            if free.len() < asking {
                return vec![free[at % free.len()]];
            }
            free[at * free.len() / asking..(at + 1) * free.len() / asking].to_vec()
        })
        .collect();
    Shares { hosts, switch, shared: overlap }
}

/// A CPU mask in the format of `/sys`: hexadecimal words of 32 bits, the highest first.
pub(crate) fn mask(cpus: &[u32]) -> String {
    let words = cpus.iter().max().map_or(1, |most| most / 32 + 1);
    (0..words)
        .rev()
        .map(|word| {
            let bits =
                cpus.iter().filter(|cpu| *cpu / 32 == word).fold(0u32, |m, c| m | 1 << (c % 32));
            format!("{bits:08x}")
        })
        .collect::<Vec<_>>()
        .join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn none(hosts: usize) -> Vec<Vec<u32>> {
        vec![Vec::new(); hosts]
    }

    #[test]
    fn hosts_get_cpus_of_their_own_where_there_are_enough() {
        let s = shares(&[0, 1, 2, 3, 4], &none(2), false);
        assert_eq!((s.hosts, s.shared), (vec![vec![0, 1], vec![2, 3, 4]], false));
        let s = shares(&[0, 1, 2, 3, 4], &none(2), true);
        assert_eq!((s.hosts, s.switch), (vec![vec![0, 1], vec![2, 3]], vec![4]));
        let s = shares(&[0, 1], &none(2), true);
        assert_eq!((s.hosts, s.switch, s.shared), (vec![vec![0], vec![1]], vec![], false));
    }

    #[test]
    fn too_few_cpus_are_shared_and_reported() {
        let s = shares(&[4, 7], &none(3), false);
        assert_eq!((s.hosts, s.shared), (vec![vec![4], vec![7], vec![4]], true));
    }

    #[test]
    fn requested_cpus_are_granted_and_withheld_from_the_others() {
        let s = shares(&[0, 1, 2], &[vec![1], vec![]], false);
        assert_eq!((s.hosts, s.shared), (vec![vec![1], vec![0, 2]], false));
        assert!(shares(&[0, 1], &[vec![1], vec![1]], false).shared);
        assert!(shares(&[0], &[vec![0], vec![]], false).shared);
    }

    #[test]
    fn masks_are_words_of_32_bits() {
        assert_eq!(mask(&[0, 1]), "00000003");
        assert_eq!(mask(&[33, 64]), "00000001,00000002,00000000");
    }
}
