//! The protocol machine under test, without a server, a runtime or a clock: single scenarios, in virtual time. Random ones are
//! in `tests/crates/sim`.

mod harness;

mod cool_down;
mod found;
mod fuzz;
mod hostile;
mod incidents;
mod judged;
mod leaving;
#[cfg(feature = "_history")]
mod replay;
mod standing_by;
mod strays;
mod tampering;
