//! The processor: its name, the features that affect timing, its clocks and its frequency governor.

use std::collections::BTreeSet;

use crossway_records::sorting::CollectTree;
use crossway_sys::topology::Topology;
use serde::{Deserialize, Serialize};

use super::system::text;

/// Processor features that affect how the clock is read, how memory is copied, and how the ends wait.
const FLAGS_OF_INTEREST: &[&str] = &[
    "constant_tsc",
    "nonstop_tsc",
    "tsc_known_freq",
    "tsc_reliable",
    "rdtscp",
    "rdpid",
    "hypervisor",
    "erms",
    "fsrm",
    "avx2",
    "avx512f",
    "sse4_2",
    "aes",
    "clflushopt",
    "clwb",
    "monitor",
    "waitpkg",
    "movdiri",
    "movdir64b",
    "pcid",
    "pti",
    "ibrs",
    "ibpb",
    "stibp",
    "ht",
    // aarch64
    "atomics",
    "asimd",
    "sve",
    "crc32",
];

/// The processor as described by `/proc/cpuinfo`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Processor {
    /// Manufacturer, e.g. `GenuineIntel`.
    pub vendor: Option<String>,
    /// Marketing name.
    pub model_name: Option<String>,
    /// Family, or the implementer on aarch64.
    pub family: Option<String>,
    /// Model, or the part on aarch64.
    pub model: Option<String>,
    /// Stepping, or the revision on aarch64.
    pub stepping: Option<String>,
    /// Microcode revision.
    pub microcode: Option<String>,
    /// The processor's features that affect timing.
    pub flags: BTreeSet<String>,
}

impl Processor {
    /// Reads `/proc/cpuinfo`.
    pub fn read() -> Processor {
        Self::parse(&text("/proc/cpuinfo").unwrap_or_default())
    }

    /// Manufacturer, family and model in a word such as `authenticamd-25-1`: processors of the same kind have the same
    /// one, whatever their marketing names.
    pub fn kind(&self) -> String {
        let parts = [&self.vendor, &self.family, &self.model].into_iter().flatten();
        let words: Vec<String> = parts
            .map(|part| part.to_lowercase().replace(|c: char| !c.is_ascii_alphanumeric(), "-"))
            .collect();
        if words.is_empty() { std::env::consts::ARCH.to_owned() } else { words.join("-") }
    }

    /// Parses the text of `/proc/cpuinfo`. The first CPU represents all.
    pub fn parse(cpuinfo: &str) -> Processor {
        let get = |names: &[&str]| {
            cpuinfo.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                (names.contains(&name.trim()) && !value.trim().is_empty())
                    .then(|| value.trim().to_owned())
            })
        };
        let flags = get(&["flags", "Features"]).unwrap_or_default();
        Processor {
            vendor: get(&["vendor_id"]),
            model_name: get(&["model name", "Model"]),
            family: get(&["cpu family", "CPU implementer"]),
            model: get(&["model", "CPU part"]),
            stepping: get(&["stepping", "CPU revision"]),
            microcode: get(&["microcode"]),
            flags: flags
                .split_whitespace()
                .filter(|f| FLAGS_OF_INTEREST.contains(f))
                .map(str::to_owned)
                .collect_tree(),
        }
    }

    /// Everything that identifies the processor, in one line.
    pub fn name(&self) -> String {
        let part = |p: &Option<String>| p.clone().unwrap_or("?".to_owned());
        if let (None, None, Some(implementer)) = (&self.vendor, &self.model_name, &self.family) {
            return format!(
                "{} (implementer {implementer} part {} revision {})",
                arm_core(implementer, self.model.as_deref().unwrap_or_default()),
                part(&self.model),
                part(&self.stepping)
            );
        }
        format!(
            "{} {} (family {} model {} stepping {})",
            part(&self.vendor),
            part(&self.model_name),
            part(&self.family),
            part(&self.model),
            part(&self.stepping)
        )
    }
}

/// The name of an arm64 core, of which the kernel prints only numbers, or who made it: fields of the register MIDR_EL1, as
/// the makers' manuals list them.
fn arm_core(implementer: &str, part: &str) -> &'static str {
    match (implementer, part) {
        ("0x41", "0xd03") => "Arm Cortex-A53",
        ("0x41", "0xd04") => "Arm Cortex-A35",
        ("0x41", "0xd05") => "Arm Cortex-A55",
        ("0x41", "0xd07") => "Arm Cortex-A57",
        ("0x41", "0xd08") => "Arm Cortex-A72",
        ("0x41", "0xd09") => "Arm Cortex-A73",
        ("0x41", "0xd0a") => "Arm Cortex-A75",
        ("0x41", "0xd0b") => "Arm Cortex-A76",
        ("0x41", "0xd0c") => "Arm Neoverse N1",
        ("0x41", "0xd40") => "Arm Neoverse V1",
        ("0x41", "0xd41") => "Arm Cortex-A78",
        ("0x41", "0xd46") => "Arm Cortex-A510",
        ("0x41", "0xd49") => "Arm Neoverse N2",
        ("0x41", "0xd4f") => "Arm Neoverse V2",
        ("0x41", "0xd84") => "Arm Neoverse V3",
        ("0x41", "0xd8e") => "Arm Neoverse N3",
        ("0x41", _) => "Arm core",
        ("0x42", _) => "Broadcom core",
        ("0x43", _) => "Cavium core",
        ("0x46", _) => "Fujitsu core",
        ("0x48", _) => "HiSilicon core",
        ("0x4e", _) => "NVIDIA core",
        ("0x51", _) => "Qualcomm core",
        ("0x53", _) => "Samsung core",
        ("0x61", _) => "Apple core",
        ("0x6d", _) => "Microsoft core",
        ("0xc0", _) => "Ampere core",
        // Among them 0x00, for software such as QEMU with -cpu max.
        _ => "arm64 core",
    }
}

