//! The commands of operators: the real program against real servers.

mod choria;
mod connection;
mod credentials;
mod doctor;
mod election_evict;
mod election_file;
mod election_info;
mod election_members;
mod election_move;
mod election_pause;
mod election_watch;
mod exit_codes;
mod extreme_values;
mod hostile_names;
mod kubernetes;
mod kv_backup;
mod kv_buckets;
mod kv_delete;
mod kv_entries;
mod kv_watch;
mod leader;
mod lock_url;
mod object_storage_doctor;
mod peer_doctor;
mod plain_http;
mod postgres_doctor;
mod problems;
mod reference;
mod refused_writes;
mod set_info;

mod shell;
mod sqlite_doctor;
mod topologies;
