//! What an exporter of the metrics facade has seen.

use std::collections::HashMap;

use metrics_util::debugging::{DebugValue, Snapshotter};

/// Metrics of one candidate by name and other labels. Each is reported once: counters start again
/// at zero.
pub fn seen(
    snapshotter: &Snapshotter,
    election: &str,
    identity: &str,
) -> HashMap<String, DebugValue> {
    let mut seen = HashMap::new();
    for (key, _, _, value) in snapshotter.snapshot().into_vec() {
        let (mut name, mut of) = (key.key().name().to_owned(), [None, None]);
        for label in key.key().labels() {
            match label.key() {
                "election" | "set" => of[0] = Some(label.value()),
                "identity" => of[1] = Some(label.value()),
                key => name += &format!(" {key}={}", label.value()),
            }
        }
        assert!(!of.contains(&None), "{name} has the labels election or set, and identity");
        if of == [Some(election), Some(identity)] {
            seen.insert(name, value);
        }
    }
    seen
}

/// Of a candidate in its first term, with this lease and this time between renewals, in seconds.
pub fn shows_a_leader(seen: &HashMap<String, DebugValue>, lease: f64, renewal: f64) {
    for (name, value) in [
        ("incumbent_leader", 1.0),
        ("incumbent_lock_up", 1.0),
        ("incumbent_lease_seconds", lease),
        ("incumbent_renewal_interval_seconds", renewal),
    ] {
        assert!((gauge(seen, name) - value).abs() < 1e-6, "{name}: {:?}", seen[name]);
    }
    assert!(gauge(seen, "incumbent_observed_leader_token") > 0.0, "its own token");
    assert_eq!(seen["incumbent_terms_total"], DebugValue::Counter(1));
    // From 0 on, as a counter that begins with 1 has not increased.
    for cause in [
        "denied",
        "evicted",
        "expired",
        "handed_over",
        "resigned",
        "stopped",
        "superseded",
        "work_ended",
        "work_panicked",
    ] {
        let losses = format!("incumbent_losses_total cause={cause}");
        assert_eq!(seen[&losses], DebugValue::Counter(0), "{losses}");
    }
    for name in [
        "incumbent_campaigns_total state=candidate",
        "incumbent_campaigns_total state=leader",
        "incumbent_renewal_seconds",
        "incumbent_last_renewal_timestamp_seconds",
        "incumbent_takeover_seconds after=deleted",
        "incumbent_late_renewals_total",
        "incumbent_leaderless_seconds_total",
    ] {
        assert!(seen.contains_key(name), "{name} of {:?}", seen.keys());
    }
}

/// Of one that has lost its term since.
pub fn shows_a_loss(seen: &HashMap<String, DebugValue>, cause: &str) {
    assert_eq!(seen["incumbent_leader"], DebugValue::Gauge(0.0.into()));
    let losses = format!("incumbent_losses_total cause={cause}");
    assert_eq!(seen[&losses], DebugValue::Counter(1));
}

/// The takeovers, by how the term before ended.
pub fn takeovers(seen: &HashMap<String, DebugValue>) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    for (name, value) in seen {
        let after = name.strip_prefix("incumbent_takeover_seconds after=");
        if let (Some(after), DebugValue::Histogram(all)) = (after, value)
            && !all.is_empty()
        {
            found.push((after.to_owned(), all.len()));
        }
    }
    found
}

/// The value of a gauge.
pub fn gauge(seen: &HashMap<String, DebugValue>, name: &str) -> f64 {
    match seen.get(name) {
        Some(DebugValue::Gauge(value)) => **value,
        other => panic!("{name} is no gauge: {other:?}"),
    }
}