/// Clock sources of the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clock {
    /// The clock source in use.
    pub source: Option<String>,
    /// The available clock sources.
    pub available: Vec<String>,
    /// Whether the time stamp counter has a constant rate and never stops; null on machines without one.
    pub tsc_steady: Option<bool>,
}

impl Clock {
    /// Reads the kernel's clock source.
    pub fn read(processor: &Processor) -> Clock {
        let dir = "/sys/devices/system/clocksource/clocksource0";
        let list = text(&format!("{dir}/available_clocksource")).unwrap_or_default();
        let has = |flag: &str| processor.flags.contains(flag);
        Clock {
            source: text(&format!("{dir}/current_clocksource")),
            available: list.split_whitespace().map(str::to_owned).collect(),
            tsc_steady: cfg!(target_arch = "x86_64")
                .then(|| has("constant_tsc") && has("nonstop_tsc")),
        }
    }
}

/// Control of the processor's frequency and idle states.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frequency {
    /// The governors in use; empty if the system has no control over the frequency, as in most virtual machines.
    pub governors: BTreeSet<String>,
    /// The cpufreq driver.
    pub driver: Option<String>,
    /// Lowest frequency allowed on the first CPU, kHz.
    pub min_khz: Option<u64>,
    /// Highest frequency allowed on the first CPU, kHz.
    pub max_khz: Option<u64>,
    /// Whether the processor may temporarily run above its nominal frequency.
    pub turbo: Option<bool>,
    /// The driver of the idle states.
    pub idle_driver: Option<String>,
    /// The governor that selects idle states.
    pub idle_governor: Option<String>,
    /// The idle states of the first CPU and their exit latencies, microseconds.
    pub idle_states_exit_us: Vec<(String, u64)>,
}

impl Frequency {
    /// Reads cpufreq and cpuidle.
    pub fn read(topology: &Topology) -> Frequency {
        let root = "/sys/devices/system/cpu";
        let first = topology.cpus.first().map_or(0, |c| c.id);
        let number = |path: String| text(&path).and_then(|t| t.parse().ok());
        let governors = topology
            .cpus
            .iter()
            .filter_map(|c| text(&format!("{root}/cpu{}/cpufreq/scaling_governor", c.id)))
            .collect_tree();
        // The two drivers have switches with opposite meanings.
        let turbo = text(&format!("{root}/intel_pstate/no_turbo"))
            .map(|t| t == "0")
            .or_else(|| text(&format!("{root}/cpufreq/boost")).map(|t| t == "1"));
        let states = (0..16).map_while(|i| {
            let state = format!("{root}/cpu{first}/cpuidle/state{i}");
            let name = text(&format!("{state}/name"))?;
            Some((name, number(format!("{state}/latency")).unwrap_or(0)))
        });
        Frequency {
            governors,
            driver: text(&format!("{root}/cpu{first}/cpufreq/scaling_driver")),
            min_khz: number(format!("{root}/cpu{first}/cpufreq/scaling_min_freq")),
            max_khz: number(format!("{root}/cpu{first}/cpufreq/scaling_max_freq")),
            turbo,
            idle_driver: text(&format!("{root}/cpuidle/current_driver")),
            idle_governor: text(&format!("{root}/cpuidle/current_governor_ro"))
                .or_else(|| text(&format!("{root}/cpuidle/current_governor"))),
            idle_states_exit_us: states.collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn x86_and_arm_processors_are_named() {
        let x86 = "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 37\n\
                   model name\t: Intel(R) Core(TM) i5 CPU M 520 @ 2.40GHz\nstepping\t: 5\n\
                   flags\t\t: fpu tsc constant_tsc nonstop_tsc pcid\n\nprocessor\t: 1\nmodel\t\t: 99\n";
        let x86 = Processor::parse(x86);
        assert_eq!(
            x86.name(),
            "GenuineIntel Intel(R) Core(TM) i5 CPU M 520 @ 2.40GHz (family 6 model 37 stepping 5)"
        );
        assert!(x86.flags.contains("nonstop_tsc") && !x86.flags.contains("fpu"));
        let arm = "processor\t: 0\nFeatures\t: fp asimd crc32 atomics\nCPU implementer\t: 0x41\n\
                   CPU part\t: 0xd0c\nCPU revision\t: 1\n";
        let arm = Processor::parse(arm);
        assert_eq!(arm.name(), "Arm Neoverse N1 (implementer 0x41 part 0xd0c revision 1)");
        assert_eq!((x86.kind(), arm.kind()), ("genuineintel-6-37".into(), "0x41-0xd0c".into()));
        assert!(arm.flags.contains("atomics"));
        let unknown =
            Processor::parse("CPU implementer\t: 0x00\nCPU part\t: 0x051\nCPU revision\t: 0\n");
        assert_eq!(unknown.name(), "arm64 core (implementer 0x00 part 0x051 revision 0)");
        assert_eq!(Processor::parse(""), Processor::default());
        assert_eq!(Processor::default().name(), "? ? (family ? model ? stepping ?)");
    }
}
