//! The protocol machine under test, without a server, a runtime or a clock: in virtual time.
//!
//! `world` and its parts simulate one election key, the network and the processes around production
//! [`Campaign`](incumbent::protocol::Campaign)s; `random` drives it with generated schedules of faults; the other
//! modules tell single stories.

mod protocol {
    mod campaigner;
    mod checker;
    mod choria;
    mod desk;
    mod faults;
    mod network;
    mod scenario;
    mod server;
    mod world;

    mod cool_down;
    mod found;
    mod fuzz;
    mod hostile;
    mod incidents;
    mod leaving;
    mod random;
    mod standing_by;
}
