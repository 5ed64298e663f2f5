//! Points at which a test can kill this process, one at each step of a switch or a move. Builds without debug
//! assertions have none.

/// Kills this process if CROSSWAY_CHANNEL_FAULT is `POINT@COUNT` with this point's name, and the point has now been
/// reached COUNT times.
#[cfg(debug_assertions)]
pub(crate) fn point(name: &str) {
    static WANTED: std::sync::OnceLock<Option<(String, u32)>> = std::sync::OnceLock::new();
    static SEEN: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let wanted = WANTED.get_or_init(|| {
        let text = std::env::var("CROSSWAY_CHANNEL_FAULT").ok()?;
        let (point, count) = text.split_once('@')?;
        Some((point.to_owned(), count.parse().ok()?))
    });
    if let Some((point, count)) = wanted
        && name.split('(').next() == Some(point)
        && SEEN.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1 == *count
    {
        crossway_sys::proc::kill_self();
    }
}

/// Does nothing in a build without debug assertions.
#[cfg(not(debug_assertions))]
#[inline(always)]
pub(crate) fn point(_name: &str) {}
