//! Parses the output of `perf script`: samples with their stacks.

/// One frame of a stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    /// Address in the kernel, or offset in the file.
    pub(super) ip: u64,
    /// The symbol; empty if unknown.
    pub(super) symbol: String,
    /// The file, or a name in brackets such as `[kernel.kallsyms]`; empty if unknown.
    pub(super) dso: String,
}

impl Frame {
    /// Whether the frame is in the kernel.
    pub(super) fn is_kernel(&self) -> bool {
        self.dso.starts_with("[k") || self.dso.starts_with("[guest.k") || self.ip >> 63 == 1
    }
}

/// One sample.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sample {
    /// The process id.
    pub(super) pid: u32,
    /// The name of perf's event.
    pub(super) event: String,
    /// The frames from the innermost outwards.
    pub(super) frames: Vec<Frame>,
}

/// Parses samples in the format of `perf script -F pid,event,ip,sym,dso`: a line for the sample, its frames, an empty
/// line.
pub(super) fn read(text: &str) -> Vec<Sample> {
    let mut all = Vec::new();
    let mut sample: Option<Sample> = None;
    for line in text.lines() {
        if line.trim().is_empty() {
            all.extend(sample.take());
        } else if let (true, Some(sample)) = (line.starts_with('\t'), sample.as_mut()) {
            sample.frames.extend(frame(line));
        } else {
            all.extend(sample.take());
            let mut words = line.split_whitespace();
            let pid = words.next().and_then(|word| word.split('/').next()?.parse().ok());
            let event = words.next().unwrap_or_default().trim_end_matches(':').to_owned();
            sample = pid.map(|pid| Sample { pid, event, frames: Vec::new() });
        }
    }
    all.extend(sample);
    all
}

/// Parses `ffffffff81000000 symbol+0x1 (file)`.
fn frame(line: &str) -> Option<Frame> {
    let (ip, rest) = line.trim().split_once(' ').unwrap_or((line.trim(), ""));
    let ip = u64::from_str_radix(ip, 16).ok()?;
    let (symbol, dso) = match rest.rfind(" (") {
        Some(at) => (&rest[..at], rest[at + 2..].trim_end_matches(')')),
        None => (rest, ""),
    };
    let known = |text: &str| if text == "[unknown]" { String::new() } else { text.to_owned() };
    Some(Frame { ip, symbol: known(symbol), dso: known(dso) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_read_with_their_stacks() {
        let text = "  41/42  cpu-clock: \n\tffffffff81b1ce39 copy_page ([kernel.kallsyms])\n\t 2c98bd6 <a as b>::c (d) (/x/y z)\n\
                    \n41 cycles:P: \n\t   0 [unknown] ([unknown])\n";
        let all = read(text);
        // perf indents the process id; a frame begins with a tab.
        assert_eq!(all.len(), 2, "{all:?}");
        assert_eq!(all[0].pid, 41);
        assert_eq!(all[0].event, "cpu-clock");
        assert!(all[0].frames[0].is_kernel() && !all[0].frames[1].is_kernel());
        assert_eq!(all[0].frames[1].symbol, "<a as b>::c (d)");
        assert_eq!(all[0].frames[1].dso, "/x/y z");
        assert_eq!(all[1].event, "cycles:P");
        assert_eq!(all[1].frames[0].symbol, "");
        assert!(read("nonsense\n").is_empty());
    }
}
