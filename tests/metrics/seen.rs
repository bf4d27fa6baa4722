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
                "election" => of[0] = Some(label.value()),
                "identity" => of[1] = Some(label.value()),
                key => name += &format!(" {key}={}", label.value()),
            }
        }
        assert!(!of.contains(&None), "{name} has the labels election and identity");
        if of == [Some(election), Some(identity)] {
            seen.insert(name, value);
        }
    }
    seen
}

/// Of a candidate that leads, and has renewed, in its first term.
pub fn shows_a_leader(seen: &HashMap<String, DebugValue>) {
    assert_eq!(seen["incumbent_leader"], DebugValue::Gauge(1.0.into()));
    assert_eq!(seen["incumbent_terms_total"], DebugValue::Counter(1));
    for name in [
        "incumbent_campaigns_total state=candidate",
        "incumbent_campaigns_total state=leader",
        "incumbent_renewal_seconds",
        "incumbent_last_renewal_timestamp_seconds",
        "incumbent_takeover_seconds after=deleted",
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
#[allow(dead_code, reason = "the tests on Kubernetes have no use for it")]
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
