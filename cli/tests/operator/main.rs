//! The commands of operators: the real program against real servers.

mod choria;
mod connection;
mod credentials;
mod doctor;
mod election_evict;
mod election_file;
mod election_info;
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
mod lock_url;
mod object_storage_doctor;
mod peer_doctor;
mod plain_http;
mod postgres_doctor;
mod reference;
mod refused_writes;
mod shell;
mod sqlite_doctor;
