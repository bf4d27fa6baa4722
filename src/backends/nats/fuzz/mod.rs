//! Bytes of others: whatever they are, reading them neither panics nor overflows, and what is read makes sense.
//!
//! `cargo test` gives each target a fixed number of inputs, from fresh seeds; `make fuzz` goes on for minutes. A failure
//! prints its seed, which `BOLERO_RANDOM_SEED` repeats.

mod answers;
mod entries;
mod hostile;
mod times;
