//! What watches elections without taking part in them: one model, and what is made of it.
//!
//! [`model`] is what is known of the elections of a lock. [`top`] and [`ui`] show it, [`record`]
//! writes its transitions to a file, and [`history`] reads them.

pub mod history;
pub mod model;
pub mod record;
pub mod top;
pub mod ui;
