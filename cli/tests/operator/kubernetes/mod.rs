//! `--lock kubernetes`: elections in the objects of a Kubernetes namespace, and leaders for life there.

mod create;
mod doctor;
mod elections;
mod evictions;
mod for_life;
mod life;
mod proxy;
mod refusals;
mod rights;
mod scene;
