//! What a page shows beside the elections.

/// What a page offers.
#[derive(Debug, Clone, Copy, Default)]
pub struct Page {
    /// Whether it may change elections.
    pub changes: bool,
    /// Whether there is a recording.
    pub recording: bool,
}

/// The lock, and what the page does with it.
#[derive(Debug)]
pub struct About {
    /// The lock; empty until it was opened.
    pub lock: String,
    /// The elections that were selected by name.
    pub names: Vec<String>,
    pub page: Page,
    /// Why the lock cannot be read, if it cannot.
    pub failing: Option<String>,
}
