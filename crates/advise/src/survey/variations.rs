//! The variations of a question that show where its answer changes.

use super::super::judge::Setting;
use super::super::question::{Question, Site};
use crossway_records::cases::size_words;
use crossway_records::inputs::Load;

/// Variations of a question, the smallest changes first.
pub(super) fn variations(question: &Question) -> Vec<Setting> {
    let own = Setting::of(question);
    let mut all = Vec::new();
    let loaded = std::thread::available_parallelism().map_or(2, |n| n.get() as u32);
    let other_load = if question.load.is_idle() {
        Load { cpu: loaded, ..Load::default() }
    } else {
        Load::default()
    };
    for factor in [8.0, 0.125, 64.0] {
        let largest = question.sizes.iter().map(|s| s.bytes).max().unwrap_or(1) as f64 * factor;
        let least = question.sizes.iter().map(|s| s.bytes).min().unwrap_or(1) as f64 * factor;
        if largest <= f64::from(16 << 20) && least >= 8.0 {
            all.push(Setting { size_factor: factor, ..own.clone() });
        }
    }
    if question.site == Site::SameHost {
        all.insert(1.min(all.len()), Setting { load: other_load, ..own.clone() });
    }
    if question.rate_per_s.is_some() {
        all.insert(1.min(all.len()), Setting { rate_factor: 4.0, ..own.clone() });
    }
    all
}

/// Describes a variation in words.
pub fn describe(setting: &Setting, question: &Question) -> String {
    let own = Setting::of(question);
    let varied = setting.apply(question);
    if setting.size_factor != own.size_factor {
        let sizes: Vec<String> = varied.sizes.iter().map(|s| size_words(s.bytes)).collect();
        return format!("messages of {}", sizes.join(", "));
    }
    if setting.rate_factor != own.rate_factor {
        return format!("{} messages per second", varied.rate_per_s.unwrap_or_default());
    }
    if setting.load.is_idle() {
        return "no load added".to_owned();
    }
    format!("background load ({})", crossway_records::cases::load_name(&setting.load))
}
