//! Fuzz tests of decoding: no input causes a panic or an overflow, and decoded values are
//! plausible.
//!
//! `cargo test` gives each target a fixed number of inputs, from fresh seeds; `make fuzz` runs for
//! minutes. A failure prints its seed, which `BOLERO_RANDOM_SEED` repeats.

mod answers;
mod entries;
mod hostile;
mod times;
