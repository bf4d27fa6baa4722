//! The labels of the metrics of a candidate.

use std::sync::Arc;

use metrics::Label;

/// What all metrics of a candidate have in common. They share the text.
pub(super) struct Labels {
    pub election: Arc<str>,
    pub identity: Arc<str>,
}

impl Labels {
    pub fn all(&self) -> Vec<Label> {
        let (election, identity) = (Arc::clone(&self.election), Arc::clone(&self.identity));
        vec![Label::new("election", election), Label::new("identity", identity)]
    }

    pub fn with(&self, key: &'static str, value: &'static str) -> Vec<Label> {
        let mut labels = self.all();
        labels.push(Label::from_static_parts(key, value));
        labels
    }
}
