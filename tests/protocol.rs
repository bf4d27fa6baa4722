//! The protocol machine under test, without a server, a runtime or a clock: in virtual time.
//!
//! `world` and its parts simulate one election key, the network and the processes around production
//! [`Campaign`](incumbent::protocol::Campaign)s; `random` drives it with generated schedules of faults; the other
//! modules tell single stories.

mod protocol {
    mod desk;
    mod server;
    mod found;
    mod leaving;
}
