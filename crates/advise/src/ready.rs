//! The ready-made questions that come with the program, each a file to copy and adapt.

/// Name and text of every ready-made question.
pub const READY: &[(&str, &str)] = &[
    ("sensor", include_str!("../../../questions/sensor.toml")),
    ("camera", include_str!("../../../questions/camera.toml")),
    ("chatty", include_str!("../../../questions/chatty.toml")),
    ("bulk", include_str!("../../../questions/bulk.toml")),
    ("service", include_str!("../../../questions/service.toml")),
    ("pool", include_str!("../../../questions/pool.toml")),
    ("ticker", include_str!("../../../questions/ticker.toml")),
    ("market-data", include_str!("../../../questions/market-data.toml")),
    ("control-loop", include_str!("../../../questions/control-loop.toml")),
    ("log-shipping", include_str!("../../../questions/log-shipping.toml")),
    ("jobserver", include_str!("../../../questions/jobserver.toml")),
    ("two-containers", include_str!("../../../questions/two-containers.toml")),
    ("two-hosts", include_str!("../../../questions/two-hosts.toml")),
];
