//! Leader election that keeps exactly one leader in office.
pub mod clock;
pub mod lock;
pub mod protocol;
