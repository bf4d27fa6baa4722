//! `incumbent` as operators use it: the real program against real servers.

mod choria;
mod connection;
mod doctor;
mod election_evict;
mod election_file;
mod election_info;
mod election_watch;
mod exit_codes;
mod extremes;
mod hostile_names;
mod in_clear;
mod kubernetes;
mod kv_backup;
mod kv_buckets;
mod kv_delete;
mod kv_entries;
mod kv_watch;
mod lock_url;
mod manual;
mod objects_doctor;
mod peers_doctor;
mod postgres_doctor;
mod proofs;
mod refused_writes;
mod shell;
mod sqlite_doctor;
