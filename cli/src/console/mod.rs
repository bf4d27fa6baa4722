//! What watches elections without taking part in them: one model, and what is made of it.
//!
//! [`model`] is what is known of the elections of a lock. [`top`] and [`ui`] show it, [`record`]
//! writes its transitions to a file, and [`history`] reads them. [`observe`] serves who leads over
//! HTTP, and [`proxy`] carries connections there.

pub mod history;
pub mod model;
pub mod observe;
pub mod proxy;
pub mod record;
pub mod top;
pub mod ui;
